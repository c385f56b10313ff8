"""How sharp probabilities are: a factor of the scores that grows with what is known of a user.

A softmax of s · n / (n + c) times the scores, where n counts a user's interactions, makes the next
interactions most likely. Scores of a short history are standardized like all others but say less.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from cfnade._typing import IntArray
from cfnade.implicit.base import ScoreArray
from cfnade.implicit.rows import InteractionRows
from cfnade.kernels.top_k import log_softmax

FACTORS = np.exp(np.linspace(np.log(0.05), np.log(20.0), 61))
HALF_COUNTS = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
"""Values that are tried of s and of c."""


class Sharpness(NamedTuple):
    """s, and the number of interactions c at which the factor is half of s."""

    factor: float = 1.0
    half_count: float = 0.0

    def factors(self, counts: IntArray) -> ScoreArray:
        """Return the factor of each row with so many interactions, 0 for one without any."""
        return np.asarray(
            self.factor * counts / np.maximum(counts + self.half_count, 1), np.float32
        )


class Observed(NamedTuple):
    """Scores (B, M) of users, what is known of them, and what they took up next."""

    scores: ScoreArray
    history: InteractionRows
    answers: InteractionRows


def fit_sharpness(observed: Sequence[Observed]) -> Sharpness:
    """Return the sharpness that makes the answers most likely."""

    def likelihood(sharpness: Sharpness) -> float:
        parts = [_log_likelihood(users, sharpness) for users in observed]
        total, count = np.sum(parts, axis=0)
        return float(total / max(1.0, count))

    best = [_best_factor(half_count, likelihood) for half_count in HALF_COUNTS]
    return max(best, key=likelihood)


def _log_likelihood(observed: Observed, sharpness: Sharpness) -> tuple[float, float]:
    scores, history, answers = observed
    logs = scores * sharpness.factors(history.counts)[:, None]
    logs[history.rows, history.columns] = -np.inf
    log_probabilities = log_softmax(logs)[answers.rows, answers.columns]
    return float(log_probabilities.sum(dtype=np.float64)), float(len(log_probabilities))


def _best_factor(half_count: float, likelihood: Callable[[Sharpness], float]) -> Sharpness:
    """Return the best factor: the likelihood has one peak, as it is concave in the factor."""

    @cache
    def value(place: int) -> float:
        return likelihood(Sharpness(float(FACTORS[place]), half_count))

    low, high = 0, len(FACTORS) - 1
    while low < high:
        middle = (low + high) // 2
        if value(middle) < value(middle + 1):
            low = middle + 1
        else:
            high = middle
    return Sharpness(float(FACTORS[low]), half_count)


def shorten(
    history: InteractionRows, answers: InteractionRows, seed: int
) -> tuple[InteractionRows, InteractionRows]:
    """Keep n^u random interactions of each user, u even on 0..1; the others become answers."""
    rng = np.random.default_rng((seed, 22))
    counts, rows = history.counts, history.rows
    n_kept = np.ceil(np.maximum(counts, 1) ** rng.random(len(history)))
    order = np.lexsort((rng.random(len(rows)), rows))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order)) - np.repeat(history.indptr[:-1], counts)
    keep = place < n_kept[rows]
    return history.where(keep), history.where(~keep).joined(answers)
