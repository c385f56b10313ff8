"""The door: raw columns of any reader come in, checked `Ratings` go out, or one clear error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from cfnade._typing import IndexArray, IntArray
from cfnade.data.columns import Columns, Where, finite
from cfnade.data.dataset import Dataset, TimeArray, make_dataset, pair_keys
from cfnade.data.interactions import Weighting, counted, liked
from cfnade.data.scale import Scale, binned_scale, find_scale, given_scale
from cfnade.exceptions import DataError
from cfnade.utils.validation import options

Repeats = Literal["error", "first", "last", "mean"]
"""What to do with a second rating of the same item by the same user ("last" is by position)."""

_FOREVER = 2.0**63  # seconds; no later time fits


@options(DataError)
class Options:
    """How to understand ratings, whatever file they come from."""

    scale: str | Sequence[float] | Scale | None = None
    bins: int | Sequence[float] | None = None
    repeats: Repeats = "error"
    # not in the repr, by which caches know sources: see `counting`
    likes: float | None = field(default=None, repr=False)
    weights: Weighting = field(default="linear", repr=False)

    def __post_init__(self) -> None:
        if self.scale is not None and self.bins is not None:
            raise DataError("scale= and bins= exclude each other: give one of them")

    def rated(self) -> bool:
        """Whether something was said that only ratings have."""
        return not (self.scale is None and self.bins is None and self.likes is None)

    def counting(self) -> str:
        """What was said of interactions, for caches: nothing where nothing was said."""
        said = (self.likes, self.weights) != (None, "linear")
        return f" likes={self.likes!r} weights={self.weights!r}" if said else ""


def build(columns: Columns, options: Options | None = None) -> Dataset:
    """Check raw columns and turn them into `Ratings`."""
    options = options or Options()
    if len(columns.values) == 0:
        raise DataError(f"{columns.source or 'the data'}: no ratings in it")
    _check_lengths(columns)
    finite(columns.values, "rating", columns.where)
    if options.likes is not None:
        columns = liked(columns, options.likes)
    _check_options(columns, options)
    users, user_ids = index_of(columns.users)
    items, item_ids = index_of(columns.items)
    scale = _scale(columns, options)
    levels, on_scale = scale.levels_of(columns.values)
    if not on_scale.all():
        row = int(np.argmin(on_scale))
        raise DataError(
            f"{columns.where(row)}: rating {columns.values[row]:g} is off the scale {scale} "
            f"({int((~on_scale).sum()):,} such ratings); give the scale that this data uses"
        )
    ratings = make_dataset(
        users=users,
        items=items,
        levels=levels,
        scale=scale,
        user_ids=user_ids,
        item_ids=item_ids,
        times=None if columns.times is None else compact_times(columns.times, columns.where),
        titles=_aligned(columns.titles, item_ids),
        genres=_aligned(columns.genres, item_ids),
        source=columns.source,
    )
    if columns.implicit:
        return counted(ratings, columns, options.weights, bool(_repeated(ratings)))
    return _without_repeats(ratings, columns, options.repeats)


def _check_options(columns: Columns, options: Options) -> None:
    """Refuse options of ratings for interactions, and the other way round."""
    if not columns.implicit and options.weights != "linear":
        raise DataError(
            "weights= says what counts of interactions weigh, and these are ratings; leave it out, "
            'or turn them into interactions with likes=4 or rating="-"'
        )
    if columns.implicit and options.repeats != "error":
        raise DataError("repeats= is for ratings; repeated interactions are counted: leave it out")
    for name in ("scale", "bins"):
        if columns.implicit and getattr(options, name) is not None:
            raise DataError(f"{name}= is for ratings, and these are interactions; leave it out")


def index_of(raw: npt.NDArray[Any] | pl.Series) -> tuple[IndexArray, npt.NDArray[Any]]:
    """Compact indices and the rising raw ids that they stand for. Returns (n,), (N,)."""
    if isinstance(raw, np.ndarray):
        return _index_integers(raw)
    if raw.dtype.is_integer():
        return _index_integers(raw.to_numpy())
    distinct = raw.unique().sort()
    ids = np.empty(len(distinct), object)
    ids[:] = distinct.to_list()
    return raw.cast(pl.Enum(distinct)).to_physical().to_numpy().astype(np.int32), ids


def _index_integers(raw: npt.NDArray[Any]) -> tuple[IndexArray, npt.NDArray[np.int64]]:
    if raw.dtype.kind not in "ui":
        raise DataError(f"ids of type {raw.dtype} cannot be used; give integers or strings")
    low, high = int(raw.min()), int(raw.max())
    if high > np.iinfo(np.int64).max:
        raise DataError(f"id {high} does not fit into 64 bits; give ids as strings")
    if high - low > 4 * len(raw) + (1 << 20):
        ids, index = np.unique(raw.astype(np.int64), return_inverse=True)
        return index.astype(np.int32), ids
    # Most ids are dense: a table of who occurs is far cheaper than sorting all ratings.
    shifted = raw if low == 0 else raw.astype(np.int64) - low
    seen = np.zeros(high - low + 1, bool)
    seen[shifted] = True
    ids = np.flatnonzero(seen).astype(np.int64) + low
    table = np.cumsum(seen, dtype=np.int32)
    table -= 1
    return table[shifted], ids


def compact_times(times: npt.NDArray[Any], where: Where = "row {}".format) -> TimeArray:
    """Whole seconds, in 32 bits while they fit."""
    wrong = ~np.isfinite(times) | (times <= -_FOREVER) | (times >= _FOREVER)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise DataError(f"{where(row)}: time {times[row]} is not a number of seconds since 1970")
    fits = len(times) == 0 or bool(times.min() > -(2**31) and times.max() < 2**31)
    return times.astype(np.int32 if fits else np.int64, copy=False)


def _check_lengths(columns: Columns) -> None:
    parts = {"users": columns.users, "items": columns.items, "ratings": columns.values}
    optional_parts = {"times": columns.times, "weights": columns.weights}
    parts |= {word: part for word, part in optional_parts.items() if part is not None}
    lengths = {word: len(part) for word, part in parts.items()}
    if len(set(lengths.values())) > 1:
        said = ", ".join(f"{n:,} {word}" for word, n in lengths.items())
        raise DataError(f"the columns have different lengths: {said}")


def _scale(columns: Columns, options: Options) -> Scale:
    if options.scale is not None:
        return given_scale(options.scale)
    if options.bins is not None:
        low, high = float(columns.values.min()), float(columns.values.max())
        return binned_scale(options.bins, low, high)
    return columns.scale or find_scale(_distinct(columns.values))


def _distinct(values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    if values.dtype.kind in "ui" and values.dtype.itemsize == 1:
        counts = np.bincount(values.view(np.uint8), minlength=256)
        return np.flatnonzero(counts).astype(np.uint8).view(values.dtype).astype(np.float64)
    return pl.Series(values).unique().cast(pl.Float64).to_numpy()


def _aligned(by_id: Mapping[Any, str], ids: npt.NDArray[Any]) -> npt.NDArray[np.object_] | None:
    """Texts in the order of the ids; None if not one is known."""
    texts = np.empty(len(ids), object)
    texts[:] = [by_id.get(raw, "") for raw in ids.tolist()] if by_id else ""
    return texts if any(texts) else None


def _repeated(ratings: Dataset) -> int:
    """How many ratings are not the first of their cell."""
    if _rising(ratings.items, ratings.users) or _rising(ratings.users, ratings.items):
        return 0
    keys = pair_keys(ratings.users, ratings.items, ratings.n_items)
    keys.sort()
    return int((keys[1:] == keys[:-1]).sum())


def _without_repeats(ratings: Dataset, columns: Columns, policy: Repeats) -> Dataset:
    repeats = _repeated(ratings)
    if repeats == 0:
        return ratings
    keys = pair_keys(ratings.users, ratings.items, ratings.n_items)
    if policy == "error":
        raise DataError(_repeat_message(ratings, columns, keys, repeats))
    distinct, first, cell = np.unique(keys, return_index=True, return_inverse=True)
    if policy == "first":
        return ratings.select(np.sort(first))
    last = np.zeros(len(distinct), np.int64)
    last[cell] = np.arange(len(keys))  # later positions overwrite earlier ones
    if policy == "last":
        return ratings.select(np.sort(last))
    return _averaged(ratings, columns, cell, last)


def _rising(outer: IndexArray, inner: IndexArray) -> bool:
    """Whether ratings stand sorted by both indices without repeats: published files often do."""
    for start in range(0, len(outer), 1 << 20):
        part = slice(start, start + (1 << 20) + 1)
        outer_step, inner_step = np.diff(outer[part]), np.diff(inner[part])
        if not np.all((outer_step > 0) | ((outer_step == 0) & (inner_step > 0))):
            return False
    return True


def _averaged(
    ratings: Dataset, columns: Columns, cell: npt.NDArray[Any], last: IntArray
) -> Dataset:
    """One rating a cell: the mean of its ratings, moved to the nearest level."""
    means = np.bincount(cell, columns.values.astype(np.float64)) / np.bincount(cell)
    order = np.argsort(last)
    levels = ratings.scale.nearest(means)[order]
    return ratings.select(last[order]).replace(levels=levels)


def _repeat_message(ratings: Dataset, columns: Columns, keys: IntArray, repeats: int) -> str:
    order = np.argsort(keys, kind="stable")
    place = int(np.argmax(keys[order][1:] == keys[order][:-1]))
    first, again = int(order[place]), int(order[place + 1])
    user, item = ratings.user_ids[ratings.users[first]], ratings.item_ids[ratings.items[first]]
    return (
        f"{columns.where(again)}: user {user} rated item {item} again ({columns.values[again]:g}, "
        f"first {columns.values[first]:g} at {columns.where(first)}); {repeats:,} repeated ratings "
        'in all. Choose what counts, such as repeats="last"; first and mean are the others'
    )
