"""Benchmarks run; the comparison for new users asks fair questions, scores means as it says."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from cfnade import synthetic
from cfnade.data.ratings import Ratings
from cfnade.data.splits import split

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import prediction
from benchmarks.common import Case, Speed, our_epoch, rival_epoch
from benchmarks.limit import limit
from benchmarks.new_users_panel import FEWEST, GIVEN, MOST, Answers, Panel, gaps, panel
from benchmarks.new_users_report import BEGIN, END, write_section
from benchmarks.new_users_rivals import ItemMeans, discretised
from benchmarks.rivals import dense_step, gather_step
from cfnade.models import CFNADENetwork


@pytest.fixture(scope="module")
def drawn() -> Ratings:
    """In no order, and with people of fewer ratings than are scored."""
    ratings = synthetic(400, 60, 10_000, seed=3).ratings
    return ratings.select(np.random.default_rng(0).permutation(len(ratings)))


@pytest.fixture(scope="module")
def people(drawn: Ratings) -> Panel:
    return panel(split(drawn, f"users:1:{MOST}"), 1)


def test_people_have_no_rating_in_training_and_each_rating_once(
    people: Panel, drawn: Ratings
) -> None:
    persons = people.asked.users[np.searchsorted(people.rows, np.arange(len(people.items)))]
    assert len(persons) == people.rows.max() + 1
    assert not set(persons.tolist()) & set(people.known.users.tolist())
    assert len(persons) < len(set(drawn.users.tolist()) - set(people.known.users.tolist()))
    for place, person in enumerate(persons.tolist()):
        asked = people.asked.select(people.rows == place)
        whole = drawn.select(drawn.users == person)
        assert set(asked.users.tolist()) == {person}
        assert len(whole) >= FEWEST
        given = zip(people.items[place].tolist(), people.levels[place].tolist(), strict=True)
        rest = zip(asked.items.tolist(), asked.levels.tolist(), strict=True)
        truth = zip(whole.items.tolist(), whole.levels.tolist(), strict=True)
        assert sorted([*given, *rest]) == sorted(truth)


def test_the_order_of_giving_is_random_not_that_of_the_file(people: Panel) -> None:
    rises = np.diff(people.items, axis=1) > 0
    assert 0.3 < rises.mean() < 0.7


def test_shrunken_means_agree_with_sums_by_hand(people: Panel) -> None:
    known, asked = people.known, people.asked
    found = ItemMeans(known, 2.0).predict(people, 5, 3.0)
    mean = known.values.mean()

    def offset(item: int) -> float:
        above = known.values[known.items == item] - mean
        return float(above.sum() / (len(above) + 2.0))

    for at in (0, len(asked) // 2, len(asked) - 1):
        row = people.rows[at]
        told = zip(people.items[row, :5], people.values()[row, :5], strict=True)
        own = sum(value - mean - offset(item) for item, value in told) / (5 + 3.0)
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


def test_gaps_are_differences_of_rmse_and_none_to_itself(people: Panel) -> None:
    truth = people.asked.values
    mine = Answers("mine", [truth + 0.5] * len(GIVEN), [], 0, 0, {})
    other = Answers("other", [truth - 0.75] * len(GIVEN), [], 0, 0, {})
    assert [gap["rmse"] for gap in gaps(mine, other, people, 1)] == pytest.approx([-0.25] * 4)
    assert all(gap == {"rmse": 0, "error": 0} for gap in gaps(mine, mine, people, 1))


def test_a_section_is_put_at_the_end_once_and_then_replaced(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Page\n")
    write_section(page, "first\n")
    assert page.read_text() == f"# Page\n\n{BEGIN}\nfirst\n{END}\n"
    page.write_text(page.read_text() + "after\n")
    write_section(page, "second\n")
    assert page.read_text() == f"# Page\n\n{BEGIN}\nsecond\n{END}\nafter\n"


@pytest.mark.parametrize("factors", [None, 3])
def test_an_epoch_can_be_timed_three_ways(factors: int | None) -> None:
    rows = synthetic(60, 40, 900, seed=3).ratings.rows("user")
    case = Case("small", rows, "made up", hidden=(6,), factors=factors, batch=16)
    our_epoch(case, 1)()
    assert rival_epoch(case, dense_step, 1, 1) > 0
    assert rival_epoch(case, gather_step, 1, 1) > 0
    seconds, parts = limit(case, Speed(1e9, 1e9), 1)
    assert seconds == pytest.approx(sum(part["seconds"] for part in parts))


def test_predictions_can_be_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"COLUMNS": 50, "LEVELS": 4, "ROWS": 20, "CELLS": 900, "KNOWN": 9, "REQUESTS": 25}
    for name, value in sizes.items():
        monkeypatch.setattr(prediction, name, value)
    network = CFNADENetwork(columns=50, levels=4, hidden=(6,), factors=3)
    assert prediction.cells_per_second(network, 1) > 0
    assert prediction.latencies(network)["p99_ms"] > 0
