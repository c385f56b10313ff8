"""One side's ratings in time order, each as what its row says beyond the other side's bias.

The compiled loops are serial over a range of their work and release the GIL. Sums of residuals are
sums of integers: exact, so no rounding carries a trace of what was left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from cfnade._typing import IndexArray, IntArray
from cfnade.data.csr import row_offsets, stable_order
from cfnade.data.dataset import Axis, Dataset
from cfnade.data.scale import FloatArray
from cfnade.exceptions import DataError
from cfnade.utils.threads import parallel_map

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


VIEWS: dict[Axis, View] = {
    "user": View((0, 60, 600, HOUR, 12 * HOUR), (2, 5, 10, 25), 4.0),
    "item": View((3 * DAY, 14 * DAY, 60 * DAY), (10, 40), 8.0),
}


@dataclass(frozen=True)
class TimeHistory:
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
    def of(cls, ratings: Dataset, times: IntArray, side: Axis) -> TimeHistory:
        """A row's biases of the other side come from the rows of the other 7 of 8 folds.

        Row r is in fold r % 8. So nothing that a row says is in the biases that its own residuals
        are measured from, and leaving a rating out of its row leaves it out altogether.
        """
        rows, others = ratings.users, ratings.items
        n_rows, n_others = ratings.n_users, ratings.n_items
        if side == "item":
            rows, others, n_rows, n_others = others, rows, n_others, n_rows
        order = _by_row_and_time(rows, others, times)
        offsets = row_offsets(rows, n_rows)
        rows, others = rows[order], np.ascontiguousarray(others[order])
        stars = ratings.scale.array()
        values = ((stars - stars[0]) / (stars[-1] - stars[0]))[ratings.levels[order]]
        biases = _biases(offsets, others, values, n_others)
        residuals = np.rint((values - biases[rows % FOLDS, others]) / UNIT)
        return cls.from_residuals(offsets, times[order], others, residuals.astype(np.int32))

    @classmethod
    def from_residuals(
        cls, offsets: IntArray, times: IntArray, others: IndexArray, residuals: IndexArray
    ) -> TimeHistory:
        sums = np.zeros(len(residuals) + 1, np.int64)
        np.cumsum(residuals, out=sums[1:])
        return cls(offsets, times, others, residuals, sums)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def look(self, view: View, rows: IndexArray, others: IndexArray, times: IntArray) -> Floats:
        """Raw features, NaN where the row holds nothing else. Returns (n, view.width)."""
        features = np.empty((len(rows), view.width), np.float32)
        history = (self.offsets, self.times, self.others, self.sums)
        # arrays, not tuples: these would be compiled once for each length
        around = (np.array(view.windows), np.array(view.neighbours), view.shrink)
        _look_around((rows, others, times), history, *around, features)
        return features

    # -- on disk ----------------------------------------------------------------------------

    def arrays(self, side: Axis) -> dict[str, npt.NDArray[Any]]:
        """What is saved, by name."""
        return {f"{side}.{name}": getattr(self, name) for name in _SAVED}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]], side: Axis) -> TimeHistory:
        """What `arrays` gave, if it is of the right types; `check` looks at the numbers."""
        saved = []
        for name, dtype in _SAVED.items():
            array = arrays.get(f"{side}.{name}")
            if array is None or array.dtype != dtype or array.ndim != 1:
                raise DataError(f"time features need {side}.{name}, numbers of {dtype}")
            saved.append(np.array(array))
        return cls.from_residuals(*saved)

    def check(self, n_others: int, side: Axis) -> None:
        """Refuse what would make a kernel read beyond its arrays, or find nothing."""
        n = len(self.times)
        offsets, others = self.offsets, self.others
        if not len(self.others) == len(self.residuals) == n:
            raise DataError(f"time features: the {side} histories' arrays differ in length")
        rising = len(offsets) > 0 and np.diff(offsets).min(initial=0) >= 0
        if not rising or offsets[0] != 0 or offsets[-1] != n:
            raise DataError(f"time features: {side}.offsets do not rise from 0 to {n:,}")
        if n and (others.min() < 0 or others.max() >= n_others):
            raise DataError(f"time features: {side}.others must lie in 0..{n_others - 1}")


_SAVED = {"offsets": "int64", "times": "int64", "others": "int32", "residuals": "int32"}


def _by_row_and_time(rows: IndexArray, others: IndexArray, times: IntArray) -> IntArray:
    """Sorted by the last key first, each sort keeping the order of the one before. Returns (n,)."""
    order = np.arange(len(rows))
    for key in (others, times - times.min(), rows):
        step = stable_order(key[order], int(key.max(initial=0)) + 1)
        order = order if step is None else order[step]
    return order


def _biases(
    offsets: IntArray, columns: IndexArray, values: FloatArray, n_columns: int
) -> FloatArray:
    """μ + b of every column as the other folds' rows see it. Returns (FOLDS, n_columns)."""
    biases = np.empty((FOLDS, n_columns))

    def fit(fold: int) -> None:
        mean = _mean_without(fold, offsets, values)
        _biases_without(fold, offsets, columns, values, mean, biases[fold])
        biases[fold] += mean

    parallel_map(fit, range(FOLDS))
    return biases


