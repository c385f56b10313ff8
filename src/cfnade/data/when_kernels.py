"""Compiled loops of the time features: biases without a fold of rows, and looking around in time.

All are serial over a range of their work and release the GIL. Sums of residuals are sums of
integers: exact, so no rounding carries a trace of what was left out.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def mean_without(fold: int, folds: int, offsets: Any, values: Any) -> Any:
    """Mean of the values in rows r with r % folds != fold; 0 if there is none."""
    total, count = 0.0, 0
    for row in range(len(offsets) - 1):
        if row % folds != fold:
            count += offsets[row + 1] - offsets[row]
            for at in range(offsets[row], offsets[row + 1]):
                total += values[at]
    return total / max(count, 1)


@njit(cache=True, nogil=True)
def biases_without(
    fold: int,
    folds: int,
    offsets: Any,
    columns: Any,
    values: Any,
    mean: float,
    sweeps: int,
    shrink: float,
    biases: Any,
) -> None:
    """Fill biases (M,) of columns, fitted beside row biases on rows r with r % folds != fold.

    A sweep renews each row's bias from those of its columns and adds what the row leaves over to
    its columns' sums: one pass over the ratings. Columns without a rating here get 0.
    """
    biases[:] = 0.0
    sums = np.empty(len(biases))
    counts = np.empty(len(biases), np.int64)
    for _ in range(sweeps):
        sums[:] = 0.0
        counts[:] = 0
        for row in range(len(offsets) - 1):
            if row % folds == fold:
                continue
            first, last = offsets[row], offsets[row + 1]
            total = 0.0
            for at in range(first, last):
                total += values[at] - mean - biases[columns[at]]
            base = mean + total / (last - first + shrink)
            for at in range(first, last):
                sums[columns[at]] += values[at] - base
                counts[columns[at]] += 1
        for column in range(len(biases)):
            biases[column] = sums[column] / (counts[column] + shrink)


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
def look_around(
    cells: Any,
    history: Any,
    windows: Any,
    neighbours: Any,
    shrink: float,
    unit: float,
    out: Any,
) -> None:
    """Fill out with one side's features of each cell; NaN where its row holds nothing else.

    cells: row, other index and time of each cell; a row of -1 is unknown.
    history: offsets, times, others and running sums of residuals in units of `unit`.
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
        at = 3
        for width in windows:  # rising, so each search starts where the one before ended
            early = _reaching(times, first, early, moment - width)
            late = _reaching(times, late, last, moment + width + 1)
            inside = before - early + late - after
            around = sums[before] - sums[early] + sums[late] - sums[after]
            features[at] = unit * (around - inside * mean) / (inside + shrink)
            features[at + 1] = math.log1p(inside)
            at += 2
        for reach in neighbours:
            early, late = max(first, before - reach), min(last, after + reach)
            inside = before - early + late - after
            around = sums[before] - sums[early] + sums[late] - sums[after]
            features[at] = unit * (around - inside * mean) / (inside + shrink)
            at += 1
