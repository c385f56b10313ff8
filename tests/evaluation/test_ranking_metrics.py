"""Ranking metrics equal those of ranx; with ties they are means over all orders."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from importlib.util import find_spec
from itertools import pairwise, permutations, product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfnade.evaluation.ranking_metrics import METRICS, Coverage, mean_estimate, novelty, ranked_hits
from cfnade.exceptions import PredictionError

Liked = tuple[bool, ...]


def measured(
    name: str, scores: Any, liked: Any, n_relevant: Any, k: int
) -> npt.NDArray[np.float64]:
    return METRICS[name](ranked_hits(scores, liked), np.asarray(n_relevant), k)


# -- ranx ----------------------------------------------------------------------------------------


RANX_NAMES = {
    "ndcg": "ndcg",
    "recall": "recall",
    "precision": "precision",
    "map": "average_precision",
    "mrr": "reciprocal_rank",
    "hit_rate": "hit_rate",
}


CUTS = (1, 3, 10, 60)

RANX_SCRIPT = """
import sys, numpy as np
from ranx import metrics
given, out = np.load(sys.argv[1]), {}
for k in map(int, sys.argv[4:]):
    for name in sys.argv[3].split(","):
        out[f"{name} {k}"] = getattr(metrics, name)(given["truth"], given["run"], k)
