"""Ratings: who rated what how, checked once at the door (build.py) and trusted from then on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from threading import Lock
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from cfnade.data.scale import LevelArray, Scale
from cfnade.errors import DataError

Side = Literal["user", "item"]
IntArray = npt.NDArray[np.int64]
IndexArray = npt.NDArray[np.int32]
TimeArray = npt.NDArray[np.signedinteger[Any]]

_OPTIONAL = ("times", "titles", "genres")
_ARRAYS = ("users", "items", "levels", "user_ids", "item_ids", *_OPTIONAL)
_OF_RATINGS = ("users", "items", "levels", "times", "weights")
_OTHER: dict[Side, Side] = {"user": "item", "item": "user"}
_SORTING = Lock()
_PIECE = 1 << 22  # ratings that are counted at a time


@dataclass(frozen=True, eq=False)
class Rows:
    """Row r rated columns[offsets[r]:offsets[r+1]] at the levels beside them.

    Rows are users and columns items, or the other way round: models do not know which.
    """

    offsets: IntArray  # (N+1,)
    columns: IndexArray  # (n,)
    levels: LevelArray  # (n,)
    n_columns: int
    n_levels: int

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def n_ratings(self) -> int:
        return len(self.columns)

    def counts(self) -> IntArray:
        """How many ratings each row has. Returns (N,)."""
        return np.diff(self.offsets)


@dataclass(frozen=True, eq=False, repr=False)
class Ratings:
    """Ratings in the order in which they came, with raw ids outside and indices inside.

    Ids rise: index i of a user is the i-th smallest raw id. Parts of a data set (`select`) keep
    the id tables of the whole, so an index means the same in every part.
    """

    users: IndexArray  # (n,) index into user_ids
    items: IndexArray  # (n,) index into item_ids
    levels: LevelArray  # (n,) index into scale.values
    scale: Scale
    user_ids: npt.NDArray[Any]  # (N,) int64, or object holding str
    item_ids: npt.NDArray[Any]  # (M,)
    times: TimeArray | None = None  # (n,) seconds since 1970; int32 while they fit
    titles: npt.NDArray[np.object_] | None = None  # (M,) str, "" where unknown
    genres: npt.NDArray[np.object_] | None = None  # (M,) str such as "Comedy|Drama"
    source: str = ""
    """The name of the published set, and of the copy if it is not the publisher's own."""
    weights: npt.NDArray[np.float32] | None = None
    """(n,) how much each interaction counts, above 0; None if each counts once. Not of ratings."""
    _rows: dict[Side, Rows] = field(default_factory=dict, init=False)  # kept by `rows`

    def __post_init__(self) -> None:
        for name in (*_ARRAYS, "weights"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, _frozen(getattr(self, name)))

    def __reduce__(self) -> tuple[type[Ratings], tuple[Any, ...]]:
        """For other processes, without the rows: they are sorted again where they are needed."""
        return Ratings, tuple(getattr(self, one.name) for one in fields(self) if one.init)

    def __len__(self) -> int:
        return len(self.levels)

    @property
    def implicit(self) -> bool:
        """Whether these are interactions: there are no ratings, all levels are 0."""
        return len(self.scale) == 1

    @property
    def n_users(self) -> int:
        return len(self.user_ids)

    @property
    def n_items(self) -> int:
        return len(self.item_ids)

    def ids(self, side: Side) -> npt.NDArray[Any]:
        """The raw ids of users or of items."""
        return self.user_ids if side == "user" else self.item_ids

    @property
    def values(self) -> npt.NDArray[np.float64]:
        """The ratings in the data's own stars. Returns (n,)."""
        return self.scale.array()[self.levels]

    def __repr__(self) -> str:
        name = f"{self.source}: " if self.source else ""
        what = "interactions" if self.implicit else "ratings"
        scale = "" if self.implicit else f", scale {self.scale}"
        extra = [word for word in ("weights", *_OPTIONAL) if getattr(self, word) is not None]
        return (
            f"<Ratings {name}{len(self):,} {what} of {self.n_items:,} items by "
            f"{self.n_users:,} users{scale}{', with ' if extra else ''}{', '.join(extra)}>"
        )

    # -- rows -------------------------------------------------------------------------------

    def rows(self, side: Side = "user") -> Rows:
        """Ragged rows by user, or by item: the one door of transposition. Sorted once and kept.

        Arrays that are already grouped that way are handed out as they are.
        """
        if side not in self._rows:
            with _SORTING:  # threads that ask at the same time wait for one sort
                if side not in self._rows:
                    self._rows[side] = self._sorted_rows(side)
        return self._rows[side]

    def _sorted_rows(self, side: Side) -> Rows:
        (own, count), (other, n_columns) = self._axis(side), self._axis(_OTHER[side])
        order = stable_order(own, count)
        return Rows(
            offsets=_frozen(offsets_of(own, count)),
            columns=other if order is None else _frozen(other[order]),
            levels=self.levels if order is None else _frozen(self.levels[order]),
            n_columns=n_columns,
            n_levels=len(self.scale),
        )

    def _axis(self, side: Side) -> tuple[IndexArray, int]:
        """The index of each rating's user or item, and how many there are of them."""
        if side not in _OTHER:
            raise DataError(f'side={side!r} is not a side of the data; choose "user" or "item"')
        return (self.users, self.n_users) if side == "user" else (self.items, self.n_items)

    def row_totals(self, side: Side) -> tuple[int, int]:
        """How many ratings there are, and how many rows that have any."""
        rows = self.rows(side)
        return rows.n_ratings, int(np.count_nonzero(rows.counts()))

    def level_counts(self, side: Side) -> IntArray:
        """How many ratings each user or item has at each level. Returns (users or items, K)."""
        (index, count), K = self._axis(side), len(self.scale)
        out = np.zeros(count * K, np.int64)
        for some in _pieces_of(len(index)):
            out += np.bincount(index[some].astype(np.int64) * K + self.levels[some], None, len(out))
        return out.reshape(-1, K)

    # -- parts ------------------------------------------------------------------------------

    def select(self, which: npt.NDArray[Any]) -> Ratings:
        """The ratings at these positions (or where the mask is true); id tables stay whole."""
        chosen: dict[str, Any] = {name: getattr(self, name)[which] for name in self._columns()}
        return replace(self, **chosen)

    def plus(self, other: Ratings) -> Ratings:
        """These ratings and then the others; both must be parts of one data set."""
        same = self.user_ids is other.user_ids or np.array_equal(self.user_ids, other.user_ids)
        same = same and np.array_equal(self.item_ids, other.item_ids)
        if not same or self.scale != other.scale or self._columns() != other._columns():
            raise DataError("only parts of one data set can be put together")
        both: dict[str, Any] = {
            name: np.concatenate([getattr(self, name), getattr(other, name)])
            for name in self._columns()
        }
        return replace(self, **both)

    def _columns(self) -> list[str]:
        """The arrays that have an entry for each rating."""
        return [name for name in _OF_RATINGS if getattr(self, name) is not None]

    # -- identity ---------------------------------------------------------------------------

    @cached_property
    def fingerprint(self) -> str:
        """32 hex digits that change when ratings, order, ids, times, titles or source change."""
        from cfnade.data.array_files import digest, digest_text  # which reads and writes Ratings

        parts = [self.source, repr(self.scale)]
        for name in _ARRAYS:
            array = getattr(self, name)
            parts.append(f"{name} {'-' if array is None else digest(array)}")
        if self.weights is not None:  # unsaid otherwise: older data keeps its fingerprint
            parts.append(f"weights {digest(self.weights)}")
        return digest_text("\n".join(parts))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ratings):
            return NotImplemented
        return self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)


