"""Questions about new users leak nothing and are nested; baselines agree with sums by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cfnade import synthetic
from cfnade.data.dataset import Dataset
from cfnade.data.splits import split
from experiments.new_users.__main__ import kept, recipes_for
from experiments.new_users.baselines import MEANS, ItemMeans, discretised
from experiments.new_users.panel import (
    ALL,
    FEW,
    FEWEST,
    FEWEST_OF_MANY,
    GIVEN,
    MANY,
    MOST,
    Answers,
    Panel,
    Questions,
    Seconds,
    gaps,
    panel,
)
from experiments.new_users.report import BEGIN, END, section, write_section


@pytest.fixture(scope="module")
def drawn() -> Dataset:
    """In no order, and with people of fewer ratings than are scored."""
    ratings = synthetic(400, 120, 16_000, seed=3).ratings
    return ratings.select(np.random.default_rng(0).permutation(len(ratings)))


@pytest.fixture(scope="module")
def people(drawn: Dataset) -> Panel:
    return panel(split(drawn, f"users:1:{MOST}"), 1)


def ratings_of(questions: Questions) -> dict[int, tuple[list[Any], list[Any]]]:
    """By user: what was given, in order, and what is asked, as pairs of item and level."""
    asked = questions.asked
    pairs = list(zip(asked.items.tolist(), asked.levels.tolist(), strict=True))
    told = list(zip(questions.items.tolist(), questions.levels.tolist(), strict=True))
    found = {}
    for person in range(questions.people):
        places = np.flatnonzero(questions.rows == person)
        (user,) = set(asked.users[places].tolist())
        given = told[questions.offsets[person] : questions.offsets[person + 1]]
        found[user] = (given, [pairs[place] for place in places])
    return found


def by_number(people: Panel) -> dict[str, dict[int, tuple[list[Any], list[Any]]]]:
    return {questions.given: ratings_of(questions) for questions in people.questions}


def test_there_are_questions_for_each_number_in_order(people: Panel) -> None:
    assert [questions.given for questions in people.questions] == list(GIVEN)
    assert GIVEN == ("0", "1", "2", "5", "10", "20", "50", "all")


@pytest.mark.parametrize("number", GIVEN)
def test_people_have_no_rating_in_training_and_each_rating_once(
    people: Panel, drawn: Dataset, number: str
) -> None:
    known = set(people.known.users.tolist())
    found = by_number(people)[number]
    for user, (given, asked) in found.items():
        whole = drawn.select(drawn.users == user)
        truth = list(zip(whole.items.tolist(), whole.levels.tolist(), strict=True))
        assert user not in known
        assert len(truth) >= (FEWEST_OF_MANY if number == str(MANY) else FEWEST)
        assert len(asked) > 0
        assert not {item for item, _ in given} & {item for item, _ in asked}
        both = [*given, *asked]
        assert len(set(both)) == len(both)
        assert set(both) <= set(truth)
        if number in ("20", "50", "all"):
            assert sorted(both) == sorted(truth)


def test_all_who_have_enough_ratings_are_asked(people: Panel, drawn: Dataset) -> None:
    counts = np.bincount(drawn.users)
    held = set(drawn.users.tolist()) - set(people.known.users.tolist())
    found = by_number(people)
    for number in GIVEN:
        fewest = FEWEST_OF_MANY if number == str(MANY) else FEWEST
        assert set(found[number]) == {user for user in held if counts[user] >= fewest}
    assert 0 < len(found[str(MANY)]) < len(found["0"]) < len(held)


def test_what_is_given_grows_and_what_is_asked_stays(people: Panel) -> None:
    found = by_number(people)
    for user, (longest, asked) in found[str(MOST)].items():
        for number in FEW:
            assert found[str(number)][user] == (longest[:number], asked)
        for later in (found[str(MANY)], found[ALL]):
            if user in later:
                given, rest = later[user]
                assert given[:MOST] == longest
                assert set(rest) < set(asked)


def test_the_last_columns_give_fifty_and_nine_tenths(people: Panel) -> None:
    found = by_number(people)
    assert all(len(given) == MANY for given, _ in found[str(MANY)].values())
    for given, asked in found[ALL].values():
        assert len(asked) == (len(given) + len(asked)) // 10


def test_questions_are_the_same_again_and_others_for_another_seed(
    people: Panel, drawn: Dataset
) -> None:
    again = panel(split(drawn, f"users:1:{MOST}"), 1)
    assert by_number(again) == by_number(people)
    other = panel(split(drawn, f"users:2:{MOST}"), 2)
    assert by_number(other)["0"].keys() != by_number(people)["0"].keys()


def test_the_order_of_giving_is_random_not_that_of_the_file(people: Panel) -> None:
    for questions in people.questions[-3:]:
        rises = np.diff(questions.items) > 0
        assert 0.3 < rises.mean() < 0.7


def test_people_are_walked_through_one_by_one(people: Panel) -> None:
    for questions in people.questions:
        said = [(given, asked) for given, asked in questions.by_person()]
        assert len(said) == questions.people
        for person, (given, asked) in enumerate(said):
            assert np.flatnonzero(questions.givers() == person).tolist() == list(
                range(given.start, given.stop)
            )
            assert np.flatnonzero(questions.rows == person).tolist() == list(
                range(asked.start, asked.stop)
            )


@pytest.mark.parametrize("number", ["0", "5", "all"])
def test_shrunken_means_agree_with_sums_by_hand(people: Panel, number: str) -> None:
    known, questions = people.known, people.questions[GIVEN.index(number)]
    found = ItemMeans(known, 2.0).predict(questions, 3.0)
    mean, asked = known.values.mean(), questions.asked
    stars = known.scale.array()

    def offset(item: int) -> float:
        above = known.values[known.items == item] - mean
        return float(above.sum() / (len(above) + 2.0))

    by_user = ratings_of(questions)
    for at in (0, len(asked) // 2, len(asked) - 1):
        told = by_user[int(asked.users[at])][0]
        own = sum(stars[level] - mean - offset(item) for item, level in told) / (len(told) + 3.0)
        expected = np.clip(mean + offset(int(asked.items[at])) + own, 1, 5)
        assert found[at] == pytest.approx(expected)


def test_a_discretised_gaussian_is_the_share_of_draws_nearest_to_each_value() -> None:
    values = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    means = np.array([1.2, 3.4])
    p = discretised(means, 0.9, values)
    assert p.sum(1) == pytest.approx(1.0)
    draws = means[:, None] + 0.9 * np.random.default_rng(0).standard_normal((2, 200_000))
    nearest = np.abs(draws[:, :, None] - values).argmin(2)
    shares = np.stack([np.bincount(row, minlength=5) / 200_000 for row in nearest])
    assert np.abs(p - shares).max() < 0.005


def answers(people: Panel, name: str, off: float) -> Answers:
    """All wrong by as much."""
    means = [questions.asked.values + off for questions in people.questions]
    return Answers(name, means, [], Seconds(0, 0), Seconds(0, 0), {})


def test_gaps_are_differences_of_rmse_and_none_to_itself(people: Panel) -> None:
    mine, other = answers(people, "mine", 0.5), answers(people, "other", -0.75)
    found = [gap["rmse"] for gap in gaps(mine, other, people, 1)]
    assert found == pytest.approx([-0.25] * len(GIVEN))
    assert all(gap == {"rmse": 0, "error": 0} for gap in gaps(mine, mine, people, 1))


def method(name: str, rmse: float, nll: float, **more: Any) -> dict[str, Any]:
    times = {"fit_s": 1.0, "fit_cpu_s": 1.0, "user_ms": 1.0, "user_cpu_ms": 1.0}
    figures = {"rmse": [rmse] * len(GIVEN), "nll": [nll] * len(GIVEN)}
    return {"method": name, **figures, **times, **more}


def a_run(seed: int, mine: dict[str, Any], *rivals: dict[str, Any]) -> dict[str, Any]:
    gap = [{"rmse": 0.0, "error": 0.001}] * len(GIVEN)
    at = {"cpu": "a", "cores": 1, "threads": 1, "date": "2026-01-01", "commit": "c"}
    at |= {"load": "0", "uncommitted": False}
    return {
        "seed": seed,
        "split": f"users:{seed}:20",
        "held_out": 30,
        "tried": 20,
        "people": [25] * len(GIVEN),
        "asked": [500] * len(GIVEN),
        "methods": [*rivals, mine],
        "gaps": {mine["method"]: {one["method"]: gap for one in rivals}},
        "machine": at,
        "rivals_machine": at,
    }


def test_figures_are_means_over_seeds_with_their_deviation() -> None:
    runs = [
        a_run(3, method("ours", 0.85, 1.1, recipe="r"), method(MEANS, 0.92, 1.2)),
        a_run(5, method("ours", 0.91, 1.1, recipe="r"), method(MEANS, 0.92, 1.3)),
    ]
    text = section({"data": "ml-1m", "given": GIVEN, "runs": runs})
    assert "| ours | **0.8800** ± 0.0424 |" in text
    assert f"| {MEANS} | 0.9200 ± 0.0000 |" in text
    assert f"| {MEANS} | 1.2500 ± 0.0707 |" in text


def test_a_data_set_has_its_own_recipe_or_the_default_one() -> None:
    assert [one.name for one in recipes_for("ml-1m", [])] == ["ml-1m-user"]
    assert [(one.name, one.side) for one in recipes_for("ml-100k", [])] == [("default", "user")]
    named = recipes_for("ml-1m", ["ml-1m-user", "ml-1m-both"])
    assert [one.name for one in named] == ["ml-1m-user", "ml-1m-both"]
    with pytest.raises(SystemExit, match="item-based"):
        recipes_for("ml-1m", ["ml-1m-item"])


def test_what_is_kept_is_not_made_again(tmp_path: Path) -> None:
    made: list[int] = []

    def make() -> int:
        made.append(1)
        return len(made)

    assert [kept(tmp_path / "new", name, make) for name in ("a", "a", "b", "a")] == [1, 1, 2, 1]


def test_a_section_is_put_at_the_end_once_and_then_replaced(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Page\n")
    write_section(page, "first\n")
    assert page.read_text() == f"# Page\n\n{BEGIN}\nfirst\n{END}\n"
    page.write_text(page.read_text() + "after\n")
    write_section(page, "second\n")
    assert page.read_text() == f"# Page\n\n{BEGIN}\nsecond\n{END}\nafter\n"
