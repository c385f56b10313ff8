"""How good predictions are: pure functions of arrays.

n ratings, K levels; `values` are the stars that ratings or levels stand for, `levels` (n,) which
level each rating fell on, `probabilities` (n, K) what was predicted for it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cfnade.exceptions import PredictionError

FloatArray = npt.NDArray[np.float64]
LevelIndex = npt.NDArray[np.int64]

BINS = 15
_PIECE = 1 << 18  # distributions that are checked at a time


def rmse(values: npt.ArrayLike, predictions: npt.ArrayLike) -> float:
    """Root of the mean squared error, in stars."""
    return float(np.sqrt(np.mean(np.square(_errors(values, predictions)))))


def mae(values: npt.ArrayLike, predictions: npt.ArrayLike) -> float:
    """Mean absolute error, in stars. Medians (`medians`) make it small, not means."""
    return float(np.mean(np.abs(_errors(values, predictions))))


def medians(probabilities: npt.ArrayLike, values: npt.ArrayLike) -> FloatArray:
    """The lowest value that a rating does not exceed with probability 1/2 or more. Returns (n,)."""
    p = checked_probabilities(probabilities)
    stars = checked_values(values, p.shape[1])
    return np.asarray(quantiles(p, stars, np.array([0.5]))[0])


def quantiles(p: FloatArray, values: FloatArray, shares: FloatArray) -> FloatArray:
    """The lowest values that a rating does not exceed with these probabilities (s,) or more.

    Of distributions (n, K) that need no check. Returns (s, n).
    """
    # A sum that misses a share by rounding alone has reached it.
    reached = p.cumsum(1) >= shares[:, None, None] - 1e-12  # (s, n, K)
    reached[..., -1] = True  # whatever rounding says
    lowest: FloatArray = values[reached.argmax(2)]
    return lowest


def nll(probabilities: npt.ArrayLike, levels: npt.ArrayLike) -> float:
    """Mean negative log-likelihood in nats; infinite if a rating was said to be impossible."""
    p = checked_probabilities(probabilities)
    return surprise(p[np.arange(len(p)), checked_levels(levels, p)])


def surprise(of_truth: FloatArray) -> float:
    """The same, given what was held of each level that came (n,)."""
    with np.errstate(divide="ignore"):
        return float(-np.mean(np.log(of_truth)))


def rps(
    probabilities: npt.ArrayLike, levels: npt.ArrayLike, values: npt.ArrayLike | None = None
) -> float:
    """Mean ranked probability score: Σ_k (P(level ≤ k) - [truth ≤ k])² · step_k over k < K-1.

    step_k is the distance in stars from value k to the next; 1 without values. A certain
    prediction scores its absolute error, so this is in stars and comparable with `mae`.
    """
    p = checked_probabilities(probabilities)
    K = p.shape[1]
    steps = np.diff(np.arange(K) if values is None else checked_values(values, K))  # (K-1,)
    truth = checked_levels(levels, p)[:, None] <= np.arange(K - 1)  # (n, K-1)
    gaps = np.cumsum(p, axis=1)[:, :-1] - truth
    return float(np.mean(np.square(gaps) @ steps))


def calibration_error(
    probabilities: npt.ArrayLike, levels: npt.ArrayLike, *, bins: int = BINS
) -> float:
    """How far predicted probabilities are from what happens, between 0 and 1.

    For each level the ratings are sorted by its predicted probability and cut into bins of equally
    many; equal predictions stay together. A bin's error is |mean prediction - share of ratings at
    the level|. The result is the mean over levels of the mean of these errors, each counted by its
    bin's size. Finite data leave a small error even to the truth.
    """
    if bins < 1:
        raise PredictionError(f"bins (={bins}) must be at least 1")
    p = checked_probabilities(probabilities)
    truth = checked_levels(levels, p)
    return float(np.mean([_bin_error(p[:, k], truth == k, bins) for k in range(p.shape[1])]))


# -- pieces --------------------------------------------------------------------------------------


def _bin_error(predicted: FloatArray, happened: npt.NDArray[np.bool_], bins: int) -> float:
    n = len(predicted)
    predicted = np.ascontiguousarray(predicted)  # once, or every call below makes a copy
    starts = n * np.arange(1, bins) // bins
    edges = np.unique(np.partition(predicted, starts)[starts])
    number = np.searchsorted(edges, predicted, side="right")
    gaps = np.bincount(number, predicted)
    gaps -= np.bincount(number[happened], minlength=len(gaps))
    return float(np.abs(gaps).sum() / n)


def _errors(values: npt.ArrayLike, predictions: npt.ArrayLike) -> FloatArray:
    a, b = np.asarray(values, np.float64), np.asarray(predictions, np.float64)
    if a.ndim != 1 or a.shape != b.shape or a.size == 0:
        raise PredictionError(
            f"values have shape {a.shape} and predictions {b.shape}; both must be one-dimensional, "
            "of one length, and not empty"
        )
    return a - b


def checked_values(values: npt.ArrayLike, levels: int) -> FloatArray:
    """A scale's values (K,), rising."""
    array = np.asarray(values, np.float64)
    if array.shape != (levels,) or not np.isfinite(array).all() or not np.all(np.diff(array) > 0):
        raise PredictionError(
            f"values (={array.tolist()}) must be {levels} rising numbers, one for each level"
        )
    return array


def checked_probabilities(probabilities: npt.ArrayLike) -> FloatArray:
    """Probabilities (n, K), n > 0, K > 1; not negative, each row with sum 1 within 1e-4."""
    p = np.asarray(probabilities, np.float64)
    if p.ndim != 2 or p.shape[0] == 0 or p.shape[1] < 2:
        raise PredictionError(
            f"probabilities have shape {p.shape}; it must be (ratings, levels), at least 1 and 2"
        )
    for first in range(0, len(p), _PIECE):
        some = p[first : first + _PIECE]
        wrong = ~((some >= 0).all(1) & (np.abs(some.sum(1) - 1) < 1e-4))
        if wrong.any():
            row = first + int(np.argmax(wrong))
            raise PredictionError(
                f"probabilities[{row}] (={p[row].tolist()}) must not be negative and must sum to 1"
            )
    return p


def checked_levels(levels: npt.ArrayLike, probabilities: FloatArray) -> LevelIndex:
    """One level for each row of probabilities (n, K), in 0..K-1. Returns (n,)."""
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
