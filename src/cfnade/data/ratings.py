"""Ratings: who rated what how, checked once at the door (build.py) and trusted from then on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from functools import cached_property
from threading import Lock
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from cfnade.data.later import Column, Later, in_part, joined, pieces, slices
from cfnade.data.scale import LevelArray, Scale
from cfnade.exceptions import DataError

Side = Literal["user", "item"]
IntArray = npt.NDArray[np.int64]
IndexArray = npt.NDArray[np.int32]
TimeArray = npt.NDArray[np.signedinteger[Any]]

_TABLES = ("user_ids", "item_ids", "titles", "genres")
_IN_FINGERPRINT = ("users", "items", "levels", "user_ids", "item_ids", "times", "titles", "genres")
_OF_RATINGS = ("users", "items", "levels", "times", "weights")
OTHER: dict[Side, Side] = {"user": "item", "item": "user"}
_SORTING = Lock()


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

    Ids rise: index i of a user is the i-th smallest raw id. Parts of a data set (`part`, `select`)
    keep the id tables of the whole, so an index means the same in every part.

    Of a part, and of parts put together, the arrays of ratings are made when they are first asked
    for; `pieces` reads them without that.
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
        for name in _TABLES:
            if getattr(self, name) is not None:
                object.__setattr__(self, name, _frozen(getattr(self, name)))

    def __reduce__(self) -> tuple[type[Ratings], tuple[Any, ...]]:
        """For other processes, without the rows: they are sorted again where they are needed."""
        return Ratings, tuple(getattr(self, one.name) for one in fields(self) if one.init)

    def __len__(self) -> int:
        return len(vars(self)["levels"])  # perhaps to come later: no array is made

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
        has = [*self.columns(), *(word for word in _TABLES if getattr(self, word) is not None)]
        extra = [word for word in ("weights", "times", "titles", "genres") if word in has]
        return (
            f"<Ratings {name}{len(self):,} {what} of {self.n_items:,} items by "
            f"{self.n_users:,} users{scale}{', with ' if extra else ''}{', '.join(extra)}>"
        )

    # -- columns, some at a time --------------------------------------------------------------

    def columns(self) -> dict[str, Column]:
        """What there is of each rating, by name; arrays that come later are not made."""
        return {name: vars(self)[name] for name in _OF_RATINGS if vars(self)[name] is not None}

    def pieces(self, *names: str) -> Iterator[tuple[npt.NDArray[Any], ...]]:
        """These columns of all ratings, some millions at a time."""
        columns = self.columns()
        return zip(*(pieces(columns[name]) for name in names), strict=True)

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
        (own, _), (other, n_columns) = self._axis(side), self._axis(OTHER[side])
        offsets = _frozen(_offsets(self.counts(side)))
        if self._is_grouped(own):
            columns, levels = getattr(self, other), self.levels
        else:
            columns, levels = self._sorted(own, other, offsets)
        return Rows(offsets, columns, levels, n_columns, len(self.scale))

    def _is_grouped(self, name: str) -> bool:
        last = -1
        for (index,) in self.pieces(name):
            if index[0] < last or bool(np.any(index[1:] < index[:-1])):
                return False
            last = index[-1]
        return True

    def _sorted(self, own: str, other: str, offsets: IntArray) -> tuple[IndexArray, LevelArray]:
        """Columns and levels with the ratings of each row together, in their order.

        Each piece is sorted and then put where its rows go on: the order of all ratings would take
        8 bytes of each.
        """
        columns, levels = np.empty(len(self), np.int32), np.empty(len(self), np.uint8)
        count = len(offsets) - 1
        ends = offsets[:-1].copy()  # where the next rating of each row comes to stand
        for rows, some_columns, some_levels in self.pieces(own, other, "levels"):
            order = stable_order(rows, count)
            order = np.arange(len(rows)) if order is None else order
            counts = np.bincount(rows, minlength=count)
            before = np.cumsum(counts) - counts  # ratings of lower rows in this piece
            places = (ends - before)[rows[order]] + np.arange(len(rows))
            columns[places], levels[places] = some_columns[order], some_levels[order]
            ends += counts
        return _frozen(columns), _frozen(levels)

    def _axis(self, side: Side) -> tuple[str, int]:
        """The column that says whose, or of what, each rating is; and how many there are."""
        if side not in OTHER:
            raise DataError(f'side={side!r} is not a side of the data; choose "user" or "item"')
        return ("users", self.n_users) if side == "user" else ("items", self.n_items)

    def row_totals(self, side: Side) -> tuple[int, int]:
        """How many ratings there are, and how many rows that have any."""
        rows = self.rows(side)
        return rows.n_ratings, int(np.count_nonzero(rows.counts()))

    def counts(self, side: Side) -> IntArray:
        """How many ratings each user or item has. Returns (users or items,)."""
        if side in self._rows:
            return self._rows[side].counts()
        name, count = self._axis(side)
        out = np.zeros(count, np.int64)
        for (index,) in self.pieces(name):
            out += np.bincount(index, minlength=count)
        return out

    def level_counts(self, side: Side) -> IntArray:
        """How many ratings each user or item has at each level. Returns (users or items, K)."""
        (name, count), K = self._axis(side), len(self.scale)
        out = np.zeros(count * K, np.int64)
        for index, levels in self.pieces(name, "levels"):
            out += np.bincount(index.astype(np.int64) * K + levels, None, len(out))
        return out.reshape(-1, K)

    # -- parts ------------------------------------------------------------------------------

    def part(self, parts: npt.NDArray[np.uint8], number: int) -> Ratings:
        """The ratings at which `parts`, which must not change any more, has the number."""
        size = sum(int(np.count_nonzero(piece == number)) for piece in pieces(parts))
        return self.but(**{n: in_part(c, parts, number, size) for n, c in self.columns().items()})

    def select(self, which: npt.NDArray[Any]) -> Ratings:
        """The ratings at these positions (or where the mask is true); id tables stay whole."""
        return self.but(**{name: getattr(self, name)[which] for name in self.columns()})

    def plus(self, other: Ratings) -> Ratings:
        """These ratings and then the others; both must be parts of one data set."""
        mine, theirs = self.columns(), other.columns()
        same = self.user_ids is other.user_ids or np.array_equal(self.user_ids, other.user_ids)
        same = same and np.array_equal(self.item_ids, other.item_ids)
        if not same or self.scale != other.scale or list(mine) != list(theirs):
            raise DataError("only parts of one data set can be put together")
        return self.but(**{name: joined(mine[name], theirs[name]) for name in mine})

    def but(self, **changed: Any) -> Ratings:
        """The same with some fields changed; arrays that come later still do."""
        held = {one.name: vars(self)[one.name] for one in fields(self) if one.init}
        return Ratings(**held | changed)

    # -- identity ---------------------------------------------------------------------------

    @cached_property
    def fingerprint(self) -> str:
        """32 hex digits that change when ratings, order, ids, times, titles or source change."""
        from cfnade.data.array_files import digest, digest_text  # which reads and writes Ratings

        parts, columns = [self.source, repr(self.scale)], self.columns()
        tables = {name: getattr(self, name) for name in _TABLES}
        for name in _IN_FINGERPRINT:
            array = columns.get(name, tables.get(name))
            parts.append(f"{name} {'-' if array is None else digest(array)}")
        if "weights" in columns:  # unsaid otherwise: older data keeps its fingerprint
            parts.append(f"weights {digest(columns['weights'])}")
        return digest_text("\n".join(parts))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ratings):
            return NotImplemented
        return self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)


class _RatingColumn:
    """A field of Ratings with an entry for each of them: whoever asks for it gets an array, which
    is made first if it was to come later."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, ratings: Ratings | None, _: type | None = None) -> Any:
        if ratings is None:  # the class itself is asked, for its help
            return self
        held: Column | None = vars(ratings)[self._name]
        if isinstance(held, Later):
            held = vars(ratings)[self._name] = _frozen(held.array())
        return held

    def __set__(self, ratings: Ratings, given: Column | None) -> None:
        vars(ratings)[self._name] = _frozen(given) if isinstance(given, np.ndarray) else given


for _name in _OF_RATINGS:  # now, so that a dataclass does not take them for default values
    setattr(Ratings, _name, _RatingColumn(_name))


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
    return _offsets(counts_of(index, count))


def _offsets(counts: IntArray) -> IntArray:
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
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
    for some in slices(len(index)):
        out += np.bincount(index[some], weights(some), count)
    return out


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
