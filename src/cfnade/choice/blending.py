"""The weight of each component of an implicit model, chosen on held-out interactions.

A coordinate search over weights >= 0 starts at the best single component and accepts only what
improves NDCG@100 on validation, so the blend is never below its best component there. Then one
temperature for the weighted sum is chosen by likelihood, so that probabilities are honest.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from cfnade.choice.choice_side import ChoiceSide, ScoreArray
from cfnade.choice.picks import Picks
from cfnade.evaluation.ranking_metrics import ndcg, ranked_hits
from cfnade.kernels.likeliest import log_softmax

FloatArray = npt.NDArray[np.float64]

PLACES = 100
GRID = (0.0, 0.05, 0.075, 0.1, 0.125, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.7, 1.0, 1.4, 2.0, 3.0)
"""Weights that are tried, where a component's scores are divided by their standard deviation."""

ADDED = 2.0
"""A component is added for a gain of so many standard errors: each costs time and memory."""

ROUNDS = 3
"""Passes over the components at most; the search ends with one that changes nothing."""

USUAL = {"linear": 0.35, "posterior": 0.35}
"""Without validation: weights in units of the first component's standard deviation."""

SHARPNESS = np.geomspace(0.1, 30.0, 12)
"""Temperatures tried first, for a weighted sum of standard deviation 1."""

_FINER = 11  # values tried between the neighbors of the best one


class AskedPeople(NamedTuple):
    """People of the validation part: what is known of them, and what they picked then."""

    known: Picks
    answers: Picks


def mean_ndcg(scores: ScoreArray, asked: AskedPeople, k: int = PLACES) -> float:
    """Return the mean of `each_ndcg`. scores (B, M) are overwritten."""
    return float(each_ndcg(scores, asked, k).mean())


def each_ndcg(scores: ScoreArray, asked: AskedPeople, k: int = PLACES) -> FloatArray:
    """Return NDCG@k among unknown items of each person with held-out interactions.

    scores (B, M) are overwritten.
    """
    k = min(k, scores.shape[1])
    scores[asked.known.rows, asked.known.columns] = -np.inf
    values, items = torch.topk(torch.from_numpy(scores), k)
    right = np.zeros(scores.shape, bool)
    right[asked.answers.rows, asked.answers.columns] = True
    liked = np.take_along_axis(right, items.numpy(), 1)
    counts = np.maximum(asked.answers.counts, 1)
    hits = ranked_hits(np.nan_to_num(values.numpy(), neginf=-1e30), liked)
    return ndcg(hits, counts, k)[asked.answers.counts > 0]


def blended(
    sides: Mapping[str, ChoiceSide], asked: AskedPeople | None, anybody: Picks
) -> tuple[dict[str, float], Any]:
    """Return the weights of components, and NDCG of each alone and together.

    Without held-out interactions, the scores of `anybody` say how much components vary.
    """
    picks = anybody if asked is None else asked.known
    scores = {name: side.scores(picks) for name, side in sides.items()}
    units = {name: float(one.std()) or 1.0 for name, one in scores.items()}
    if asked is None or not len(asked.answers.columns):
        first = next(iter(sides))
        usual = {name: USUAL.get(name, 1.0) for name in sides} | {first: 1.0}
        return {name: usual[name] * units[first] / units[name] for name in sides}, {}
    search = _Search(scores, units, asked)
    weights = search.weights()
    total = _sum(weights, scores, units)
    spread = float(total.std()) or 1.0
    total /= np.float32(spread)
    sharpness = _sharpness(total, asked) / spread
    alone = {name: float(each.mean()) for name, each in search.alone.items()}
    ndcgs = {
        "ndcg": round(float(search.best.mean()), 5),
        "alone": {name: round(value, 5) for name, value in alone.items()},
    }
    return {name: sharpness * weight / units[name] for name, weight in weights.items()}, ndcgs


class _Search:
    """Coordinate search over weights of standardized scores."""

    def __init__(
        self, scores: Mapping[str, ScoreArray], units: Mapping[str, float], asked: AskedPeople
    ) -> None:
        self._scores, self._units, self._asked = scores, units, asked
        self.alone = {name: each_ndcg(one.copy(), asked) for name, one in scores.items()}
        """NDCG of each person by each component alone."""
        start = max(self.alone, key=lambda name: float(self.alone[name].mean()))
        self.best = self.alone[start]
        """NDCG of each person by the best weights so far."""
        self._weights = dict.fromkeys(scores, 0.0) | {start: 1.0}

    def weights(self) -> dict[str, float]:
        """Return the best weights that the search finds."""
        for _ in range(ROUNDS):  # each choice depends on the others
            before = dict(self._weights)
            for name in self._scores:
                self._choose(name)
            if self._weights == before:
                break
        return self._weights

    def _choose(self, name: str) -> None:
        """Set one weight to the best of the grid."""
        if not any(weight for other, weight in self._weights.items() if other != name):
            return  # the order of a single component's scores is that of any multiple
        added = self._weights[name] == 0
        base = self.best
        for weight in GRID:
            tried = self._weights | {name: weight}
            each = each_ndcg(_sum(tried, self._scores, self._units), self._asked)
            if each.mean() <= self.best.mean():
                continue
            if added and not _certain(each - base):
                continue
            self.best, self._weights = each, tried


def _certain(gains: FloatArray) -> bool:
    """Whether the mean of people's gains is above 0 by ADDED standard errors."""
    return bool(gains.mean() > ADDED * gains.std() / np.sqrt(len(gains)))


def kept(sides: Mapping[str, ChoiceSide], weights: Mapping[str, float]) -> dict[str, ChoiceSide]:
    """Return the components that a model needs: those that count, and item vectors.

    Where no component that counts has vectors of items, one of weight 0 stays for similarity.
    """
    needed = {name for name in sides if weights[name] != 0}
    if all(sides[name].vectors() is None for name in needed):
        needed |= {*islice((name for name in sides if sides[name].vectors() is not None), 1)}
    return {name: side for name, side in sides.items() if name in needed}


def _sum(
    weights: Mapping[str, float], scores: Mapping[str, ScoreArray], units: Mapping[str, float]
) -> ScoreArray:
    """Return the weighted sum of standardized scores, without those of weight 0. (B, M)."""
    parts = [
        np.float32(weights[name] / units[name]) * one
        for name, one in scores.items()
        if weights[name] != 0
    ]
    return np.asarray(sum(parts[1:], parts[0]))


def _sharpness(scores: ScoreArray, asked: AskedPeople) -> float:
    """Return the factor under which held-out interactions are most likely.

    The likelihood has one maximum, so it lies between the neighbors of the best of a grid.
    """
    known, answers = asked
    base = scores.copy()
    base[known.rows, known.columns] = -1e30

    def likelihood(factor: float) -> float:
        logs = log_softmax(np.float32(factor) * base)
        return float(logs[answers.rows, answers.columns].mean(dtype=np.float64))

    values = [likelihood(factor) for factor in SHARPNESS]
    best = int(np.argmax(values))
    last = len(SHARPNESS) - 1
    low, high = SHARPNESS[max(best - 1, 0)], SHARPNESS[min(best + 1, last)]
    finer = np.geomspace(low, high, _FINER + 2)
    return float(max(finer, key=likelihood))