np.savez(sys.argv[2], **out)
"""


def ranx_metrics(truth: Any, run: Any, folder: Path) -> dict[str, Any]:
    """Metrics of ranx at all cuts. It compiles for half a minute, so it runs without Numba."""
    np.savez(folder / "given.npz", truth=truth, run=run)
    command = [sys.executable, "-c", RANX_SCRIPT, folder / "given.npz", folder / "out.npz"]
    command += [",".join(RANX_NAMES.values()), *map(str, CUTS)]
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1"}
    subprocess.run([*map(str, command)], check=True, env=environment, timeout=240)
    return dict(np.load(folder / "out.npz"))


def test_metrics_without_ties_equal_those_of_ranx(tmp_path: Path) -> None:
    if find_spec("ranx") is None:
        pytest.skip("ranx is not installed (cfnade[dev])")
    rng = np.random.default_rng(1)
    n, L, outside = 200, 50, 3
    scores = -np.sort(-rng.random((n, L)), 1)
    liked = rng.random((n, L + outside)) < rng.choice([0.02, 0.1, 0.5], (n, 1))
    liked[:, -1] |= ~liked.any(1)  # the last ones are in no list
    ids = np.array([rng.permutation(L + outside) for _ in range(n)], float)
    best_first = np.argsort(~liked, 1, kind="stable")
    truth = [np.take_along_axis(of, best_first, 1) for of in (ids, liked.astype(float))]
    expected = ranx_metrics(np.stack(truth, 2), np.stack([ids[:, :L], scores], 2), tmp_path)
    for k, (name, their_name) in product(CUTS, RANX_NAMES.items()):
        ours = measured(name, scores, liked[:, :L], liked.sum(1), k)
        predicted = expected[f"{their_name} {k}"]
        np.testing.assert_allclose(ours, predicted, atol=1e-12, err_msg=f"{name}@{k}")


# -- by definition, over all orders of ties ------------------------------------------------------


def by_hand(liked: Liked, n_relevant: int, k: int) -> dict[str, float]:
    """Metrics of one list without ties, by definition."""
    top = liked[:k]
    ranks = [rank for rank, hit in enumerate(top, 1) if hit]
    ideal = sum(1 / math.log2(rank + 1) for rank in range(1, min(n_relevant, k) + 1))
    return {
        "ndcg": sum(1 / math.log2(rank + 1) for rank in ranks) / ideal,
        "recall": len(ranks) / n_relevant,
        "capped_recall": len(ranks) / min(n_relevant, k),
        "precision": len(ranks) / k,
        "map": sum(sum(top[:rank]) / rank for rank in ranks) / n_relevant,
        "mrr": 1 / ranks[0] if ranks else 0.0,
        "hit_rate": float(bool(ranks)),
    }


def orders(scores: list[int], liked: Liked) -> list[Liked]:
    """Return the list in every order that its scores allow."""
    places = range(len(scores))
    return [
        tuple(liked[i] for i in order)
        for order in permutations(places)
        if all(scores[a] >= scores[b] for a, b in pairwise(order))
    ]


@settings(max_examples=150)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.booleans()), min_size=1, max_size=6),
    st.integers(0, 2),
    st.integers(1, 8),
)
def test_metrics_with_ties_are_means_over_all_orders(
    items: list[tuple[int, bool]], elsewhere: int, k: int
) -> None:
    items = sorted(items, key=lambda item: -item[0])
    scores, liked = [score for score, _ in items], tuple(hit for _, hit in items)
    n_relevant = max(1, sum(liked) + elsewhere)
    every = [by_hand(order, n_relevant, k) for order in orders(scores, liked)]
    for name in METRICS:
        expected = sum(one[name] for one in every) / len(every)
        result = measured(name, [scores], [liked], [n_relevant], k)
        assert result[0] == pytest.approx(expected, abs=1e-12), name


# -- closed forms --------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 4, 10])
def test_relevant_items_first_score_best(k: int) -> None:
    scores, liked = [np.arange(20.0)[::-1]], [np.arange(20) < 4]
    for name in ("ndcg", "capped_recall", "mrr", "hit_rate"):
        assert measured(name, scores, liked, [4], k)[0] == 1.0, name
    assert measured("recall", scores, liked, [4], k)[0] == min(k, 4) / 4
    assert measured("map", scores, liked, [4], k)[0] == min(k, 4) / 4
    assert measured("precision", scores, liked, [4], k)[0] == min(k, 4) / k


def test_relevant_items_last_score_worst() -> None:
    scores, liked = [np.arange(20.0)[::-1]], [np.arange(20) >= 18]
    assert all(measured(name, scores, liked, [2], 18)[0] == 0.0 for name in METRICS)
    assert measured("mrr", scores, liked, [2], 20)[0] == 1 / 19
    assert measured("map", scores, liked, [2], 20)[0] == pytest.approx((1 / 19 + 2 / 20) / 2)


def test_a_list_of_equal_scores_is_averaged() -> None:
    """Of g tied items r are relevant: k ranks hold r·k/g, or none: C(g-r, k)/C(g, k)."""
    g, r, k = 1000, 7, 50
    scores, liked = np.zeros((1, g)), (np.arange(g) < r)[None]
    assert measured("recall", scores, liked, [r], k)[0] == pytest.approx(k / g)
    none = math.comb(g - r, k) / math.comb(g, k)
    assert measured("hit_rate", scores, liked, [r], k)[0] == pytest.approx(1 - none)


def test_ranks_behind_the_end_of_a_list_have_no_hits() -> None:
    short: tuple[Any, Any] = [[3.0, 2.0, math.nan, math.nan]], [[False, True, False, False]]
    alone: tuple[Any, Any] = [[3.0, 2.0]], [[False, True]]
    for name in METRICS:
        for k in (2, 4, 10**12):  # more than there are items
            assert measured(name, *short, [1], k)[0] == measured(name, *alone, [1], k)[0]
    assert measured("precision", *short, [1], 4)[0] == 0.25
    empty: tuple[Any, Any] = np.empty((1, 0)), np.empty((1, 0), bool)
    assert all(measured(name, *empty, [1], 3)[0] == 0.0 for name in METRICS)


# -- lists as they are shown ---------------------------------------------------------------------


def test_novelty_is_the_mean_rarity_of_listed_items() -> None:
    lists = np.array([[0, 1], [2, -1], [3, 0], [-1, -1]])
    raters = np.array([8, 4, 1, 0])
    assert novelty(lists, raters, 8).tolist() == [0.5, 3.0, 1.5, 0.0]


def test_coverage_is_the_share_of_listed_items() -> None:
    lists = np.random.default_rng(0).integers(-1, 30, (12, 3))
    lists[:, 0] = np.maximum(lists[:, 0], 20)  # some items are in many lists

    def share(rows: Any) -> float:
        return len(set(rows.ravel().tolist()) - {-1}) / 30

    covered = Coverage(30)
    for start in (5, 0):  # in any order, some at a time
        people = np.arange(start, 12 if start else 5)
        covered.add(people, lists[people])
    result = covered.estimate(12)
    assert result.mean == pytest.approx(share(lists))
    without = np.array([share(np.delete(lists, person, 0)) for person in range(12)])
    jackknife = math.sqrt(11 / 12 * ((without - without.mean()) ** 2).sum())
    assert result.error == pytest.approx(jackknife)


def test_standard_errors_of_means() -> None:
    result = mean_estimate(np.array([0.0, 1.0, 0.0, 1.0]))
    assert result.mean == 0.5
    assert result.error == pytest.approx(math.sqrt(1 / 3) / 2)
    assert mean_estimate(np.array([0.25])).error is None
    assert Coverage(3).estimate(1).error is None


# -- wrong input ---------------------------------------------------------------------------------

WRONG: list[tuple[Any, Any, str]] = [
    ([1.0], [True], r"scores have shape \(1,\)"),
    ([[1.0]], [[1]], "dtype int64"),
    ([[1.0, 2.0]], [[True, False]], r"scores\[0, 1\] \(=2\) increase"),
    ([[1.0], [math.nan]], [[True], [True]], r"scores\[1, 0\] \(=nan\)"),
    ([[math.nan, 1.0]], [[False, True]], r"scores\[0, 1\] \(=1\)"),
]


@pytest.mark.parametrize(("scores", "liked", "message"), WRONG)
def test_invalid_lists_are_errors(scores: Any, liked: Any, message: str) -> None:
    with pytest.raises(PredictionError, match=message):
        ranked_hits(scores, liked)
