"""Metrics of ranked lists: pure functions of arrays.

n users have lists of L items, best first. `n_relevant` (n,) is how many items are relevant to each
user, listed or not, and k how many ranks count. A metric returns one number per user, (n,).

Items of equal score have no order: each metric is its exact mean over all orders of the ties.
Coverage and novelty are those of the lists as they are shown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cfnade._typing import IntArray
from cfnade.exceptions import PredictionError

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]


class RankedHits(NamedTuple):
    """Relevant items by rank, averaged over all orders of equal scores; all (n, L)."""

    hit: FloatArray
    """Probability that the item at this rank is relevant."""
    n_hits: FloatArray
    """If it is, the mean number of relevant items up to it, itself included."""
    first_hit: FloatArray
    """Probability that it is the first relevant item."""


def ranked_hits(scores: npt.ArrayLike, relevant: npt.ArrayLike) -> RankedHits:
    """Return where the relevant items of each list stand.

    Args:
        scores: Scores by rank, (n, L). They do not increase; NaN fills the end of a shorter list.
            Ties that begin within the ranks that count must be complete.
        relevant: Whether the item at each rank is relevant, (n, L).
    """
    values, hits = _check_lists(scores, relevant)
    n, L = values.shape
    rank = np.arange(L)
    is_start = np.ones((n, L + 1), bool)  # of a tie
    is_start[:, 1:L] = values[:, 1:] != values[:, :-1]
    start = np.maximum.accumulate(np.where(is_start[:, :L], rank, 0), 1)
    ends = np.where(is_start[:, 1:], rank + 1, L)
    end = np.minimum.accumulate(ends[:, ::-1], 1)[:, ::-1]
    count = np.zeros((n, L + 1))
    np.cumsum(hits, 1, out=count[:, 1:])
    before = np.take_along_axis(count, start, 1)
    inside = np.take_along_axis(count, end, 1) - before
    size, nth = end - start, rank - start
    n_hits = before + 1 + (inside - 1) * nth / np.maximum(size - 1, 1)
    no_hit = np.ones((n, L + 1))  # the probability that no relevant item came yet
    np.cumprod(np.maximum(size - inside - nth, 0) / (size - nth), 1, out=no_hit[:, 1:])
    return RankedHits(inside / size, n_hits, -np.diff(no_hit, axis=1))


def ndcg(hits: RankedHits, n_relevant: IntArray, k: int) -> FloatArray:
    """Return Σ 1/log2(1 + rank) over relevant items, divided by that of the best list."""
    ideal = np.cumsum(_discounts(min(k, int(n_relevant.max(initial=1)))))
    gains = _sum(hits.hit * _discounts(hits.hit.shape[1]), k)
    return np.asarray(gains / ideal[np.minimum(n_relevant, k) - 1])


def recall(hits: RankedHits, n_relevant: IntArray, k: int) -> FloatArray:
    """Return the share of relevant items that is listed."""
    return _sum(hits.hit, k) / n_relevant


def capped_recall(hits: RankedHits, n_relevant: IntArray, k: int) -> FloatArray:
    """Return recall of at most k relevant items. Liang et al. (2018) call it recall."""
    return np.asarray(_sum(hits.hit, k) / np.minimum(n_relevant, k))


def precision(hits: RankedHits, _: IntArray, k: int) -> FloatArray:
    """Return the share of k ranks with a relevant item; those behind the end have none."""
    return _sum(hits.hit, k) / k


def average_precision(hits: RankedHits, n_relevant: IntArray, k: int) -> FloatArray:
    """Return the mean precision at the ranks of relevant items; 0 for those not listed."""
    return _sum(hits.hit * hits.n_hits / _ranks(hits), k) / n_relevant


def reciprocal_rank(hits: RankedHits, _: IntArray, k: int) -> FloatArray:
    """Return 1 / the rank of the first relevant item."""
    return _sum(hits.first_hit / _ranks(hits), k)


def hit_rate(hits: RankedHits, _: IntArray, k: int) -> FloatArray:
    """Return whether any listed item is relevant."""
    return _sum(hits.first_hit, k)


METRICS: dict[str, Callable[[RankedHits, IntArray, int], FloatArray]] = {
    "ndcg": ndcg,
    "recall": recall,
    "capped_recall": capped_recall,
    "precision": precision,
    "map": average_precision,
    "mrr": reciprocal_rank,
    "hit_rate": hit_rate,
}


# -- metrics of the lists as they are shown: item indices (n, L), -1 behind the end of a list -----


def novelty(items: IntArray, n_raters: IntArray, n_users: int) -> FloatArray:
    """Return the mean of log2(n_users / n_raters) over each list, in bits; 0 for an empty list.

    n_raters (M,) are counts of each item; an item without raters counts as rated once.
    """
    bits = np.append(np.log2(n_users / np.maximum(n_raters, 1)), 0.0)
    return np.asarray(bits[items].sum(1) / np.maximum((items >= 0).sum(1), 1))


class Coverage:
    """The share of M items that occur in at least one list; lists are added in batches."""

    def __init__(self, n_items: int) -> None:
        self._n_lists, self._last_user = np.zeros(n_items, np.int64), np.zeros(n_items, np.int64)

    def add(self, users: IntArray, items: IntArray) -> None:
        """Add the lists (n, L) of some users, who are numbered from 0."""
        listed = items[items >= 0]
        self._n_lists += np.bincount(listed, minlength=len(self._n_lists))
        self._last_user[listed] = np.repeat(users, (items >= 0).sum(1))

    def estimate(self, n_users: int) -> Estimate:
        """Return the coverage and its jackknife error: what each user alone covers."""
        M = len(self._n_lists)
        unshared = np.bincount(self._last_user[self._n_lists == 1], minlength=n_users) / M
        error = float(np.sqrt((n_users - 1) * unshared.var())) if n_users > 1 else None
        return Estimate(float((self._n_lists > 0).mean()), error)


# -- means over users -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Estimate:
    """A mean over users and its standard error, which is None for a single user."""

    mean: float
    error: float | None


def mean_estimate(values: FloatArray) -> Estimate:
    """Return the mean and standard error of one number per user (n,)."""
    n = len(values)
    error = float(values.std(ddof=1) / np.sqrt(n)) if n > 1 else None
    return Estimate(float(values.mean()), error)


def _sum(values: FloatArray, k: int) -> FloatArray:
    return np.asarray(values[:, :k].sum(1))


def _ranks(hits: RankedHits) -> IntArray:
    return np.arange(1, hits.hit.shape[1] + 1)


def _discounts(length: int) -> FloatArray:
    return np.asarray(1 / np.log2(np.arange(2, length + 2)))


def _check_lists(scores: npt.ArrayLike, relevant: npt.ArrayLike) -> tuple[FloatArray, BoolArray]:
    values, hits = np.asarray(scores, np.float64), np.asarray(relevant)
    if values.ndim != 2 or hits.shape != values.shape or hits.dtype != bool:
        raise PredictionError(
            f"scores have shape {values.shape}, relevant {hits.shape} and dtype {hits.dtype}; give "
            "numbers and booleans, both (users, ranks)"
        )
    ended = np.isnan(values)
    wrong = hits & ended
    wrong[:, 1:] |= ~((values[:, 1:] <= values[:, :-1]) | ended[:, 1:])
    if wrong.any():
        row, rank = np.argwhere(wrong)[0]
        raise PredictionError(
            f"scores[{row}, {rank}] (={values[row, rank]:g}) increase, or an item is relevant "
            "behind the end; sort lists best first, with NaN and no relevant item behind their end"
        )
    return values, hits
