"""Queries of new users leak nothing and are nested; baselines agree with sums by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cfnade import synthetic
from cfnade.data.dataset import Dataset
from cfnade.data.splits import split
from experiments.new_users.__main__ import cached, recipes_for
from experiments.new_users.baselines import MEANS, ItemMeans, discretize
from experiments.new_users.panel import (
    ALL,
    FEW,
    HISTORY_SIZES,
    MANY,
    MIN_RATINGS,
    MIN_RATINGS_MANY,
    MOST,
    Panel,
    Predictions,
    Queries,
    Seconds,
    gaps,
    make_panel,
)
from experiments.new_users.report import BEGIN, END, section, write_section


@pytest.fixture(scope="module")
def ratings() -> Dataset:
    """Ratings in random order; some users have too few to be scored."""
    ordered = synthetic(400, 120, 16_000, seed=3).ratings
    return ordered.select(np.random.default_rng(0).permutation(len(ordered)))


@pytest.fixture(scope="module")
def panel(ratings: Dataset) -> Panel:
    return make_panel(split(ratings, f"users:1:{MOST}"), 1)


Pairs = list[tuple[int, int]]


def by_user(queries: Queries) -> dict[int, tuple[Pairs, Pairs]]:
    """Return for each user the history, in order, and the targets, as pairs of item and level."""
    targets = queries.targets
    target_pairs = list(zip(targets.items.tolist(), targets.levels.tolist(), strict=True))
    history_pairs = list(zip(queries.items.tolist(), queries.levels.tolist(), strict=True))
    out = {}
    for row in range(queries.n_users):
        places = np.flatnonzero(queries.rows == row)
        (user,) = set(targets.users[places].tolist())
        history = history_pairs[queries.offsets[row] : queries.offsets[row + 1]]
        out[user] = (history, [target_pairs[place] for place in places])
    return out


def by_size(panel: Panel) -> dict[str, dict[int, tuple[Pairs, Pairs]]]:
    return {queries.size: by_user(queries) for queries in panel.queries}


@pytest.mark.parametrize("size", HISTORY_SIZES)
def test_users_have_no_rating_in_training_and_each_rating_once(
    panel: Panel, ratings: Dataset, size: str
) -> None:
    trained = set(panel.train.users.tolist())
    for user, (history, targets) in by_size(panel)[size].items():
        rated = ratings.select(ratings.users == user)
        truth = list(zip(rated.items.tolist(), rated.levels.tolist(), strict=True))
        assert user not in trained
        assert len(truth) >= (MIN_RATINGS_MANY if size == str(MANY) else MIN_RATINGS)
        assert len(targets) > 0
        assert not {item for item, _ in history} & {item for item, _ in targets}
        both = [*history, *targets]
        assert len(set(both)) == len(both)
        assert set(both) <= set(truth)
        if size in ("20", "50", "all"):
            assert sorted(both) == sorted(truth)


def test_all_users_with_enough_ratings_are_scored(panel: Panel, ratings: Dataset) -> None:
    counts = np.bincount(ratings.users)
    held_out = set(ratings.users.tolist()) - set(panel.train.users.tolist())
    users = by_size(panel)
    assert [queries.size for queries in panel.queries] == list(HISTORY_SIZES)
    for size in HISTORY_SIZES:
        least = MIN_RATINGS_MANY if size == str(MANY) else MIN_RATINGS
        assert set(users[size]) == {user for user in held_out if counts[user] >= least}
    assert 0 < len(users[str(MANY)]) < len(users["0"]) < len(held_out)


def test_histories_grow_and_targets_stay(panel: Panel) -> None:
    users = by_size(panel)
    for user, (longest, targets) in users[str(MOST)].items():
        for size in FEW:
            assert users[str(size)][user] == (longest[:size], targets)
        for longer in (users[str(MANY)], users[ALL]):
            if user in longer:
                history, fewer_targets = longer[user]
                assert history[:MOST] == longest
                assert set(fewer_targets) < set(targets)
    assert all(len(history) == MANY for history, _ in users[str(MANY)].values())
    for history, targets in users[ALL].values():
        assert len(targets) == (len(history) + len(targets)) // 10


def test_the_seed_determines_the_panel(panel: Panel, ratings: Dataset) -> None:
    assert by_size(make_panel(split(ratings, f"users:1:{MOST}"), 1)) == by_size(panel)
    other = make_panel(split(ratings, f"users:2:{MOST}"), 2)
    assert by_size(other)["0"].keys() != by_size(panel)["0"].keys()


def test_histories_are_in_random_order(panel: Panel) -> None:
    for queries in panel.queries[-3:]:
        rises = np.diff(queries.items) > 0
        assert 0.3 < rises.mean() < 0.7


def test_by_user_yields_histories_and_targets(panel: Panel) -> None:
    for queries in panel.queries:
        places = list(queries.by_user())
        assert len(places) == queries.n_users
        for row, (history, targets) in enumerate(places):
            history_places = np.flatnonzero(queries.history_rows() == row)
            assert history_places.tolist() == list(range(history.start, history.stop))
            target_places = np.flatnonzero(queries.rows == row)
            assert target_places.tolist() == list(range(targets.start, targets.stop))


@pytest.mark.parametrize("size", ["0", "5", "all"])
def test_shrunken_means_agree_with_sums_by_hand(panel: Panel, size: str) -> None:
    train, queries = panel.train, panel.queries[HISTORY_SIZES.index(size)]
    predicted = ItemMeans(train, 2.0).predict(queries, 3.0)
    mean, targets = train.values.mean(), queries.targets
    values = train.scale.array()

    def offset(item: int) -> float:
        residuals = train.values[train.items == item] - mean
        return float(residuals.sum() / (len(residuals) + 2.0))

    users = by_user(queries)
    for place in (0, len(targets) // 2, len(targets) - 1):
        history = users[int(targets.users[place])][0]
        residuals = [values[level] - mean - offset(item) for item, level in history]
        user = sum(residuals) / (len(history) + 3.0)
        expected = np.clip(mean + offset(int(targets.items[place])) + user, 1, 5)
        assert predicted[place] == pytest.approx(expected)


def test_a_discretized_gaussian_has_the_frequencies_of_rounded_samples() -> None:
    values = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    means = np.array([1.2, 3.4])
    p = discretize(means, 0.9, values)
    assert p.sum(1) == pytest.approx(1.0)
    samples = means[:, None] + 0.9 * np.random.default_rng(0).standard_normal((2, 200_000))
    nearest = np.abs(samples[:, :, None] - values).argmin(2)
    frequencies = np.stack([np.bincount(row, minlength=5) / 200_000 for row in nearest])
    assert np.abs(p - frequencies).max() < 0.005


def constant_error(panel: Panel, name: str, error: float) -> Predictions:
    means = [queries.targets.values + error for queries in panel.queries]
    return Predictions(name, means, [], Seconds(0, 0), Seconds(0, 0), {})


def test_gaps_are_differences_of_rmse(panel: Panel) -> None:
    first, second = constant_error(panel, "a", 0.5), constant_error(panel, "b", -0.75)
    differences = [gap["rmse"] for gap in gaps(first, second, panel, 1)]
    assert differences == pytest.approx([-0.25] * len(HISTORY_SIZES))
    assert all(gap == {"rmse": 0, "error": 0} for gap in gaps(first, first, panel, 1))


def method(name: str, rmse: float, nll: float) -> dict[str, Any]:
    n = len(HISTORY_SIZES)
    figures = {"rmse": [rmse] * n, "nll": [nll] * n, "fit_cpu_s": 1.0, "user_cpu_ms": 1.0}
    return {"method": name, **figures}


def run(seed: int, *methods: dict[str, Any]) -> dict[str, Any]:
    machine = {"cpu": "a", "threads": 1, "commit": "c"}
    n = len(HISTORY_SIZES)
    sizes = {"split": f"users:{seed}:20", "people": [25] * n, "asked": [500] * n}
    return sizes | {"methods": list(methods), "machine": machine, "rivals_machine": machine}


def test_figures_are_means_over_seeds_with_their_deviation() -> None:
    runs = [
        run(3, method(MEANS, 0.92, 1.2), method("cfnade", 0.85, 1.1)),
        run(5, method(MEANS, 0.92, 1.3), method("cfnade", 0.91, 1.1)),
    ]
    text = section({"data": "ml-1m", "given": HISTORY_SIZES, "runs": runs})
    assert "| cfnade | **0.8800** ± 0.0424 |" in text
    assert f"| {MEANS} | 0.9200 ± 0.0000 |" in text
    assert f"| {MEANS} | 1.2500 ± 0.0707 |" in text


def test_a_data_set_has_a_recipe_or_the_default_one() -> None:
    assert [recipe.name for recipe in recipes_for("ml-1m", [])] == ["ml-1m-user"]
    (default,) = recipes_for("ml-100k", [])
    assert (default.name, default.side) == ("default", "user")
    named = recipes_for("ml-1m", ["ml-1m-user", "ml-1m-both"])
    assert [recipe.name for recipe in named] == ["ml-1m-user", "ml-1m-both"]
    with pytest.raises(SystemExit, match="item-based"):
        recipes_for("ml-1m", ["ml-1m-item"])


def test_cached_values_are_computed_once(tmp_path: Path) -> None:
    values = iter([1, 2, 3])
    names = ("a", "a", "b", "a")
    assert [cached(tmp_path / "new", name, lambda: next(values)) for name in names] == [1, 1, 2, 1]


def test_a_section_is_appended_once_and_then_replaced(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Page\n")
    write_section(page, "first\n")
    assert page.read_text() == f"# Page\n\n{BEGIN}\nfirst\n{END}\n"
    page.write_text(page.read_text() + "after\n")
    write_section(page, "second\n")
    assert page.read_text() == f"# Page\n\n{BEGIN}\nsecond\n{END}\nafter\n"