# -- compiled -------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def _mean_without(fold: int, offsets: Any, values: Any) -> Any:
    """Mean of the values in rows r with r % FOLDS != fold; 0 if there is none."""
    total, count = 0.0, 0
    for row in range(len(offsets) - 1):
        if row % FOLDS != fold:
            count += offsets[row + 1] - offsets[row]
            for place in range(offsets[row], offsets[row + 1]):
                total += values[place]
    return total / max(count, 1)


@njit(cache=True, nogil=True)
def _biases_without(
    fold: int, offsets: Any, columns: Any, values: Any, mean: float, biases: Any
) -> None:
    """Fill biases (M,) of columns, fitted beside row biases on rows r with r % FOLDS != fold.

    A sweep renews each row's bias from those of its columns and adds what the row leaves over to
    its columns' sums: one pass over the ratings. Columns without a rating here get 0.
    """
    biases[:] = 0.0
    sums = np.empty(len(biases))
    counts = np.empty(len(biases), np.int64)
    for _ in range(SWEEPS):
        sums[:] = 0.0
        counts[:] = 0
        for row in range(len(offsets) - 1):
            if row % FOLDS == fold:
                continue
            first, last = offsets[row], offsets[row + 1]
            total = 0.0
            for place in range(first, last):
                total += values[place] - mean - biases[columns[place]]
            base = mean + total / (last - first + SHRINK)
            for place in range(first, last):
                sums[columns[place]] += values[place] - base
                counts[columns[place]] += 1
        for column in range(len(biases)):
            biases[column] = sums[column] / (counts[column] + SHRINK)


@njit(cache=True, nogil=True)
def _reaching(times: Any, first: int, last: int, moment: int) -> int:
    """The first place in first..last whose time is at least `moment`; last if there is none."""
    while first < last:
        middle = (first + last) >> 1
        if times[middle] < moment:
            first = middle + 1
        else:
            last = middle
    return first


@njit(cache=True, nogil=True)
def _own_place(times: Any, others: Any, first: int, last: int, moment: int, other: int) -> Any:
    """Where (moment, other) stands in a history sorted by time and then by the other index.

    Returns the end of what comes before and the start of what comes after: what lies between is
    the rating itself, if it is there.
    """
    before = _reaching(times, first, last, moment)
    while before < last and times[before] == moment and others[before] < other:
        before += 1
    own = before < last and times[before] == moment and others[before] == other
    return before, before + int(own)


@njit(cache=True, nogil=True)
def _signed_log_hours(seconds: int) -> float:
    return math.copysign(math.log1p(abs(seconds) / 3600.0), seconds)


@njit(cache=True, nogil=True)
def _look_around(
    cells: Any, history: Any, windows: Any, neighbours: Any, shrink: float, out: Any
) -> None:
    """Fill out with one side's features of each cell; NaN where its row holds nothing else.

    cells: row, other index and time of each cell; a row of -1 is unknown.
    history: offsets, times, others and running sums of residuals in units of UNIT.
    """
    rows, cell_others, moments = cells
    offsets, times, others, sums = history
    for cell in range(len(rows)):
        features = out[cell]
        row = rows[cell]
        features[:] = np.nan
        if row < 0:
            continue
        first, last, moment = offsets[row], offsets[row + 1], moments[cell]
        before, after = _own_place(times, others, first, last, moment, cell_others[cell])
        count = before - first + last - after
        if count == 0:
            continue
        mean = (sums[before] - sums[first] + sums[last] - sums[after]) / count
        early = _reaching(times, first, before, moment)
        late = _reaching(times, after, last, moment + 1)

        middle = early - first + 0.5 * (before - early + late - after + 1)
        features[0] = middle / (count + 1)
        oldest = times[first] if before > first else times[after]
        newest = times[last - 1] if after < last else times[before - 1]
        features[1] = _signed_log_hours(moment - oldest)
        features[2] = _signed_log_hours(newest - moment)
        place = 3
        for width in windows:  # rising, so each search starts where the one before ended
            early = _reaching(times, first, early, moment - width)
            late = _reaching(times, late, last, moment + width + 1)
            inside = before - early + late - after
            around = sums[before] - sums[early] + sums[late] - sums[after]
            features[place] = UNIT * (around - inside * mean) / (inside + shrink)
            features[place + 1] = math.log1p(inside)
            place += 2
        for reach in neighbours:
            early, late = max(first, before - reach), min(last, after + reach)
            inside = before - early + late - after
            around = sums[before] - sums[early] + sums[late] - sums[after]
            features[place] = UNIT * (around - inside * mean) / (inside + shrink)
            place += 1
