"""Immutable data sets: pairs of a user and an item, as ratings or as interactions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import numpy.typing as npt

from cfnade._typing import Array, IndexArray, IntArray
from cfnade.data import csr
from cfnade.data.csr import CsrRows, offsets_from_counts
from cfnade.data.scale import INTERACTIONS, LevelArray, Scale
from cfnade.exceptions import DataError
from cfnade.utils.caching import Memo
from cfnade.utils.text import count_of

if TYPE_CHECKING:
    import polars as pl

Axis = Literal["user", "item"]
IdArray = npt.NDArray[Any]  # rising; int64, or object holding str
TextArray = npt.NDArray[np.object_]
TimeArray = npt.NDArray[np.signedinteger[Any]]
WeightArray = npt.NDArray[np.float32]
LabelArray = npt.NDArray[np.uint8]

OTHER_AXIS: dict[Axis, Axis] = {"user": "item", "item": "user"}

_COLUMNS = ("users", "items", "levels", "times", "weights")
TABLES = ("user_ids", "item_ids", "titles", "genres")
"""Attributes with an entry for each user or item."""
_IN_FINGERPRINT = ("users", "items", "levels", "user_ids", "item_ids", "times", "titles", "genres")


@dataclass(frozen=True, eq=False)
class Subset:
    """Rows of a data set chosen by label, without copies of its columns."""

    labels: LabelArray
    """(n,) label of every row of the base data set; must not change."""
    keep: tuple[int, ...]
    """Rows with these labels, one label after the other."""

    @cached_property
    def size(self) -> int:
        """Number of rows."""
        return sum(len(chunk) for (chunk,) in self.chunks(self.labels))

    def chunks(self, *columns: Array) -> Iterator[tuple[Array, ...]]:
        """Yield the rows of some columns of the base data set, chunk by chunk."""
        for label in self.keep:
            for start in range(0, len(self.labels), csr.CHUNK):
                rows = slice(start, start + csr.CHUNK)
                mask = self.labels[rows] == label
                if mask.any():
                    yield tuple(column[rows][mask] for column in columns)

    def copy(self, column: Array) -> Array:
        """Return the rows of a column of the base data set, (size,)."""
        out, end = np.empty(self.size, column.dtype), 0
        for (chunk,) in self.chunks(column):
            out[end : end + len(chunk)] = chunk
            end += len(chunk)
        return out


class Dataset(Memo):
    """Pairs of a user and an item in file order; raw ids outside, dense indices inside. Immutable.

    Index i of a user is the i-th smallest raw id. Subsets keep the id tables of the whole, so an
    index means the same in each. The columns of a subset are copied on first access; `chunks` reads
    them without that. `item_features` has the other columns of the table of items that `load`
    joined, (M, F); files and the fingerprint do not hold them.

    Args:
        users: Index of each pair's user in `user_ids`, (n,).
        items: Index of each pair's item in `item_ids`, (n,).
        levels: Index of each rating in the scale's values, (n,); 0 for interactions.
        scale: The rating scale, or `INTERACTIONS`.
        user_ids: Raw ids of users, rising: int64, or object holding str, (N,).
        item_ids: Raw ids of items, rising, (M,).
        times: Seconds since 1970, (n,); int32 while they fit.
        titles: Titles of items, "" where unknown, (M,).
        genres: Genres of items, such as "Comedy|Drama", "" where unknown, (M,).
        source: Name of the published data set, and of the copy if it is not the publisher's own.
        weights: Weights of interactions, above 0, (n,); None if each counts once.
    """

    users: IndexArray
    items: IndexArray
    levels: LevelArray
    times: TimeArray | None
    weights: WeightArray | None
    scale: Scale
    user_ids: IdArray
    item_ids: IdArray
    titles: TextArray | None
    genres: TextArray | None
    source: str
    item_features: pl.DataFrame | None
    _columns: dict[str, Array]  # of the base data set
    _subset: Subset | None

    def __init__(
        self,
        users: IndexArray,
        items: IndexArray,
        levels: LevelArray,
        scale: Scale,
        user_ids: IdArray,
        item_ids: IdArray,
        times: TimeArray | None = None,
        titles: TextArray | None = None,
        genres: TextArray | None = None,
        source: str = "",
        weights: WeightArray | None = None,
    ) -> None:
        optional = {"times": times, "weights": weights}
        columns: dict[str, Array] = {"users": users, "items": items, "levels": levels}
        columns |= {name: column for name, column in optional.items() if column is not None}
        ids = {"user_ids": user_ids, "item_ids": item_ids}
        texts = {"titles": titles, "genres": genres}
        self._set(columns, None, **ids, **texts, scale=scale, source=source, item_features=None)

    def _set(self, columns: dict[str, Array], subset: Subset | None, **attributes: Any) -> None:
        lengths = {name: len(column) for name, column in columns.items()}
        if len(set(lengths.values())) > 1:
            sizes = ", ".join(f"{length:,} {name}" for name, length in lengths.items())
            raise DataError(f"the columns have different lengths: {sizes}")
        columns = {name: read_only(column) for name, column in columns.items()}
        for name, value in attributes.items():
            self.__dict__[name] = read_only(value) if isinstance(value, np.ndarray) else value
        self.__dict__.update(_columns=columns, _subset=subset)
        if subset is None:
            self.__dict__.update(dict.fromkeys(_COLUMNS) | columns)

    def _derive(self, columns: dict[str, Array], subset: Subset | None, **changes: Any) -> Self:
        """Return a data set with other columns and some other attributes."""
        dataset = object.__new__(type(self))
        dataset._set(columns, subset, **self._attributes() | changes)
        return dataset

    def __getattr__(self, name: str) -> Any:
        """Copy the rows of a subset's column when it is first accessed."""
        if name not in _COLUMNS:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        subset, column = self._subset, self._columns.get(name)
        if subset is not None and column is not None:
            base = column
            column = self.memo(name, lambda: read_only(subset.copy(base)))
        self.__dict__[name] = column
        return column

    def __setattr__(self, name: str, _: object) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable: cannot assign to {name!r}")

    def __getstate__(self) -> Any:
        """For other processes: a subset with its own rows alone, and without cached values."""
        return self._own_columns(), self._attributes()

    def __setstate__(self, state: tuple[dict[str, Array], dict[str, Any]]) -> None:
        columns, attributes = state
        self._set(columns, None, **attributes)

    def _own_columns(self) -> dict[str, Array]:
        """Return the columns with the rows of this data set alone."""
        return {name: getattr(self, name) for name in self._columns}

    def _attributes(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in (*TABLES, "item_features", "scale", "source")}

    @property
    def dtypes(self) -> dict[str, np.dtype[Any]]:
        """Types of the columns: users, items, levels and, if present, times and weights."""
        return {name: self._columns[name].dtype for name in _COLUMNS if name in self._columns}

    def chunks(self, *columns: str) -> Iterator[tuple[Array, ...]]:
        """Yield some columns, four million rows at a time."""
        arrays = [self._columns[name] for name in columns]
        if self._subset is not None:
            yield from self._subset.chunks(*arrays)
            return
        for start in range(0, len(self), csr.CHUNK):
            yield tuple([array[start : start + csr.CHUNK] for array in arrays])

    def __len__(self) -> int:
        return len(self._columns["users"]) if self._subset is None else self._subset.size

    @property
    def values(self) -> npt.NDArray[np.float64]:
        """The ratings on the data's own scale, (n,)."""
        return self.scale.array()[self.levels]

    @property
    def implicit(self) -> bool:
        """Whether these are interactions: there are no ratings, all levels are 0."""
        return self.scale == INTERACTIONS

    @property
    def n_users(self) -> int:
        """Number of users, also of those without a row here."""
        return len(self.user_ids)

    @property
    def n_items(self) -> int:
        """Number of items, also of those without a row here."""
        return len(self.item_ids)

    @property
    def item_table(self) -> pl.DataFrame:
        """Ids, titles, genres and features of items, as far as they are known; M rows."""
        import polars as pl

        columns = {"item": self.item_ids, "title": self.titles, "genres": self.genres}
        present = {name: column for name, column in columns.items() if column is not None}
        table = pl.DataFrame([pl.Series(name, c.tolist()) for name, c in present.items()])
        return table if self.item_features is None else table.hstack(self.item_features)

    def ids(self, axis: Axis) -> IdArray:
        """Return the raw ids of users or items."""
        return self.user_ids if axis == "user" else self.item_ids

    def __repr__(self) -> str:
        name = f"{self.source}: " if self.source else ""
        noun = "interaction" if self.implicit else "rating"
        sizes = f"{count_of(len(self), noun)} of {count_of(self.n_items, 'item')}"
        scale = "" if self.implicit else f", scale {self.scale}"
        present = [*self._columns, *(table for table in TABLES if getattr(self, table) is not None)]
        extra = [column for column in ("weights", "times", "titles", "genres") if column in present]
        return (
            f"<{type(self).__name__} {name}{sizes} by {count_of(self.n_users, 'user')}{scale}"
            f"{', with ' if extra else ''}{', '.join(extra)}>"
        )

    # -- rows ---------------------------------------------------------------------------------

    def rows(self, axis: Axis = "user") -> CsrRows:
        """Return the pairs grouped by user or item; cached.

        Columns that are grouped already are not copied.
        """
        return self.memo(("rows", axis), lambda: self._group(axis))

    def _group(self, axis: Axis) -> CsrRows:
        (rows, _), (columns, n_columns) = self._axis(axis), self._axis(OTHER_AXIS[axis])
        counts, shape = self.counts(axis), (n_columns, len(self.scale))
        if self._is_grouped(rows):
            offsets = read_only(offsets_from_counts(counts))
            return CsrRows(offsets, getattr(self, columns), self.levels, *shape)
        return CsrRows.from_chunks(counts, self.chunks(rows, columns, "levels"), *shape)

    def _is_grouped(self, name: str) -> bool:
        last = -1
        for (index,) in self.chunks(name):
            if index[0] < last or bool(np.any(index[1:] < index[:-1])):
                return False
            last = index[-1]
        return True

    def _axis(self, axis: Axis) -> tuple[str, int]:
        """The column with the indices of an axis, and how many indices there are."""
        if axis not in OTHER_AXIS:
            raise DataError(f'axis={axis!r} is not an axis of the data; choose "user" or "item"')
        return ("users", self.n_users) if axis == "user" else ("items", self.n_items)

    def row_totals(self, axis: Axis) -> tuple[int, int]:
        """Return the number of pairs, and the number of users or items that have any."""
        rows = self.rows(axis)
        return rows.n_ratings, int(np.count_nonzero(rows.counts()))

    def counts(self, axis: Axis) -> IntArray:
        """Return how many pairs each user or item has, (N,) or (M,)."""
        name, count = self._axis(axis)
        out = np.zeros(count, np.int64)
        for (index,) in self.chunks(name):
            out += np.bincount(index, minlength=count)
        return out

    def level_counts(self, axis: Axis) -> IntArray:
        """Return how many ratings each user or item has at each level, (N, K) or (M, K)."""
        (name, count), K = self._axis(axis), len(self.scale)
        out = np.zeros(count * K, np.int64)
        for index, levels in self.chunks(name, "levels"):
            out += np.bincount(index.astype(np.int64) * K + levels, None, len(out))
        return out.reshape(-1, K)

    # -- subsets ------------------------------------------------------------------------------

    def subset(self, labels: LabelArray, *keep: int) -> Self:
        """Return the rows that have one of some labels, lazily.

        Args:
            labels: Label of every row, (n,); must not change any more.
            keep: Labels of the rows to keep, one label after the other.
        """
        columns = self._columns if self._subset is None else self._own_columns()
        return self._derive(columns, Subset(labels, keep))

    def select(self, rows: npt.NDArray[Any]) -> Self:
        """Return a copy of the rows at these positions, or where the mask is true."""
        return self._derive({name: c[rows] for name, c in self._own_columns().items()}, None)

    def concat(self, dataset: Self) -> Self:
        """Append the rows of another subset of the same data; lazy if both have one base."""
        tables = [(self.ids(axis), dataset.ids(axis)) for axis in OTHER_AXIS]
        same_ids = all(ids is appended or np.array_equal(ids, appended) for ids, appended in tables)
        same_columns = self._columns.keys() == dataset._columns.keys()
        if not same_ids or not same_columns or self.scale != dataset.scale:
            raise DataError("only subsets of one data set can be concatenated")
        first, second = self._subset, dataset._subset
        one_base = all(self._columns[name] is dataset._columns[name] for name in self._columns)
        if one_base and first and second and first.labels is second.labels:
            return self._derive(self._columns, Subset(first.labels, (*first.keep, *second.keep)))
        appended = dataset._own_columns()
        columns = {n: np.concatenate([c, appended[n]]) for n, c in self._own_columns().items()}
        return self._derive(columns, None)

    def replace(self, **changes: Any) -> Self:
        """Return the same with some attributes changed; a subset stays lazy if no column is."""
        columns, subset = self._columns, self._subset
        changed = {name: changes.pop(name) for name in _COLUMNS if name in changes}
        if any(column is not None for column in changed.values()):
            columns, subset = self._own_columns(), None
        columns = columns | changed
        columns = {name: column for name, column in columns.items() if column is not None}
        return self._derive(columns, subset, **changes)

    # -- files and identity -------------------------------------------------------------------

    def save(self, path: Path, note: str = "") -> None:
        """Write the data set to one file, atomically; `open` maps it into memory."""
        from cfnade.data.storage import save_dataset

        save_dataset(self, path, note)

    @classmethod
    def open(cls, path: Path) -> Ratings | Interactions:
        """Map a saved data set into memory; every array is checked against its digest."""
        from cfnade.data.storage import open_dataset

        return open_dataset(path)[0]

    @cached_property
    def fingerprint(self) -> str:
        """32 hex digits that change when content, order, ids, times, titles or source change."""
        from cfnade.utils.safetensors_io import digest, digest_chunks, digest_text

        digests = {
            name: digest_chunks(column.dtype, (len(self),), (c for (c,) in self.chunks(name)))
            for name, column in self._columns.items()
        }
        for name in TABLES:
            if (array := getattr(self, name)) is not None:
                digests[name] = digest(array)
        parts = [self.source, repr(self.scale)]
        parts += [f"{name} {digests.get(name, '-')}" for name in _IN_FINGERPRINT]
        if "weights" in digests:  # absent otherwise: data without weights keeps its fingerprint
            parts.append(f"weights {digests['weights']}")
        return digest_text("\n".join(parts))

    def __eq__(self, value: object) -> bool:  # without a hash, which would digest everything
        if not isinstance(value, Dataset):
            return NotImplemented
        return self.fingerprint == value.fingerprint


