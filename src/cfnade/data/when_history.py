"""One side's ratings in time order, each as what its row says beyond the other side's bias."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cfnade.data.ratings import Ratings, Side
from cfnade.data.rows import IndexArray, IntArray, offsets_of, stable_order
from cfnade.data.tails import threads
from cfnade.data.when_kernels import biases_without, look_around, mean_without
from cfnade.errors import DataError

Floats = npt.NDArray[np.float32]

FOLDS = 8
SWEEPS, SHRINK = 5, 5.0  # of the biases
UNIT = 2.0**-27
"""Residuals are whole multiples of this, a part of the scale's span: up to 16 spans fit int32."""

HOUR, DAY = 3600, 86400


@dataclass(frozen=True)
class View:
    """How one side looks around a moment."""

    windows: tuple[int, ...]  # seconds before and after, rising
    neighbours: tuple[int, ...]  # ratings before and after in time order
    shrink: float

    @property
    def width(self) -> int:
        """Features: three of position, two of each window, one of each reach of neighbours."""
        return 3 + 2 * len(self.windows) + len(self.neighbours)


VIEWS: dict[Side, View] = {
    "user": View((0, 60, 600, HOUR, 12 * HOUR), (2, 5, 10, 25), 4.0),
    "item": View((3 * DAY, 14 * DAY, 60 * DAY), (10, 40), 8.0),
}


@dataclass(frozen=True)
class History:
    """Ratings by row (users, or items), by time in a row, and by the other index at one time.

    A residual is r - μ - b, r being the rating as a part of the scale's span (0..1) and b the
    bias of the other side, which is fitted without the row's own ratings (see `of`).
    """

    offsets: IntArray  # (N+1,)
    times: IntArray  # (n,) seconds since 1970
    others: IndexArray  # (n,)
    residuals: IndexArray  # (n,) in units of UNIT
    sums: IntArray  # (n+1,) running sums of the residuals

    @classmethod
    def of(cls, ratings: Ratings, side: Side) -> History:
        """A row's biases of the other side come from the rows of the other 7 of 8 folds.

        Row r is in fold r % 8. So nothing that a row says is in the biases that its own residuals
        are measured from, and leaving a rating out of its row leaves it out altogether.
        """
        rows, others = ratings.users, ratings.items
        n_rows, n_others = ratings.n_users, ratings.n_items
        if side == "item":
            rows, others, n_rows, n_others = others, rows, n_others, n_rows
        order = _by_row_and_time(rows, others, ratings)
        offsets = offsets_of(rows, n_rows)
        rows, others = rows[order], np.ascontiguousarray(others[order])
        stars = ratings.scale.array()
        values = ((stars - stars[0]) / (stars[-1] - stars[0]))[ratings.levels[order]]
        biases = _biases(offsets, others, values, n_others)
        left = np.rint((values - biases[rows % FOLDS, others]) / UNIT)
        return cls.made(offsets, _times(ratings)[order], others, left.astype(np.int32))

    @classmethod
    def made(
        cls, offsets: IntArray, times: IntArray, others: IndexArray, residuals: IndexArray
    ) -> History:
        sums = np.zeros(len(residuals) + 1, np.int64)
        np.cumsum(residuals, out=sums[1:])
        return cls(offsets, times, others, residuals, sums)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def look(
        self, view: View, rows: IndexArray, others: IndexArray, times: IntArray, out: Floats
    ) -> None:
        """Fill out (n, view.width) with raw features; NaN where the row holds nothing else."""
        history = (self.offsets, self.times, self.others, self.sums)
        shape = (np.array(view.windows), np.array(view.neighbours), view.shrink, UNIT)
        look_around((rows, others, times), history, *shape, out)

    # -- on disk ----------------------------------------------------------------------------

    def arrays(self, side: Side) -> dict[str, npt.NDArray[Any]]:
        """What is saved, by name."""
        return {f"{side}.{name}": getattr(self, name) for name in _SAVED}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]], side: Side) -> History:
        """What `arrays` gave, if it is of the right types; `check` looks at the numbers."""
        found = []
        for name, dtype in _SAVED.items():
            array = arrays.get(f"{side}.{name}")
            if array is None or array.dtype != dtype or array.ndim != 1:
                raise DataError(f"time features need {side}.{name}, numbers of {dtype}")
            found.append(np.array(array))
        return cls.made(*found)

    def check(self, n_others: int, side: Side) -> None:
        """Refuse what would make a kernel read beyond its arrays, or find nothing."""
        n = len(self.times)
        offsets, others = self.offsets, self.others
        if not len(self.others) == len(self.residuals) == n:
            raise DataError(f"time features: the {side} histories' arrays differ in length")
        if (
            len(offsets) == 0
            or offsets[0] != 0
            or offsets[-1] != n
            or np.diff(offsets).min(initial=0) < 0
        ):
            raise DataError(f"time features: {side}.offsets do not rise from 0 to {n:,}")
        if n and (others.min() < 0 or others.max() >= n_others):
            raise DataError(f"time features: {side}.others must lie in 0..{n_others - 1}")


_SAVED = {"offsets": "int64", "times": "int64", "others": "int32", "residuals": "int32"}


def _times(ratings: Ratings) -> IntArray:
    if ratings.times is None:
        raise DataError("these ratings have no timestamps; time features need them")
    return ratings.times.astype(np.int64)


def _by_row_and_time(rows: IndexArray, others: IndexArray, ratings: Ratings) -> IntArray:
    """Sorted by the last key first, each sort keeping the order of the one before. Returns (n,)."""
    times = _times(ratings)
    since = times - times.min()
    order = np.arange(len(rows))
    for key in (others, since, rows):
        found = stable_order(key[order], int(key.max(initial=0)) + 1)
        order = order if found is None else order[found]
    return order


def _biases(
    offsets: IntArray, columns: IndexArray, values: npt.NDArray[np.float64], n_columns: int
) -> npt.NDArray[np.float64]:
    """μ + b of every column as the other folds' rows see it. Returns (FOLDS, n_columns)."""
    found = np.empty((FOLDS, n_columns))

    def fit(fold: int) -> None:
        mean = mean_without(fold, FOLDS, offsets, values)
        biases_without(fold, FOLDS, offsets, columns, values, mean, SWEEPS, SHRINK, found[fold])
        found[fold] += mean

    with ThreadPoolExecutor(threads()) as pool:
        list(pool.map(fit, range(FOLDS)))
    return found
