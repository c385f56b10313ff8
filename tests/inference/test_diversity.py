"""Varied lists against greedy choice by brute force."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.close import assert_close
from tests.inference.implicit_cases import ITEMS, chances_of, picked_model, rated_model

from cfnade.inference.predictor import Predictor
from cfnade.inference.results import RankedItems
from cfnade.inference.similarity import LONGER, varied


def some_lists(scores: Any, lengths: list[int]) -> RankedItems:
    """Lists of people, best first."""
    rng = np.random.default_rng(0)
    which = np.repeat(np.arange(len(lengths)), lengths)
    items = np.concatenate([np.empty(0, np.int64), *(rng.permutation(40)[:n] for n in lengths)])
    ordered = [np.sort(scores(n))[::-1] for n in lengths]
    values = np.concatenate([np.empty(0), *ordered])
    return RankedItems(which, items.astype(np.int64), values, values, values[:, None], values)


def greedy(items: Any, good: Any, n: int, vectors: Any, share: float) -> list[int]:
    taken: list[int] = []
    low, high = min(good), max(good)
    while len(taken) < min(n, len(items)):
        worth = {}
        for i in range(len(items)):
            if i not in taken:
                relevance = (good[i] - low) / (high - low) if high > low else 1.0
                alike = [float(vectors[items[i]] @ vectors[items[j]]) for j in taken]
                worth[i] = (1 - share) * relevance - share * max([0.0, *alike])
        taken.append(max(worth, key=lambda i: (worth[i], -i)))
    return taken


@pytest.mark.parametrize("share", [0.05, 0.3, 0.7, 1.0])
@pytest.mark.parametrize("chances", [True, False])
def test_items_are_taken_one_by_one(share: float, chances: bool) -> None:
    rng = np.random.default_rng(1)
    vectors = rng.standard_normal((40, 3)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    low = 0.001 if chances else -3.0
    top = some_lists(lambda n: rng.uniform(low, 1, n), [20, 3, 12])
    found = varied(top, 5, vectors, share, chances=chances)
    assert found.which.tolist() == [0] * 5 + [1] * 3 + [2] * 5
    for person in range(3):
        mine = np.flatnonzero(top.which == person)
        good = np.log(top.scores[mine]) if chances else top.scores[mine]
        places = mine[greedy(top.items[mine], good, 5, vectors, share)]
        assert found.items[found.which == person].tolist() == top.items[places].tolist()
        np.testing.assert_array_equal(found.scores[found.which == person], top.scores[places])


def test_lists_of_nobody_and_empty_lists_stay_so() -> None:
    vectors = np.eye(40, dtype=np.float32)
    nobody = some_lists(np.ones, [])
    assert len(varied(nobody, 5, vectors, 0.5, chances=True).items) == 0
    gaps = some_lists(np.ones, [0, 4, 0])
    assert varied(gaps, 2, vectors, 0.5, chances=True).which.tolist() == [1, 1]


def alikeness(predictor: Predictor, items: Any) -> float:
    assert predictor.fitted.interaction_model is not None
    vectors = predictor.fitted.interaction_model.item_vectors()
    assert vectors is not None
    alike = vectors[items] @ vectors[items].T
    return float((alike.sum() - len(items)) / (len(items) * (len(items) - 1)))


@pytest.mark.parametrize(
    "how", [{}, {"rank_by": "prediction"}, {"rank_by": "threshold", "threshold": 4}]
)
def test_recommended_items_are_less_alike_and_come_from_a_longer_list(how: dict[str, Any]) -> None:
    predictor = Predictor(rated_model())
    plain, other = (
        predictor.recommend([3, 4], n=6, diversity=share, min_ratings=0, **how)
        for share in (0.0, 0.8)
    )
    longer = predictor.recommend([3, 4], n=6 * LONGER, min_ratings=0, **how)
    for user in (3, 4):
        lists = [one.filter(one["user"] == user) for one in (plain, other, longer)]
        items = [one["item"].to_numpy() - 1 for one in lists]
        assert items[0][0] == items[1][0]
        assert set(items[1]) <= set(items[2])
        assert alikeness(predictor, items[1]) < alikeness(predictor, items[0])
        scores = dict(zip(items[2].tolist(), lists[2]["score"].to_list(), strict=True))
        assert lists[1]["score"].to_list() == pytest.approx([scores[i] for i in items[1].tolist()])


def test_no_diversity_is_the_plain_list() -> None:
    predictor = Predictor(picked_model())
    frame = predictor.recommend([2], n=5, diversity=0.0)
    assert_close(frame, predictor.recommend([2], n=5))
    chances = chances_of(predictor.fitted, 1, left_out=True)
    assert frame["score"][0] == pytest.approx(chances.max(), rel=1e-4)
    assert len(chances) == ITEMS
