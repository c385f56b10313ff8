"""Metrics of predicted ratings: pure functions of arrays.

Shapes: n ratings, K levels. `values` are the ratings that the levels stand for, `levels` (n,) the
level of each observed rating, and `probabilities` (n, K) the predicted distributions.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cfnade._typing import IntArray
from cfnade.exceptions import PredictionError

FloatArray = npt.NDArray[np.float64]

N_BINS = 15
_CHUNK = 1 << 18  # distributions that are checked at a time


def rmse(ratings: npt.ArrayLike, predictions: npt.ArrayLike) -> float:
    """Return the root mean squared error in rating units."""
    return float(np.sqrt(np.mean(np.square(_errors(ratings, predictions)))))


def mae(ratings: npt.ArrayLike, predictions: npt.ArrayLike) -> float:
    """Return the mean absolute error in rating units. `medians` minimize it, means do not."""
    return float(np.mean(np.abs(_errors(ratings, predictions))))


def medians(probabilities: npt.ArrayLike, values: npt.ArrayLike) -> FloatArray:
    """Return the lowest value that each rating does not exceed with probability 1/2. (n,)."""
    p = check_probabilities(probabilities)
    return np.asarray(quantiles(p, check_values(values, p.shape[1]), np.array([0.5]))[0])


def quantiles(probabilities: FloatArray, values: FloatArray, fractions: FloatArray) -> FloatArray:
    """Return the lowest values that ratings do not exceed with the given probabilities.

    The arguments are not checked.

    Args:
        probabilities: Distributions, (n, K).
        values: Values of the levels, (K,).
        fractions: Probabilities of the quantiles, (s,).

    Returns:
        One row per fraction, (s, n).
    """
    # A sum that misses a fraction by rounding alone has reached it.
    reached = probabilities.cumsum(1) >= fractions[:, None, None] - 1e-12  # (s, n, K)
    reached[..., -1] = True  # whatever the rounding error
    lowest: FloatArray = values[reached.argmax(2)]
    return lowest


def nll(probabilities: npt.ArrayLike, levels: npt.ArrayLike) -> float:
    """Return the mean negative log-likelihood in nats; infinite if a rating had probability 0."""
    return float(np.mean(surprisals(probabilities, levels)))


def surprisals(probabilities: npt.ArrayLike, levels: npt.ArrayLike) -> FloatArray:
    """Return -log of the probability that each observed level had, (n,)."""
    p = check_probabilities(probabilities)
    with np.errstate(divide="ignore"):
        return -np.log(p[np.arange(len(p)), check_levels(levels, p)])


def mean_surprisal(probabilities: FloatArray) -> float:
    """Return the mean of -log of the probabilities (n,) that the observed levels had."""
    with np.errstate(divide="ignore"):
        return float(-np.mean(np.log(probabilities)))


def rps(
    probabilities: npt.ArrayLike, levels: npt.ArrayLike, values: npt.ArrayLike | None = None
) -> float:
    """Return the mean of `ranked_probability_scores`."""
    return float(np.mean(ranked_probability_scores(probabilities, levels, values)))


def ranked_probability_scores(
    probabilities: npt.ArrayLike, levels: npt.ArrayLike, values: npt.ArrayLike | None = None
) -> FloatArray:
    """Return the ranked probability score of each rating, (n,).

    Σ_k (P(level ≤ k) - [truth ≤ k])² · step_k over k < K-1, where step_k is the distance from
    value k to the next; 1 without values. A certain prediction scores its absolute error, so the
    score is in rating units and comparable with `mae`.
    """
    p = check_probabilities(probabilities)
    K = p.shape[1]
    steps = np.diff(np.arange(K) if values is None else check_values(values, K))  # (K-1,)
    truth = check_levels(levels, p)[:, None] <= np.arange(K - 1)  # (n, K-1)
    gaps = np.cumsum(p, axis=1)[:, :-1] - truth
    scores: FloatArray = np.square(gaps) @ steps
    return scores


def calibration_error(
    probabilities: npt.ArrayLike, levels: npt.ArrayLike, *, bins: int = N_BINS
) -> float:
    """Return the expected calibration error, averaged over levels; between 0 and 1.

    For each level, ratings are sorted by its predicted probability and cut into bins of equal
    counts; equal predictions stay together. A bin's error is |mean prediction - share of ratings at
    the level|, weighted by the bin's size. Finite data leave a small error even to the truth.
    """
    if bins < 1:
        raise PredictionError(f"bins (={bins}) must be at least 1")
    p = check_probabilities(probabilities)
    truth = check_levels(levels, p)
    return float(np.mean([_bin_error(p[:, k], truth == k, bins) for k in range(p.shape[1])]))


def _bin_error(predicted: FloatArray, observed: npt.NDArray[np.bool_], bins: int) -> float:
    n = len(predicted)
    predicted = np.ascontiguousarray(predicted)  # once, or every call below makes a copy
    starts = n * np.arange(1, bins) // bins
    edges = np.unique(np.partition(predicted, starts)[starts])
    number = np.searchsorted(edges, predicted, side="right")
    gaps = np.bincount(number, predicted)
    gaps -= np.bincount(number[observed], minlength=len(gaps))
    return float(np.abs(gaps).sum() / n)


def _errors(ratings: npt.ArrayLike, predictions: npt.ArrayLike) -> FloatArray:
    a, b = np.asarray(ratings, np.float64), np.asarray(predictions, np.float64)
    if a.ndim != 1 or a.shape != b.shape or a.size == 0:
        raise PredictionError(
            f"ratings have shape {a.shape} and predictions {b.shape}; both must be "
            "one-dimensional, of one length, and not empty"
        )
    return a - b


# -- checks of arguments --------------------------------------------------------------------------


def check_values(values: npt.ArrayLike, n_levels: int) -> FloatArray:
    """Return the values of a rating scale (K,) as an array; raise if they do not increase."""
    array = np.asarray(values, np.float64)
    increasing = array.shape == (n_levels,) and np.isfinite(array).all()
    if not increasing or not np.all(np.diff(array) > 0):
        raise PredictionError(
            f"values (={array.tolist()}) must be {n_levels} increasing numbers, one for each level"
        )
    return array


def check_probabilities(probabilities: npt.ArrayLike) -> FloatArray:
    """Return distributions (n, K) as an array; raise unless each is valid.

    n > 0, K > 1; no probability is negative, and each row sums to 1 within 1e-4.
    """
    p = np.asarray(probabilities, np.float64)
    if p.ndim != 2 or p.shape[0] == 0 or p.shape[1] < 2:
        raise PredictionError(
            f"probabilities have shape {p.shape}; it must be (ratings, levels), at least 1 and 2"
        )
    for start in range(0, len(p), _CHUNK):
        chunk = p[start : start + _CHUNK]
        wrong = ~((chunk >= 0).all(1) & (np.abs(chunk.sum(1) - 1) < 1e-4))
        if wrong.any():
            row = start + int(np.argmax(wrong))
            raise PredictionError(
                f"probabilities[{row}] (={p[row].tolist()}) must not be negative and must sum to 1"
            )
    return p


def check_levels(levels: npt.ArrayLike, probabilities: FloatArray) -> IntArray:
    """Return one level in 0..K-1 for each row of probabilities (n, K) as an array (n,)."""
    array = np.asarray(levels)
    n, K = probabilities.shape
    if array.shape != (n,) or array.dtype.kind not in "iu":
        raise PredictionError(
            f"levels have shape {array.shape} and dtype {array.dtype}; give {n} whole numbers, "
            "one for each row of probabilities"
        )
    if array.min() < 0 or array.max() >= K:
        bad = array.min() if array.min() < 0 else array.max()
        raise PredictionError(f"levels contain {bad}; they must lie in 0..{K - 1}")
    return array.astype(np.int64)
