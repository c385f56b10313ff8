"""Time features of a rating: what its user and its item said around that moment.

They are made from training ratings alone, and a rating is never in its own features: whatever its
level was, they are the same. docs/concepts/components.md lists them with their units.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from cfnade._typing import IndexArray, IntArray
from cfnade.components.time_history import VIEWS, Floats, TimeHistory, View
from cfnade.data.dataset import Axis, Dataset
from cfnade.data.scale import FloatArray
from cfnade.exceptions import DataError
from cfnade.utils.threads import chunk_slices, parallel_map

LIMIT = 5.0
"""Standardised features are clipped here, on both sides of 0."""

_LATEST = 1 << 52  # seconds: exact in float64, and windows around it fit int64
_CHUNK = 1 << 15


def _names(side: Axis, view: View) -> list[str]:
    names = [f"{side} {feature}" for feature in ("position", "since first", "to last")]
    for width in view.windows:
        names += [f"{side} mean ±{width} s", f"{side} count ±{width} s"]
    return names + [f"{side} mean ±{reach} ratings" for reach in view.neighbours]


FEATURES = (
    *_names("user", VIEWS["user"]),
    *_names("item", VIEWS["item"]),
    *("date", "date²"),
)
"""The names of the F features, in order."""


@dataclass(frozen=True)
class TimeFeatures:
    """Histories in time, and how features are standardised. Made by `TimeFeatures.of(train)`."""

    user: TimeHistory
    item: TimeHistory
    period: FloatArray  # (2,) middle of the training's time and half its length, in seconds
    centre: FloatArray  # (F,) mean of the raw feature over the training ratings
    spread: FloatArray  # (F,) its standard deviation; 1 where it is constant
    training: Dataset | None = None
    """Not saved: only `features_of_training` asks for it."""

    @classmethod
    def of(cls, train: Dataset) -> TimeFeatures:
        """From ratings with times. Their order does not matter: the same set, the same bits."""
        if train.times is None:
            raise DataError("these ratings have no timestamps; time features need them")
        if not len(train):
            raise DataError("there are no ratings to make time features from")
        times = _seconds(train.times)
        first, last = int(times.min()), int(times.max())
        plain = cls(
            user=TimeHistory.of(train, times, "user"),
            item=TimeHistory.of(train, times, "item"),
            period=np.array([(first + last) / 2, max(last - first, 1) / 2]),
            centre=np.zeros(len(FEATURES)),
            spread=np.ones(len(FEATURES)),
            training=train,
        )
        centre, spread = plain._moments()
        return replace(plain, centre=centre, spread=spread)

    def features_of_training(self) -> Floats:
        """Features of the training ratings in their order, each left out. Returns (n, F)."""
        train = self.training
        if train is None or train.times is None:
            raise DataError(
                "loaded time features do not know in which order the training ratings were; "
                "features(users, items, times) of those ratings gives the same"
            )
        return self.features(train.users, train.items, train.times)

    def features(self, users: npt.ArrayLike, items: npt.ArrayLike, times: npt.ArrayLike) -> Floats:
        """Features of cells (indices, -1 if unknown) at times in whole seconds since 1970.

        A training rating of this very cell at this very time is left out. A side on which nothing
        (else) is known has features 0, the mean of the training ratings. Returns (n, F).
        """
        user = _indices(users, "user", len(self.user))
        item = _indices(items, "item", len(self.item))
        time = _seconds(times)
        if not len(user) == len(item) == len(time):
            raise DataError(
                f"{len(user):,} users, {len(item):,} items and {len(time):,} times do not make "
                "cells; give one of each for every cell"
            )
        out = np.empty((len(user), len(FEATURES)), np.float32)
        centre, spread = self.centre.astype(np.float32), self.spread.astype(np.float32)

        def fill(chunk: slice) -> None:
            raw = self._raw(user[chunk], item[chunk], time[chunk])
            np.clip((raw - centre) / spread, -LIMIT, LIMIT, out=raw)
            out[chunk] = np.nan_to_num(raw, nan=0.0)

        parallel_map(fill, chunk_slices(len(out), _CHUNK))
        return out

    def _raw(self, users: IndexArray, items: IndexArray, times: IntArray) -> Floats:
        """Features before standardisation; NaN where a side knows nothing else. Returns (n, F)."""
        of_user = self.user.look(VIEWS["user"], users, items, times)
        of_item = self.item.look(VIEWS["item"], items, users, times)
        date = (times - self.period[0]) / self.period[1]
        dates = np.stack([date, np.square(date)], 1).astype(np.float32)
        return np.concatenate([of_user, of_item, dates], 1)

    def _moments(self) -> tuple[FloatArray, FloatArray]:
        """Mean and deviation of raw features over training ratings on whose side others are."""
        history = self.user
        users = np.repeat(np.arange(len(history), dtype=np.int32), np.diff(history.offsets))

        def sums(chunk: slice) -> FloatArray:
            raw = self._raw(users[chunk], history.others[chunk], history.times[chunk])
            there = ~np.isnan(raw)
            values = np.where(there, raw, 0).astype(np.float64)
            return np.stack([there.sum(0), values.sum(0), np.square(values).sum(0)])

        # The history's order and whole chunks, summed in turn: no thread and no file changes bits.
        parts = parallel_map(sums, chunk_slices(len(users), _CHUNK))
        count, total, square = sum(parts, np.zeros((3, len(FEATURES))))
        count = np.maximum(count, 1)
        centre = total / count
        spread = np.sqrt(np.maximum(square / count - np.square(centre), 0.0))
        return centre, np.where(spread > 1e-6 * np.maximum(np.abs(centre), 1e-3), spread, 1.0)

    # -- on disk ----------------------------------------------------------------------------

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """All that features of further cells need, by name, to be saved."""
        arrays = {name: getattr(self, name) for name in ("period", "centre", "spread")}
        return {**arrays, **self.user.arrays("user"), **self.item.arrays("item")}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> TimeFeatures:
        """What `arrays` gave; anything else is refused."""
        numbers = {}
        for name, size in (("period", 2), ("centre", len(FEATURES)), ("spread", len(FEATURES))):
            array = arrays.get(name)
            if array is None or array.dtype != np.float64 or array.shape != (size,):
                raise DataError(f"time features need {name}, {size} numbers of float64")
            numbers[name] = array
        divisors = np.append(numbers["spread"], numbers["period"][1])
        if not all(np.isfinite(array).all() for array in numbers.values()) or divisors.min() <= 0:
            raise DataError("time features: period, centre and spread must be finite, spread > 0")
        user = TimeHistory.from_arrays(arrays, "user")
        item = TimeHistory.from_arrays(arrays, "item")
        user.check(len(item), "user")
        item.check(len(user), "item")
        return cls(user, item, numbers["period"], numbers["centre"], numbers["spread"])


def _indices(indices: npt.ArrayLike, noun: str, count: int) -> IndexArray:
    array = _integers(indices, f"{noun}s must be a list of whole numbers")
    if len(array) and not (array.min() >= -1 and array.max() < count):
        raise DataError(
            f"{noun} {array.min()}..{array.max()} is outside: known are 0..{count - 1}, "
            "and -1 stands for unknown"
        )
    return np.array(array, np.int32)  # never read-only, which would be compiled apart


def _seconds(times: npt.ArrayLike) -> IntArray:
    array = _integers(times, "times must be a list of whole seconds since 1970")
    if len(array) and not (array.min() > -_LATEST and array.max() < _LATEST):
        raise DataError(f"times {array.min()}..{array.max()} are beyond ±{_LATEST} seconds")
    return np.array(array, np.int64)


def _integers(values: npt.ArrayLike, rule: str) -> npt.NDArray[Any]:
    array = np.asarray(values)
    if array.ndim != 1 or (len(array) and array.dtype.kind not in "iu"):
        raise DataError(f"{rule}, not {array.dtype} {array.shape}")
    return array