class Ratings(Dataset):
    """Ratings of items by users."""


class Interactions(Dataset):
    """Interactions of users with items, such as clicks, plays or purchases."""

    def __init__(
        self,
        users: IndexArray,
        items: IndexArray,
        user_ids: IdArray,
        item_ids: IdArray,
        **attributes: Any,
    ) -> None:
        levels = np.zeros(len(users), np.uint8)
        super().__init__(users, items, levels, INTERACTIONS, user_ids, item_ids, **attributes)


def make_dataset(
    users: IndexArray,
    items: IndexArray,
    levels: LevelArray,
    scale: Scale,
    user_ids: IdArray,
    item_ids: IdArray,
    **attributes: Any,
) -> Ratings | Interactions:
    """Return `Interactions` for the scale `INTERACTIONS`, `Ratings` for any other."""
    if scale == INTERACTIONS:
        return Interactions(users, items, user_ids, item_ids, **attributes)
    return Ratings(users, items, levels, scale, user_ids, item_ids, **attributes)


def read_only(array: Array) -> Array:
    """Return the array, or a view of it, that cannot be written to."""
    if array.flags.writeable:
        array = array.view()
        array.flags.writeable = False
    return array


def pair_keys(users: IndexArray, items: IndexArray, n_items: int) -> IntArray:
    """Return one number for each (user, item), (n,)."""
    keys = users.astype(np.int64)
    keys *= n_items
    keys += items
    return keys


def match_ids(table: IdArray, ids: Array) -> IntArray:
    """Return the index of each id in a rising table of ids; -1 if it is not there."""
    if not len(table):
        return np.full(np.shape(ids), -1)
    index = np.minimum(np.searchsorted(table, ids), len(table) - 1)
    return np.where(table[index] == ids, index, -1)


def match_tables(ids: IdArray, earlier: IdArray) -> IntArray:
    """Return where each id was in an earlier table, -1 for a new one, (n,).

    Whole numbers and texts that are written alike are the same: a store has both as texts.
    """
    if (ids.dtype == object) == (earlier.dtype == object):
        return match_ids(earlier, ids)
    index = {str(raw): place for place, raw in enumerate(earlier.tolist())}
    return np.array([index.get(str(raw), -1) for raw in ids.tolist()], np.int64)