def stable_order(index: IndexArray, count: int) -> IntArray | None:
    """The order that groups equal indices and keeps it inside a group; None if it is so already.

    Sorting (index, position) packed into one integer is several times faster than a stable
    argsort, and needs 8 bytes a rating.
    """
    if len(index) < 2 or bool(np.all(index[1:] >= index[:-1])):
        return None
    bits = int(len(index) - 1).bit_length()
    if bits + int(count).bit_length() > 63:
        return np.argsort(index, kind="stable")
    packed = index.astype(np.int64)
    packed <<= bits
    packed |= np.arange(len(index), dtype=np.int64)
    packed.sort()
    packed &= (1 << bits) - 1
    return packed


def cells_of(users: IndexArray, items: IndexArray, n_items: int) -> IntArray:
    """One number for each (user, item). Returns (n,)."""
    cells = users.astype(np.int64)
    cells *= n_items
    cells += items
    return cells


def offsets_of(index: IndexArray, count: int) -> IntArray:
    """Where each group starts once ratings are grouped. Returns (count+1,)."""
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(counts_of(index, count), out=offsets[1:])
    return offsets


def counts_of(index: IndexArray, count: int) -> IntArray:
    """How often each index occurs. Returns (count,)."""
    return sums_of(index, count, lambda _: None).astype(np.int64)


def sums_of(
    index: IndexArray, count: int, weights: Callable[[slice], npt.NDArray[Any] | None]
) -> npt.NDArray[np.float64]:
    """What the weights of each index add up to; they are asked for, piece by piece. (count,).

    All at once, the index and they would be made anew as numbers of 8 bytes.
    """
    out = np.zeros(count)
    for some in _pieces_of(len(index)):
        out += np.bincount(index[some], weights(some), count)
    return out


def _pieces_of(n: int) -> list[slice]:
    return [slice(first, first + _PIECE) for first in range(0, n, _PIECE)]


def places_among(known: npt.NDArray[Any], asked: npt.NDArray[Any]) -> IntArray:
    """Where each of `asked` stands in `known`, which rises; -1 if it is not there."""
    if not len(known):
        return np.full(np.shape(asked), -1)
    places = np.minimum(np.searchsorted(known, asked), len(known) - 1)
    return np.where(known[places] == asked, places, -1)


def _frozen(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The array, or a view of it, that cannot be written to: it is shared."""
    if array.flags.writeable:
        array = array.view()
        array.flags.writeable = False
    return array
