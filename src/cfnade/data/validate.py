"""Check a raw table and turn it into `Ratings`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from cfnade._typing import IndexArray, IntArray
from cfnade.data.dataset import Dataset, TimeArray, make_dataset, pair_keys
from cfnade.data.item_table import align_items, texts_or_none
from cfnade.data.raw_table import RawTable
from cfnade.data.scale import INTERACTIONS, Scale, bin_scale, infer_scale, parse_scale
from cfnade.exceptions import DataError
from cfnade.utils.text import option

if TYPE_CHECKING:
    from cfnade.data.load import LoadOptions

Duplicates = Literal["error", "first", "last", "mean"]
"""Which rating counts if a user rated an item several times ("last" is by position)."""
Weighting = Literal["linear", "log"]
"""The weight of a pair with the total count c: c, or 1 + ln c."""

_MANY_LEVELS = 11  # more without a name look like counts if most of them are low


def build(table: RawTable, options: LoadOptions) -> Dataset:
    """Check a raw table and turn it into ratings or interactions."""
    if not table.frame.height:
        raise DataError(f"{table.source or 'the data'}: no ratings in it")
    if options.implicit:
        table = replace(table, frame=table.frame.drop("rating", strict=False), scale=None)
    if options.min_rating is not None:
        table = keep_positive(table, options.min_rating)
    columns = {column.name: column for column in table.frame}
    implicit = "rating" not in columns
    _check_options(options, implicit=implicit)
    users, user_ids = encode_ids(columns["user"])
    items, item_ids = encode_ids(columns["item"])
    scale, levels = INTERACTIONS, np.zeros(len(users), np.uint8)
    if not implicit:
        values = columns["rating"].to_numpy()
        scale = _choose_scale(table, options, values)
        levels, on_scale = scale.levels_of(values)
        if not on_scale.all():
            row = int(np.argmin(on_scale))
            raise DataError(
                f"{table.locate(row)}: rating {values[row]:g} is off the scale {scale} "
                f"({int((~on_scale).sum()):,} such ratings); give the scale that this data uses"
            )
    texts = {}
    if table.item_table is not None:
        aligned = align_items(table.item_table.unique("item", keep="last"), item_ids)
        names = {"title", "genres"}.intersection(aligned.columns)
        texts = {name: texts_or_none(aligned[name]) for name in names}
    times = columns.get("time")
    ratings = make_dataset(
        users=users,
        items=items,
        levels=levels,
        scale=scale,
        user_ids=user_ids,
        item_ids=item_ids,
        times=None if times is None else compact_times(times.to_numpy()),
        titles=texts.get("title"),
        genres=texts.get("genres"),
        source=table.source,
    )
    if implicit:
        return aggregate_pairs(ratings, table, options.weighting)
    return resolve_duplicates(ratings, table, options.duplicates)


def keep_positive(table: RawTable, min_rating: float) -> RawTable:
    """Return the rows with at least this rating as interactions."""
    if table.implicit:
        raise DataError(
            f"{option('min_rating')} turns ratings into interactions; these are some already: "
            "leave it out"
        )
    values = table.frame["rating"].to_numpy()
    rows = np.flatnonzero(values >= min_rating)
    if len(rows) == 0:
        raise DataError(
            f"min_rating={min_rating:g}: no rating is as high, the highest is {values.max():g}; "
            "give a lower one"
        )
    return replace(table, frame=table.frame.drop("rating")[rows], scale=None)


def encode_ids(raw: pl.Series) -> tuple[IndexArray, npt.NDArray[Any]]:
    """Return dense indices and the ascending raw ids that they stand for. Shapes (n,), (N,)."""
    if raw.dtype == pl.String:
        distinct = raw.unique().sort()
        ids = np.empty(len(distinct), object)
        ids[:] = distinct.to_list()
        return raw.cast(pl.Enum(distinct)).to_physical().to_numpy().astype(np.int32), ids
    if not raw.dtype.is_integer():
        raise DataError(f"ids of type {raw.dtype} cannot be used; give integers or strings")
    array = raw.to_numpy()
    low, high = int(array.min()), int(array.max())
    if high > np.iinfo(np.int64).max:
        raise DataError(f"id {high} does not fit into 64 bits; give ids as strings")
    if high - low > 4 * len(array) + (1 << 20):
        ids, index = np.unique(array.astype(np.int64), return_inverse=True)
        return index.astype(np.int32), ids
    # Most ids are dense: a table of the ids that occur is far cheaper than sorting all ratings.
    shifted = array if low == 0 else array.astype(np.int64) - low
    seen = np.zeros(high - low + 1, bool)
    seen[shifted] = True
    index_of_id = np.cumsum(seen, dtype=np.int32)
    index_of_id -= 1
    return index_of_id[shifted], np.flatnonzero(seen).astype(np.int64) + low


def compact_times(times: npt.NDArray[Any]) -> TimeArray:
    """Return seconds in 32 bits if they fit."""
    fits = len(times) == 0 or bool(times.min() > -(2**31) and times.max() < 2**31)
    return times.astype(np.int32 if fits else np.int64, copy=False)


def _check_options(options: LoadOptions, *, implicit: bool) -> None:
    """Refuse options of ratings for interactions, and the other way round."""
    if not implicit and options.weighting != "linear":
        raise DataError(
            f"{option('weighting')} says what counts of interactions weigh, and these are ratings; "
            f"leave it out, or turn them into interactions with {option('min_rating', 4)} or "
            f"{option('implicit', True)}"
        )
    requested = {
        "duplicates": options.duplicates != "error",
        "scale": options.scale is not None,
        "bins": options.bins is not None,
    }
    for name in requested:
        if implicit and requested[name]:
            raise DataError(
                f"{option(name)} is for ratings, and these are interactions, of which repeated "
                "ones are counted; leave it out"
            )


def _choose_scale(table: RawTable, options: LoadOptions, values: npt.NDArray[Any]) -> Scale:
    """Return the scale as requested, stated by the source or inferred."""
    if options.scale is not None:
        return parse_scale(options.scale)
    if options.bins is None and table.scale is not None:
        return table.scale
    low, high = float(values.min()), float(values.max())
    label = f"{table.label}: " if table.label else ""
    unnamed = isinstance(table.rating_column, int) and options.rating is None
    try:
        if options.bins is not None:
            return bin_scale(options.bins, low, high)
        if values.dtype.kind in "ui" and values.dtype.itemsize == 1:  # far faster than a hash table
            seen = np.flatnonzero(np.bincount(values.view(np.uint8))).astype(np.uint8)
            scale = infer_scale(seen.view(values.dtype).astype(np.float64))
        else:
            scale = infer_scale(table.frame["rating"].unique().cast(pl.Float64).to_numpy())
    except DataError as error:
        is_amount = unnamed and options.bins is None and 0 < low < high
        raise DataError(f"{label}{error}{_weight_advice(table) if is_amount else ''}") from error
    most_are_low = low > 0 and float(np.median(values)) <= low + 0.2 * (high - low)
    if unnamed and len(scale) > _MANY_LEVELS and most_are_low:
        raise DataError(
            f"{label}column {table.rating_column} has no name and {len(scale)} levels, {scale}, "
            f"most ratings in the lowest fifth{_weight_advice(table)}, or {option('scale')} if "
            "they are ratings"
        )
    return scale


def _weight_advice(table: RawTable) -> str:
    weight = option("weight", table.rating_column)
    return f"; if they count or measure use (plays, hours), give {weight}"


# -- repeated pairs -------------------------------------------------------------------------------


def _has_repeats(ratings: Dataset) -> bool:
    """Return whether a pair occurs twice. Published files are often sorted, which shows it soon."""
    if _ascending(ratings.items, ratings.users) or _ascending(ratings.users, ratings.items):
        return False
    keys = pair_keys(ratings.users, ratings.items, ratings.n_items)
    keys.sort()
    return bool(np.any(keys[1:] == keys[:-1]))


def _ascending(outer: IndexArray, inner: IndexArray) -> bool:
    """Return whether pairs are sorted by both indices without repeats."""
    for start in range(0, len(outer), 1 << 20):
        part = slice(start, start + (1 << 20) + 1)
        outer_step, inner_step = np.diff(outer[part]), np.diff(inner[part])
        if not np.all((outer_step > 0) | ((outer_step == 0) & (inner_step > 0))):
            return False
    return True


def resolve_duplicates(ratings: Dataset, table: RawTable, policy: Duplicates) -> Dataset:
    """Return ratings with each pair once; identical rows are one rating whatever the policy."""
    if not _has_repeats(ratings):
        return ratings
    keys = pair_keys(ratings.users, ratings.items, ratings.n_items)
    if policy == "error":
        rows = _without_identical(ratings, keys)
        _check_unique(ratings, table, keys, rows)
        return ratings.select(rows)
    distinct, first, cell = np.unique(keys, return_index=True, return_inverse=True)
    if policy == "first":
        return ratings.select(np.sort(first))
    last = np.zeros(len(distinct), np.int64)
    last[cell] = np.arange(len(keys))  # later positions overwrite earlier ones
    if policy == "last":
        return ratings.select(np.sort(last))
    values = table.frame["rating"].to_numpy().astype(np.float64)
    means = np.bincount(cell, values) / np.bincount(cell)
    order = np.argsort(last)  # a pair stands where its last rating stood, on the nearest level
    return ratings.select(last[order]).replace(levels=ratings.scale.nearest(means)[order])


def _without_identical(ratings: Dataset, keys: IntArray) -> IntArray:
    """Return the first row of each user, item, rating and time, ascending."""
    columns = {"key": keys, "level": np.asarray(ratings.levels)}
    if ratings.times is not None:
        columns["time"] = np.asarray(ratings.times)
    frame = pl.DataFrame(columns).with_row_index("row")
    rows = frame.unique(list(columns), keep="first", maintain_order=True)["row"]
    return rows.to_numpy().astype(np.int64)


def _check_unique(ratings: Dataset, table: RawTable, keys: IntArray, rows: IntArray) -> None:
    """Raise if two of some rows are of the same user and item."""
    order = rows[np.argsort(keys[rows], kind="stable")]
    is_repeat = keys[order][1:] == keys[order][:-1]
    if not is_repeat.any():
        return
    place = int(np.argmax(is_repeat))
    first, repeat = int(order[place]), int(order[place + 1])
    user, item = ratings.user_ids[ratings.users[first]], ratings.item_ids[ratings.items[first]]
    values = table.frame["rating"]
    raise DataError(
        f"{table.locate(repeat)}: user {user} rated item {item} again ({values[repeat]:g}, "
        f"first {values[first]:g} at {table.locate(first)}); {int(is_repeat.sum()):,} repeated "
        f"ratings in all. Choose what counts, such as {option('duplicates', 'last')}; first and "
        "mean are the others"
    )


def aggregate_pairs(ratings: Dataset, table: RawTable, weighting: Weighting) -> Dataset:
    """Return each pair once: at its last position, with its latest time and its total weight."""
    weights = table.column("weight")
    if _has_repeats(ratings):
        ratings, weights = _total(ratings, weights)
    elif weights is None:
        return ratings
    if weighting == "log":
        if weights.min() < 1:  # 1 + ln of less than 1/e is no weight
            row = int(weights.argmin())
            user, item = ratings.user_ids[ratings.users[row]], ratings.item_ids[ratings.items[row]]
            raise DataError(
                f"user {user}, item {item}: weighs {weights[row]:g} in all; logarithms are for "
                f"counts of 1 or more: use {option('weighting', 'linear')}"
            )
        weights = 1 + np.log(weights)
    weights = weights.astype(np.float32)
    return ratings if np.all(weights == 1) else ratings.replace(weights=weights)


def _total(
    ratings: Dataset, weights: npt.NDArray[Any] | None
) -> tuple[Dataset, npt.NDArray[np.float64]]:
    """Return one interaction of each pair, and the sum of its weights or the count of its rows."""
    keys = pair_keys(ratings.users, ratings.items, ratings.n_items)
    order = np.argsort(keys, kind="stable")  # pair after pair, rows of a pair in file order
    keys = keys[order]
    starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    sizes = np.diff(starts, append=len(keys))
    last = order[starts + sizes - 1]
    file_order = np.argsort(last)
    once = ratings.select(last[file_order])
    if ratings.times is not None:
        latest = np.maximum.reduceat(ratings.times[order], starts)
        once = once.replace(times=latest[file_order])
    totals = sizes if weights is None else np.add.reduceat(weights[order], starts)
    return once, totals[file_order].astype(np.float64)
