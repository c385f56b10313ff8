"""What members of different kinds count, by validation.

Shares are those under which the mean prediction of validation ratings has the smallest squared
error: once for people who were trained on, once for the same people asked about as new ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import numpy.typing as npt

from cfnade.data.ratings import Ratings
from cfnade.fitted import FittedModel
from cfnade.training.pooling import Answered, asked_from_all, asked_from_few

FloatArray = npt.NDArray[np.float64]


def shares_of(
    models: Sequence[FittedModel], kinds: Sequence[int], valid: Ratings, *, seed: int
) -> tuple[tuple[float, float], ...]:
    """Of models of one member each, whose kinds are numbers from 0 on; those of a kind share alike.

    Equal ones where there is nothing to choose by.
    """
    among = [kinds.count(kind) for kind in kinds]
    if len(valid) == 0:
        return tuple((1 / len(models), 1 / len(models)) for _ in models)
    known = _of_kinds([asked_from_all(model, valid) for model in models], kinds, valid)
    new = known
    if all(model.takes_histories and not model.needs_times for model in models):
        few = [asked_from_few(model, valid, seed=seed) for model in models]
        if len(few[0].levels):
            new = _of_kinds(few, kinds, valid)
    return tuple(
        (float(known[kind]) / count, float(new[kind]) / count)
        for kind, count in zip(kinds, among, strict=True)
    )


def _of_kinds(answers: Sequence[Answered], kinds: Sequence[int], valid: Ratings) -> FloatArray:
    stars = valid.scale.array()
    means = np.stack([answered.probabilities @ stars for answered in answers], 1)
    each = [means[:, [k == kind for k in kinds]].mean(1) for kind in range(max(kinds) + 1)]
    return best_shares(np.stack(each, 1), stars[answers[0].levels])


def best_shares(predictions: FloatArray, truth: FloatArray) -> FloatArray:
    """Shares of the columns of predictions (n, G), none below 0 and 1 in all: least squares. (G,).

    The few kinds there are allow to try every choice of those that count at all.
    """
    G = predictions.shape[1]
    errors = predictions - truth[:, None]
    products = errors.T @ errors / len(truth)  # of any shares w the squared error is w·products·w
    best, least = np.full(G, 1 / G), np.inf
    for size in range(1, G + 1):
        for chosen in map(list, combinations(range(G), size)):
            part = products[np.ix_(chosen, chosen)] + 1e-12 * np.eye(size)
            weights = np.linalg.solve(part, np.ones(size))
            weights /= weights.sum()
            error = float(weights @ part @ weights)
            if (weights >= 0).all() and error < least - 1e-12:
                best, least = np.zeros(G), error
                best[chosen] = weights
    return best
