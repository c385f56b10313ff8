"""What each side of a choice counts, by people whose next picks are known.

Side by side a weight is chosen that makes lists best (NDCG of the first 100 places), then one
number that all weights are multiplied by, so that chances are honest (likelihood of the picks).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch

from cfnade.choice.choice_side import ChoiceSide, ScoreArray
from cfnade.choice.picks import Picks
from cfnade.kernels.likeliest import log_softmax
from cfnade.ranking_metrics import ndcg, places

PLACES = 100
GRID = (0.0, 0.05, 0.075, 0.1, 0.125, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.7, 1.0, 1.4, 2.0, 3.0)
"""Weights that are tried, where 1 makes a side's scores vary as much as the first one's."""

USUAL = {"linear": 0.35, "posterior": 0.35}
"""Without validation, in the same units."""
SHARPNESS = np.exp(np.linspace(np.log(0.3), np.log(3.0), 25))


class AskedPeople(NamedTuple):
    """People of the validation part: what is known of them, and what they picked then."""

    known: Picks
    answers: Picks


def mean_ndcg(scores: ScoreArray, asked: AskedPeople, k: int = PLACES) -> float:
    """NDCG of the first k places of what is not known, over people. scores (B, M) are used up."""
    k = min(k, scores.shape[1])
    scores[asked.known.rows, asked.known.columns] = -np.inf
    values, items = torch.topk(torch.from_numpy(scores), k)
    right = np.zeros(scores.shape, bool)
    right[asked.answers.rows, asked.answers.columns] = True
    liked = np.take_along_axis(right, items.numpy(), 1)
    counts = np.maximum(asked.answers.counts, 1)
    ranks = places(np.nan_to_num(values.numpy(), neginf=-1e30), liked)
    return float(ndcg(ranks, counts, k)[asked.answers.counts > 0].mean())


def blended(
    sides: Mapping[str, ChoiceSide], asked: AskedPeople | None, anybody: Picks
) -> tuple[dict[str, float], Any]:
    """The weights of sides, and what was found on the way: NDCG of each alone and together.

    Where nobody can be asked, scores of `anybody` say how much sides vary.
    """
    names, first = [*sides], next(iter(sides))
    picks = anybody if asked is None else asked.known
    scores = {name: side.scores(picks) for name, side in sides.items()}
    units = {name: float(one.std()) or 1.0 for name, one in scores.items()}
    if asked is None or not len(asked.answers.columns):
        usual = {name: USUAL.get(name, 1.0) for name in names} | {first: 1.0}
        return {name: usual[name] * units[first] / units[name] for name in names}, {}
    weights = dict.fromkeys(names, 0.0) | {first: 1.0}
    alone = {name: mean_ndcg(one.copy(), asked) for name, one in scores.items()}
    best = alone[first]
    for name in names[1:] * 2:  # once more, as each choice depends on the others
        best = _choose(name, weights, best, scores, units, asked)
    total = _sum(weights, scores, units)
    sharpness = _sharpness(total, asked)
    ndcgs = {"ndcg": round(best, 5), "alone": {n: round(v, 5) for n, v in alone.items()}}
    return {n: sharpness * w * units[first] / units[n] for n, w in weights.items()}, ndcgs


def _choose(
    name: str,
    weights: dict[str, float],
    best: float,
    scores: Mapping[str, ScoreArray],
    units: Mapping[str, float],
    asked: AskedPeople,
) -> float:
    """Set one weight to the best of the grid. Returns the NDCG that it gives."""
    for weight in GRID:
        value = mean_ndcg(_sum(weights | {name: weight}, scores, units), asked)
        if value > best:
            best, weights[name] = value, weight
    return best


def _sum(
    weights: Mapping[str, float], scores: Mapping[str, ScoreArray], units: Mapping[str, float]
) -> ScoreArray:
    first = units[next(iter(scores))]
    parts = [np.float32(weights[name] * first / units[name]) * one for name, one in scores.items()]
    return np.asarray(sum(parts[1:], parts[0]))


def _sharpness(scores: ScoreArray, asked: AskedPeople) -> float:
    """What scores are multiplied by, so that picks are as likely as can be."""
    known, answers = asked
    base = scores.copy()
    base[known.rows, known.columns] = -1e30

    def likelihood(factor: float) -> float:
        logs = log_softmax(np.float32(factor) * base)
        return float(logs[answers.rows, answers.columns].mean(dtype=np.float64))

    return float(max(SHARPNESS, key=likelihood))
