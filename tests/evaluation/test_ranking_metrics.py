"""Metrics of lists are ranx's, and where scores are equal the mean over all orders."""

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


def measured(name: str, scores: Any, liked: Any, wanted: Any, k: int) -> npt.NDArray[np.float64]:
    return METRICS[name](ranked_hits(scores, liked), np.asarray(wanted), k)


# -- ranx ----------------------------------------------------------------------------------------


THEIRS = {
    "ndcg": "ndcg",
    "recall": "recall",
    "precision": "precision",
    "map": "average_precision",
    "mrr": "reciprocal_rank",
    "hit_rate": "hit_rate",
}


CUTS = (1, 3, 10, 60)

ASKED = """
import sys, numpy as np
from ranx import metrics
given, out = np.load(sys.argv[1]), {}
for k in map(int, sys.argv[4:]):
    for name in sys.argv[3].split(","):
        out[f"{name} {k}"] = getattr(metrics, name)(given["truth"], given["run"], k)
np.savez(sys.argv[2], **out)
"""


def theirs(truth: Any, run: Any, folder: Path) -> dict[str, Any]:
    """What ranx says at all cuts. It compiles for half a minute, so it runs as plain Python."""
    np.savez(folder / "given.npz", truth=truth, run=run)
    command = [sys.executable, "-c", ASKED, folder / "given.npz", folder / "out.npz"]
    command += [",".join(THEIRS.values()), *map(str, CUTS)]
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1"}
    subprocess.run([*map(str, command)], check=True, env=environment, timeout=240)
    return dict(np.load(folder / "out.npz"))


def test_without_ties_they_are_those_of_ranx(tmp_path: Path) -> None:
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
    expected = theirs(np.stack(truth, 2), np.stack([ids[:, :L], scores], 2), tmp_path)
    for k, (name, their_name) in product(CUTS, THEIRS.items()):
        ours = measured(name, scores, liked[:, :L], liked.sum(1), k)
        said = expected[f"{their_name} {k}"]
        np.testing.assert_allclose(ours, said, atol=1e-12, err_msg=f"{name}@{k}")


# -- by definition, over all orders of ties ------------------------------------------------------


def by_hand(liked: Liked, wanted: int, k: int) -> dict[str, float]:
    """One list without ties, straight from the textbook."""
    top = liked[:k]
    ranks = [rank for rank, hit in enumerate(top, 1) if hit]
    ideal = sum(1 / math.log2(rank + 1) for rank in range(1, min(wanted, k) + 1))
    return {
        "ndcg": sum(1 / math.log2(rank + 1) for rank in ranks) / ideal,
        "recall": len(ranks) / wanted,
        "capped_recall": len(ranks) / min(wanted, k),
        "precision": len(ranks) / k,
        "map": sum(sum(top[:rank]) / rank for rank in ranks) / wanted,
        "mrr": 1 / ranks[0] if ranks else 0.0,
        "hit_rate": float(bool(ranks)),
    }


def orders(scores: list[int], liked: Liked) -> list[Liked]:
    """The list in every order that its scores allow."""
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
def test_with_ties_they_are_the_mean_over_all_orders(
    items: list[tuple[int, bool]], elsewhere: int, k: int
) -> None:
    items = sorted(items, key=lambda item: -item[0])
    scores, liked = [score for score, _ in items], tuple(hit for _, hit in items)
    wanted = max(1, sum(liked) + elsewhere)
    every = [by_hand(order, wanted, k) for order in orders(scores, liked)]
    for name in METRICS:
        expected = sum(one[name] for one in every) / len(every)
        found = measured(name, [scores], [liked], [wanted], k)
        assert found[0] == pytest.approx(expected, abs=1e-12), name


# -- closed forms --------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 4, 10])
def test_what_is_liked_first_is_perfect(k: int) -> None:
    scores, liked = [np.arange(20.0)[::-1]], [np.arange(20) < 4]
    for name in ("ndcg", "capped_recall", "mrr", "hit_rate"):
        assert measured(name, scores, liked, [4], k)[0] == 1.0, name
    assert measured("recall", scores, liked, [4], k)[0] == min(k, 4) / 4
    assert measured("map", scores, liked, [4], k)[0] == min(k, 4) / 4
    assert measured("precision", scores, liked, [4], k)[0] == min(k, 4) / k


def test_what_is_liked_last_is_found_late() -> None:
    scores, liked = [np.arange(20.0)[::-1]], [np.arange(20) >= 18]
    assert all(measured(name, scores, liked, [2], 18)[0] == 0.0 for name in METRICS)
    assert measured("mrr", scores, liked, [2], 20)[0] == 1 / 19
    assert measured("map", scores, liked, [2], 20)[0] == pytest.approx((1 / 19 + 2 / 20) / 2)


def test_a_list_in_no_order_is_a_draw() -> None:
    """r of g equal items are liked: k places hold r·k/g of them, none with C(g-r, k)/C(g, k)."""
    g, r, k = 1000, 7, 50
    scores, liked = np.zeros((1, g)), (np.arange(g) < r)[None]
    assert measured("recall", scores, liked, [r], k)[0] == pytest.approx(k / g)
    none = math.comb(g - r, k) / math.comb(g, k)
    assert measured("hit_rate", scores, liked, [r], k)[0] == pytest.approx(1 - none)


def test_places_behind_the_end_of_a_list_hold_nothing() -> None:
    short: tuple[Any, Any] = [[3.0, 2.0, math.nan, math.nan]], [[False, True, False, False]]
    alone: tuple[Any, Any] = [[3.0, 2.0]], [[False, True]]
    for name in METRICS:
        for k in (2, 4, 10**12):  # more than there are items
            assert measured(name, *short, [1], k)[0] == measured(name, *alone, [1], k)[0]
    assert measured("precision", *short, [1], 4)[0] == 0.25
    empty: tuple[Any, Any] = np.empty((1, 0)), np.empty((1, 0), bool)
    assert all(measured(name, *empty, [1], 3)[0] == 0.0 for name in METRICS)


# -- lists as they are shown ---------------------------------------------------------------------


def test_novelty_is_how_rare_listed_items_are() -> None:
    lists = np.array([[0, 1], [2, -1], [3, 0], [-1, -1]])
    raters = np.array([8, 4, 1, 0])
    assert novelty(lists, raters, 8).tolist() == [0.5, 3.0, 1.5, 0.0]


def test_coverage_is_the_share_of_items_that_anybody_sees() -> None:
    lists = np.random.default_rng(0).integers(-1, 30, (12, 3))
    lists[:, 0] = np.maximum(lists[:, 0], 20)  # some items are in many lists

    def share(rows: Any) -> float:
        return len(set(rows.ravel().tolist()) - {-1}) / 30

    covered = Coverage(30)
    for start in (5, 0):  # in any order, some at a time
        people = np.arange(start, 12 if start else 5)
        covered.add(people, lists[people])
    found = covered.estimate(12)
    assert found.mean == pytest.approx(share(lists))
    without = np.array([share(np.delete(lists, person, 0)) for person in range(12)])
    jackknife = math.sqrt(11 / 12 * ((without - without.mean()) ** 2).sum())
    assert found.error == pytest.approx(jackknife)


def test_errors_are_those_of_means() -> None:
    found = mean_estimate(np.array([0.0, 1.0, 0.0, 1.0]))
    assert found.mean == 0.5
    assert found.error == pytest.approx(math.sqrt(1 / 3) / 2)
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
def test_lists_that_are_none_are_an_error(scores: Any, liked: Any, message: str) -> None:
    with pytest.raises(PredictionError, match=message):
        ranked_hits(scores, liked)
