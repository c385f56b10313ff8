"""The rating scale: which values the levels 0, 1, 2 … stand for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from annotated_types import Ge, Le

from cfnade.exceptions import DataError
from cfnade.utils.text import option
from cfnade.utils.validation import check_scalar

MAX_LEVELS = 255
"""Levels are stored in one byte; finer ratings are continuous for our purposes."""

_ONE_LEVEL = (1.0,)
_CHUNK = 1 << 20  # ratings placed on the scale at a time
_DECIMALS = 4  # the finest grid that counts as a scale: steps of 0.0001
_RANGE = re.compile(r"(-?\d+(?:\.\d+)?)(?:-|–|\.\.)(-?\d+(?:\.\d+)?)(?:/(\d+(?:\.\d+)?))?")

FloatArray = npt.NDArray[np.float64]
LevelArray = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Scale:
    """Ascending values, one for each level; `edges` are the inner bounds of binned ratings."""

    values: tuple[float, ...]
    edges: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if not 2 <= len(self.values) <= MAX_LEVELS and self.values != _ONE_LEVEL:
            raise _wrong_size(self.values)
        if not np.isfinite(self.values).all() or not np.all(np.diff(self.values) > 0):
            raise DataError(
                f"values of a scale must be finite and ascending, got {self.values[:9]}"
            )
        inner = len(self.values) - 1
        if self.edges is not None and not (
            len(self.edges) == inner and np.all(np.diff(self.edges) > 0)
        ):
            raise DataError(f"{len(self.values)} bins need {inner} ascending edges")

    @classmethod
    def saved(cls, values: Sequence[float], edges: Sequence[float] | None) -> Scale:
        """Return the scale of values and edges from JSON."""
        return cls(tuple(map(float, values)), None if edges is None else tuple(map(float, edges)))

    def __len__(self) -> int:
        return len(self.values)

    def __str__(self) -> str:
        if len(self) == 1:
            return "interactions"
        low, high = f"{self.values[0]:g}", f"{self.values[-1]:g}"
        steps = np.diff(self.values)
        if self.edges is not None:
            return f"{low}–{high} in {len(self)} bins"
        if np.allclose(steps, 1.0):
            return f"{low}–{high}"
        if np.allclose(steps, steps[0]):
            return f"{low}–{high} by {steps[0]:g}"
        return ", ".join(f"{v:g}" for v in self.values)

    @property
    def default_threshold(self) -> float:
        """The lowest good rating: the first in the upper quarter, 4 of 1–5, 8 of 1–10."""
        values = self.array()
        return float(values[np.searchsorted(values, values[0] + 0.75 * (values[-1] - values[0]))])

    def array(self) -> FloatArray:
        """Return the values as an array. Shape (K,)."""
        return np.array(self.values, np.float64)

    def nearest(self, values: FloatArray) -> LevelArray:
        """Return the level that each value belongs to, on the scale or not. Shape (n,)."""
        return self.levels_of(values)[0]

    def levels_of(self, values: npt.NDArray[Any]) -> tuple[LevelArray, npt.NDArray[np.bool_]]:
        """Return the levels of values, and which of them lie on the scale. Shapes (n,), (n,)."""
        if values.dtype.kind in "ui" and values.dtype.itemsize == 1:
            possible = np.arange(256, dtype=np.uint8).view(values.dtype)
            levels, fits = self.levels_of(possible.astype(np.float64))
            return levels[values.view(np.uint8)], fits[values.view(np.uint8)]
        levels, fits = np.empty(len(values), np.uint8), np.empty(len(values), bool)
        grid = np.array(self.values)
        cuts = (grid[1:] + grid[:-1]) / 2 if self.edges is None else self.edges
        # Rounding of float32 is no fault, but 10⁷ and 10⁷ + 0.5 are two levels.
        tolerance = 1e-6 * max(1.0, float(np.abs(grid).max()))
        tolerance = min([tolerance, *(np.diff(grid) / 10).tolist()])
        for start in range(0, len(values), _CHUNK):  # bounds the memory of the temporaries
            part = slice(start, start + _CHUNK)
            levels[part] = np.searchsorted(cuts, values[part], side="right")
            if self.edges is None:
                fits[part] = np.abs(grid[levels[part]] - values[part]) <= tolerance
            else:
                fits[part] = np.isfinite(values[part])
        return levels, fits


INTERACTIONS = Scale(_ONE_LEVEL)
"""The scale of interactions (clicks, plays, purchases): it has one level."""


def _wrong_size(values: tuple[float, ...]) -> DataError:
    return DataError(f"a scale needs 2 to {MAX_LEVELS} levels, got {len(values)}: {values[:6]}")


def infer_scale(distinct: FloatArray) -> Scale:
    """Return the even grid that holds all these ratings: half stars, 1–10, 1–100 and so on.

    The grid runs from the lowest to the highest rating, in the largest step that reaches all of
    them, so a level without ratings is still a level.
    """
    distinct = np.unique(distinct)
    if len(distinct) == 0:
        raise DataError(f"there are no ratings to infer a scale from; give {option('scale')}")
    if len(distinct) == 1:
        raise DataError(
            f"every rating is {distinct[0]:g}, so the scale cannot be inferred; give it, as in "
            f"{option('scale', '1-5')}, or take every line as an interaction with "
            f"{option('implicit', True)}"
        )
    for decimals in range(_DECIMALS + 1):
        scaled = np.clip(distinct, -1e300, 1e300) * 10**decimals
        integers = np.rint(scaled)
        rounding = np.minimum(1e-6 + 1e-7 * np.abs(integers), 0.01)
        if np.all(np.abs(scaled - integers) <= rounding) and np.abs(integers).max() < 2**53:
            step = int(np.gcd.reduce(np.diff(integers).astype(np.int64)))
            count = int(integers[-1] - integers[0]) // max(step, 1) + 1
            if step > 0 and count <= MAX_LEVELS:
                grid = integers[0] + step * np.arange(count)
                return Scale(tuple((grid / 10**decimals).tolist()))
            break
    raise DataError(
        f"ratings look continuous: {len(distinct):,} distinct values from {distinct[0]:g} to "
        f"{distinct[-1]:g} fit no even scale of at most {MAX_LEVELS} levels; "
        f"bin them with {option('bins', 10)}, or give {option('scale')}"
    )


def parse_scale(scale: str | Sequence[float] | Scale) -> Scale:
    """Return the scale that "1-5", "0.5-5/0.5" or the values themselves describe."""
    if isinstance(scale, Scale):
        return scale
    if not isinstance(scale, str):
        values = _numbers(scale, "scale")
        if len(values) == 1:  # ratings of one level would pass for interactions
            raise _wrong_size(values)
        return Scale(values)
    match = _RANGE.fullmatch(scale.strip())
    if match is None:
        raise DataError(f'scale {scale!r} is not understood; write "1-5" or "0.5-5/0.5"')
    low, high, step = float(match[1]), float(match[2]), float(match[3] or 1)
    count = round((high - low) / step) + 1 if step > 0 else 0
    if count < 2 or abs(low + (count - 1) * step - high) > 1e-9 * max(1.0, abs(high)):
        raise DataError(f"scale {scale!r}: from {low:g} to {high:g} is no whole number of steps")
    if count > MAX_LEVELS:
        raise DataError(
            f"scale {scale!r} has {count:,} levels, at most {MAX_LEVELS}; use {option('bins')}"
        )
    return Scale(tuple(round(low + i * step, 9) for i in range(count)))


def _numbers(values: Sequence[float], noun: str) -> tuple[float, ...]:
    try:
        return tuple(float(value) for value in values)
    except (TypeError, ValueError):
        raise DataError(f"{noun} {values!r} is not a list of numbers") from None


def bin_scale(bins: int | Sequence[float], low: float, high: float) -> Scale:
    """Return equal bins from low to high, or bins between edges; their values are the middles."""
    if isinstance(bins, int | np.integer):
        count = check_scalar("bins", bins, int, Ge(2), Le(MAX_LEVELS), error=DataError)
        if not low < high:
            raise DataError(f"bins={bins}: every rating is {low:g}, there is nothing to bin")
        edges = np.linspace(low, high, count + 1)
    else:
        edges = np.array(_numbers(bins, "bins"))
        if len(edges) < 3 or not np.all(np.diff(edges) > 0):
            raise DataError(f"bins={list(bins)}: give at least 3 ascending edges")
        if low < edges[0] or high > edges[-1]:
            raise DataError(
                f"bins={list(bins)}: ratings run from {low:g} to {high:g}, beyond the edges"
            )
    middles = (edges[1:] + edges[:-1]) / 2
    return Scale(tuple(middles.tolist()), tuple(edges[1:-1].tolist()))
