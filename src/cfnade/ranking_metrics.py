"""How good lists are: pure functions of arrays.

n people have lists of L places, best first; `wanted` (n,) is how many items each turned out to
like, listed or not, and k how many places count. A metric returns one number a person, (n,).

Items of equal score stand in no order: each metric is its mean over all their orders, exactly.
Coverage and novelty are of lists as they are shown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cfnade.exceptions import PredictionError

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


class Places(NamedTuple):
    """What stands at each place of each list, over all orders of equal scores; all (n, L)."""

    liked: FloatArray
    """The chance that a liked item stands there."""
    found: FloatArray
    """If one does, how many there are up to it, itself included: the mean."""
    first: FloatArray
    """The chance that it is the first one."""


def places(scores: npt.ArrayLike, liked: npt.ArrayLike) -> Places:
    """From the score of each place and whether its item is liked, both (n, L).

    Scores fall; NaN stands behind the end of a shorter list. Equal scores that begin within the
    places that count must all be there.
    """
    values, hits = _checked(scores, liked)
    n, L = values.shape
    place = np.arange(L)
    begins = np.ones((n, L + 1), bool)  # of equal scores
    begins[:, 1:L] = values[:, 1:] != values[:, :-1]
    start = np.maximum.accumulate(np.where(begins[:, :L], place, 0), 1)
    ends = np.where(begins[:, 1:], place + 1, L)
    end = np.minimum.accumulate(ends[:, ::-1], 1)[:, ::-1]
    count = np.zeros((n, L + 1))
    np.cumsum(hits, 1, out=count[:, 1:])
    before = np.take_along_axis(count, start, 1)
    inside = np.take_along_axis(count, end, 1) - before
    size, nth = end - start, place - start
    counts = before + 1 + (inside - 1) * nth / np.maximum(size - 1, 1)
    none = np.ones((n, L + 1))  # the chance that nothing liked came yet
    np.cumprod(np.maximum(size - inside - nth, 0) / (size - nth), 1, out=none[:, 1:])
    return Places(inside / size, counts, -np.diff(none, axis=1))


def ndcg(at: Places, wanted: IntArray, k: int) -> FloatArray:
    """Σ 1/log2(1 + place) over liked items, as a share of the best list's."""
    ideal = np.cumsum(_discounts(min(k, int(wanted.max(initial=1)))))
    return np.asarray(_sum(at.liked * _discounts(at.liked.shape[1]), k) / ideal[_most(wanted, k)])


def recall(at: Places, wanted: IntArray, k: int) -> FloatArray:
    """The share of what is liked that is listed."""
    return _sum(at.liked, k) / wanted


def capped_recall(at: Places, wanted: IntArray, k: int) -> FloatArray:
    """The same, of at most k: a list full of liked items has 1. Liang et al. call it recall."""
    return np.asarray(_sum(at.liked, k) / (1 + _most(wanted, k)))


def precision(at: Places, _wanted: IntArray, k: int) -> FloatArray:
    """The share of k places that hold something liked; those behind the end of a list do not."""
    return _sum(at.liked, k) / k


def average_precision(at: Places, wanted: IntArray, k: int) -> FloatArray:
    """The mean over what is liked of the precision down to it; 0 for what is not listed."""
    return _sum(at.liked * at.found / _numbers(at), k) / wanted


def reciprocal_rank(at: Places, _wanted: IntArray, k: int) -> FloatArray:
    """1 / the place of the first liked item."""
    return _sum(at.first / _numbers(at), k)


def hit_rate(at: Places, _wanted: IntArray, k: int) -> FloatArray:
    """Whether anything listed is liked."""
    return _sum(at.first, k)


METRICS: dict[str, Callable[[Places, IntArray, int], FloatArray]] = {
    "ndcg": ndcg,
    "recall": recall,
    "capped_recall": capped_recall,
    "precision": precision,
    "map": average_precision,
    "mrr": reciprocal_rank,
    "hit_rate": hit_rate,
}


# -- lists as they are shown: items (n, L) by index, -1 behind the end of one --------------------


def novelty(items: IntArray, raters: IntArray, people: int) -> FloatArray:
    """The mean of log2(people / raters) over a list, in bits; raters (M,) are of each item.

    How surprising it is that somebody picked the item; one that nobody did counts as picked once.
    An empty list has 0.
    """
    bits = np.append(np.log2(people / np.maximum(raters, 1)), 0.0)
    return np.asarray(bits[items].sum(1) / np.maximum((items >= 0).sum(1), 1))


class Coverage:
    """The share of M items that are in anybody's list; lists are added as they come."""

    def __init__(self, n_items: int) -> None:
        self._lists, self._last = np.zeros(n_items, np.int64), np.zeros(n_items, np.int64)

    def add(self, people: IntArray, items: IntArray) -> None:
        """Lists of some people, who are numbered from 0."""
        shown = items[items >= 0]
        self._lists += np.bincount(shown, minlength=len(self._lists))
        self._last[shown] = np.repeat(people, (items >= 0).sum(1))

    def estimate(self, people: int) -> Estimate:
        """With the jackknife's error: what each of so many people alone covers."""
        M = len(self._lists)
        alone = np.bincount(self._last[self._lists == 1], minlength=people) / M
        error = float(np.sqrt((people - 1) * alone.var())) if people > 1 else None
        return Estimate(float((self._lists > 0).mean()), error)


# -- over people ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Estimate:
    """A mean over people and its standard error; None of a single person."""

    mean: float
    error: float | None


def mean_of(values: FloatArray) -> Estimate:
    """Of one number a person (n,)."""
    n = len(values)
    error = float(values.std(ddof=1) / np.sqrt(n)) if n > 1 else None
    return Estimate(float(values.mean()), error)


# -- pieces --------------------------------------------------------------------------------------


def _sum(values: FloatArray, k: int) -> FloatArray:
    return np.asarray(values[:, :k].sum(1))


def _numbers(at: Places) -> IntArray:
    return np.arange(1, at.liked.shape[1] + 1)


def _discounts(length: int) -> FloatArray:
    return np.asarray(1 / np.log2(np.arange(2, length + 2)))


def _most(wanted: IntArray, k: int) -> IntArray:
    """Where a list of what is wanted and nothing else ends: the place of its last item, from 0."""
    return np.minimum(wanted, k) - 1


def _checked(scores: npt.ArrayLike, liked: npt.ArrayLike) -> tuple[FloatArray, BoolArray]:
    values, hits = np.asarray(scores, np.float64), np.asarray(liked)
    if values.ndim != 2 or hits.shape != values.shape or hits.dtype != bool:
        raise PredictionError(
            f"scores have shape {values.shape}, liked {hits.shape} and dtype {hits.dtype}; give "
            "numbers and truth values, both (people, places)"
        )
    ended = np.isnan(values)
    wrong = hits & ended
    wrong[:, 1:] |= ~((values[:, 1:] <= values[:, :-1]) | ended[:, 1:])
    if wrong.any():
        row, place = np.argwhere(wrong)[0]
        raise PredictionError(
            f"scores[{row}, {place}] (={values[row, place]:g}) do not fall, or something is liked "
            "behind the end; sort lists best first, with NaN and nothing liked behind their end"
        )
    return values, hits
