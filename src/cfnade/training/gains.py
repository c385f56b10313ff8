"""How much sides count that say nothing in training: their gains, by validation.

Such a side adds scores k·(g·c + h) of levels k (models/near_network.py). Gains g of all of them and
one shift h are those with which the validation part is predicted with the smallest squared error. A
gain below 0 would turn a correction around, and is left at 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from cfnade.components import Member, TorchComponent
from cfnade.data.dataset import Dataset
from cfnade.fitted_model import FittedModel
from cfnade.inference.scorer import Scorer

FloatArray = npt.NDArray[np.float64]

ROUNDS = 20
DOUBT = 2.0
"""Of a small validation part: what keeps a gain at 0, in squared levels."""


def tune(fitted: FittedModel, valid: Dataset) -> None:
    """Find the gains of a model of one member, in place; without validation they stay."""
    member = fitted.members[0]
    sides = [side for side in member.components.values() if side.tunes]
    if not sides or not len(valid):
        return
    users, items = valid.users.astype(np.int64), valid.items.astype(np.int64)
    _set(sides, np.zeros(len(sides) + 1))
    plain = Scorer(fitted).probabilities(users, items, valid.times)
    corrections = [*(_corrections(side, fitted, users, items) for side in sides)]
    features = np.column_stack([*corrections, np.ones(len(users))])
    _set(sides, best_gains(plain, features, valid))


def copy_gains(chosen: Member, refitted: Member) -> None:
    """From the member that validation chose to the one trained on all."""
    for side, again in zip(chosen.components.values(), refitted.components.values(), strict=True):
        if side.tunes:
            network: Any = side.network
            _fill(again, float(network.gain), float(network.shift))


def _fill(side: TorchComponent, gain: float, shift: float) -> None:
    network: Any = side.network
    network.gain.fill_(gain)
    network.shift.fill_(shift)


def _set(sides: list[TorchComponent], gains: FloatArray) -> None:
    """Gains of all, and the shift, which is the first one's."""
    for number, side in enumerate(sides):
        _fill(side, float(gains[number]), float(gains[-1]) if number == 0 else 0.0)


def _corrections(
    side: TorchComponent,
    fitted: FittedModel,
    users: npt.NDArray[np.int64],
    items: npt.NDArray[np.int64],
) -> FloatArray:
    """c of cells: what a gain of 1 adds from the lowest level to the next. Returns (n,)."""
    _fill(side, 1.0, 0.0)
    scores = side.reading(fitted.context).cells(users, items, None)
    _fill(side, 0.0, 0.0)
    return np.asarray(scores[:, 1], np.float64)


def best_gains(plain: FloatArray, features: FloatArray, valid: Dataset) -> FloatArray:
    """Weights of features (n, F), all but the last at least 0, by Gauss and Newton. (F,)."""
    k, truth = np.arange(plain.shape[1]), valid.levels.astype(np.float64)
    with np.errstate(divide="ignore"):
        logs = np.log(plain)
    used = np.ones(features.shape[1], bool)
    while True:
        gains = np.zeros(len(used))
        for _ in range(ROUNDS):
            tilted = logs + (features @ gains)[:, None] * k
            chances = np.exp(tilted - tilted.max(1, keepdims=True))
            chances /= chances.sum(1, keepdims=True)
            means = chances @ k
            slopes = features[:, used] * (chances @ np.square(k) - np.square(means))[:, None]
            matrix = slopes.T @ slopes + DOUBT * np.eye(used.sum())
            gains[used] += np.linalg.solve(matrix, slopes.T @ (truth - means) - DOUBT * gains[used])
        below = np.flatnonzero(gains[:-1] < 0)
        if not len(below):
            return gains
        used[below] = False
