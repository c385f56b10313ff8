"""Hold-outs and the coordinate search."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from tests.implicit.cases import some_rows

from cfnade.implicit.base import DataShape, Options, SearchSpace, component_class
from cfnade.implicit.holdout import hold_outs
from cfnade.implicit.search import ComponentSearch, climb
from cfnade.implicit.validation import RankingMetric


def pairs(rows: Any) -> set[tuple[int, int]]:
    return set(zip(rows.rows.tolist(), rows.columns.tolist(), strict=True))


@pytest.mark.parametrize("users", [40, 2000])
def test_a_hold_out_hides_a_fifth_of_each_user_with_five(users: int) -> None:
    rows = some_rows(users)
    found = hold_outs(rows, seed=0)
    assert len(found) == (3 if users == 40 else 2)
    for one in found:
        assert pairs(one.rows) | pairs(one.answers) == pairs(rows)
        assert not pairs(one.rows) & pairs(one.answers)
        expected = np.where(rows.counts >= 5, np.maximum(1, np.rint(0.2 * rows.counts)), 0)
        np.testing.assert_array_equal(one.answers.counts, expected)
    assert pairs(found[0].answers) != pairs(found[1].answers)
    again = hold_outs(rows, seed=0)[0]
    np.testing.assert_array_equal(again.answers.columns, found[0].answers.columns)


def test_the_latest_interactions_are_hidden_where_times_are_given() -> None:
    rows = some_rows()
    times = np.random.default_rng(0).permutation(len(rows.columns))
    (one,) = hold_outs(rows, seed=0, times=times)
    keys = zip(rows.rows.tolist(), rows.columns.tolist(), strict=True)
    when = dict(zip(keys, times.tolist(), strict=True))
    for user in range(len(rows)):
        hidden = [when[p] for p in pairs(one.answers) if p[0] == user]
        kept = [when[p] for p in pairs(one.rows) if p[0] == user]
        assert not hidden or min(hidden) > max(kept)


def test_without_a_user_of_two_interactions_there_is_no_hold_out() -> None:
    rows = some_rows()
    first = rows.where(np.isin(np.arange(len(rows.columns)), rows.indptr[:-1]))
    assert hold_outs(first, seed=0) == []
    two = rows.where(np.isin(np.arange(len(rows.columns)) - rows.indptr[rows.rows], (0, 1)))
    assert hold_outs(two, seed=0)[0].answers.counts.max() == 1


def test_rare_items_are_left_out_of_large_catalogs_only(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = some_rows(300)
    one = hold_outs(rows, seed=0)[0]
    assert one.of_frequent_items() is one
    monkeypatch.setattr("cfnade.implicit.holdout.LARGE_CATALOG", 3)
    monkeypatch.setattr("cfnade.implicit.holdout.RARE_SHARE", 0.3)
    cut = one.of_frequent_items()
    counts = one.rows.item_counts()
    kept = np.isin(np.sort(cut.rows.item_counts()), counts)
    assert kept.all()
    assert cut.rows.n_columns < rows.n_columns
    assert cut.rows.item_counts().min() >= np.sort(counts)[-cut.rows.n_columns]
    assert 0.6 <= len(cut.answers.columns) / len(one.answers.columns) <= 0.95


AXES = {"a": list(range(9)), "b": list(range(7))}


def peak(options: dict[str, int]) -> float:
    return -abs(options["a"] - 7) - abs(options["b"] - 1) - 0.1 * (options["a"] == 5)


def test_a_climb_finds_the_peak_and_tries_nothing_twice() -> None:
    tried: list[tuple[int, int]] = []

    def value(options: dict[str, int]) -> float:
        tried.append((options["a"], options["b"]))
        return peak(options)

    climb(AXES, {"a": 3, "b": 3}, value, lambda _: True)
    assert max(tried, key=lambda one: peak({"a": one[0], "b": one[1]})) == (7, 1)
    assert len(set(tried)) == len(tried) < 20


def test_more_fits_try_the_same_first() -> None:
    runs = []
    for most in (1, 4, 9, 50):
        tried: list[float] = []
        climb(
            AXES,
            {"a": 3, "b": 3},
            lambda o, tried=tried: tried.append(peak(o)) or peak(o),  # type: ignore[misc]
            lambda _, tried=tried, most=most: len(tried) < most,  # type: ignore[misc]
        )
        assert len(tried) <= most
        runs.append(tried)
    for fewer, more in pairwise(runs):
        assert more[: len(fewer)] == fewer


def ease_search() -> ComponentSearch:
    rows = some_rows(200, columns=30, weighted=True)
    space = SearchSpace(
        {"penalty": (1.0, 10.0, 100.0), "item_power": (0.0, 0.5), "user_power": (0.0, 0.5)},
        {"penalty": 10.0, "item_power": 0.0, "user_power": 0.0},
        8,
    )
    shape = DataShape.of(rows)
    holdouts, metric = hold_outs(rows, seed=0), RankingMetric(k=5)
    return ComponentSearch(component_class("ease"), space, holdouts, 0, metric, shape)


def test_a_component_search_keeps_its_best_trial() -> None:
    search = ease_search()
    search.run(1e9)
    assert 3 < len(search.trials) <= 8
    assert search.best().value == max(trial.value for trial in search.trials)
    weightings = {trial.options["weighting"] for trial in search.trials[:3]}
    assert weightings == {"binary", "log", "linear"}
    assert len({trial.options["weighting"] for trial in search.trials[3:]}) == 1
    assert all(trial.variant in (0.0, 0.25, 0.5, 0.75, 1.0) for trial in search.trials)


def test_a_search_stays_within_its_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every fit is said to take a second, but with an item power ten."""

    def seconds(_: DataShape, options: Options) -> float:
        return 10.0 if options["item_power"] else 1.0

    monkeypatch.setattr(component_class("ease"), "seconds", seconds)
    full = ease_search()
    full.run(1e9)
    spent = []
    holdouts = len(full.holdouts)
    for budget in (0, 6, 12, 25, 60, 200):
        search = ease_search()
        search.run(budget)
        costs = [seconds(full.shape, trial.options) for trial in search.trials]
        spent.append(sum(costs) * holdouts + (1 + holdouts) * max(costs))
        assert len(costs) == 1 or spent[-1] <= budget
        assert search.trials == full.trials[: len(costs)]
        assert search.best() == full.best(budget)
    assert spent == sorted(spent)
    assert spent[0] < spent[-1]
