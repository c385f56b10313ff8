"""Ratings: who rated what how, checked once at the door (build.py) and trusted from then on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from cfnade.data.hashing import digest, digest_text
from cfnade.data.rows import IndexArray, LevelArray, Rows, offsets_of, stable_order
from cfnade.data.scale import Scale
from cfnade.errors import DataError

Side = Literal["user", "item"]
TimeArray = npt.NDArray[np.signedinteger[Any]]


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

    def __post_init__(self) -> None:
        for name in ("users", "items", "levels", "user_ids", "item_ids", *_OPTIONAL):
            array = getattr(self, name)
            if array is not None and array.flags.writeable:
                frozen = array.view()
                frozen.flags.writeable = False
                object.__setattr__(self, name, frozen)

    def __len__(self) -> int:
        return len(self.levels)

    @property
    def n_users(self) -> int:
        return len(self.user_ids)

    @property
    def n_items(self) -> int:
        return len(self.item_ids)

    @property
    def values(self) -> npt.NDArray[np.float64]:
        """The ratings in the data's own stars. Returns (n,)."""
        return self.scale.array()[self.levels]

    def __repr__(self) -> str:
        name = f"{self.source}: " if self.source else ""
        extra = [word for word in _OPTIONAL if getattr(self, word) is not None]
        return (
            f"<Ratings {name}{len(self):,} ratings of {self.n_items:,} items by "
            f"{self.n_users:,} users, scale {self.scale}{', with ' if extra else ''}"
            f"{', '.join(extra)}>"
        )

    # -- views ------------------------------------------------------------------------------

    def rows(self, side: Side = "user") -> Rows:
        """Ragged rows by user, or by item: the one door of transposition.

        Arrays that are already grouped that way are handed out as they are.
        """
        index, other = self._sides(side)
        order = stable_order(index, self._count(side))
        return Rows(
            offsets=offsets_of(index, self._count(side)),
            columns=other if order is None else other[order],
            levels=self.levels if order is None else self.levels[order],
            n_columns=self._count("item" if side == "user" else "user"),
            n_levels=len(self.scale),
        )

    def row_times(self, side: Side = "user") -> TimeArray:
        """Times in the order of `rows(side)`. Returns (n,)."""
        if self.times is None:
            raise DataError("these ratings have no timestamps; this needs them")
        order = stable_order(self._sides(side)[0], self._count(side))
        return self.times if order is None else self.times[order]

    def ids(self, side: Side) -> npt.NDArray[Any]:
        """The raw ids of users or of items."""
        return self.user_ids if side == "user" else self.item_ids

    def level_counts(self, side: Side) -> npt.NDArray[np.int64]:
        """How many ratings each user or item has at each level. Returns (users or items, K)."""
        K = len(self.scale)
        cells = self._sides(side)[0].astype(np.int64) * K + self.levels
        return np.bincount(cells, minlength=self._count(side) * K).reshape(-1, K)

    def select(self, which: npt.NDArray[Any]) -> Ratings:
        """The ratings at these positions (or where the mask is true); id tables stay whole."""
        times = None if self.times is None else self.times[which]
        return replace(
            self,
            users=self.users[which],
            items=self.items[which],
            levels=self.levels[which],
            times=times,
        )

    def plus(self, other: Ratings) -> Ratings:
        """These ratings and then the others; both must be parts of one data set."""
        same = self.user_ids is other.user_ids or np.array_equal(self.user_ids, other.user_ids)
        same = same and np.array_equal(self.item_ids, other.item_ids)
        if not same or self.scale != other.scale or (self.times is None) != (other.times is None):
            raise DataError("only parts of one data set can be put together")
        times = None
        if self.times is not None and other.times is not None:
            times = np.concatenate([self.times, other.times])
        return replace(
            self,
            users=np.concatenate([self.users, other.users]),
            items=np.concatenate([self.items, other.items]),
            levels=np.concatenate([self.levels, other.levels]),
            times=times,
        )

    def _sides(self, side: Side) -> tuple[IndexArray, IndexArray]:
        if side not in ("user", "item"):
            raise DataError(f'side={side!r} is not a side of the data; choose "user" or "item"')
        return (self.users, self.items) if side == "user" else (self.items, self.users)

    def _count(self, side: Side) -> int:
        return self.n_users if side == "user" else self.n_items

    # -- identity ---------------------------------------------------------------------------

    @cached_property
    def fingerprint(self) -> str:
        """32 hex digits that change when ratings, order, ids, times, titles or source change."""
        parts = [self.source, repr(self.scale)]
        for name in ("users", "items", "levels", "user_ids", "item_ids", *_OPTIONAL):
            array = getattr(self, name)
            parts.append(f"{name} {'-' if array is None else digest(array)}")
        return digest_text("\n".join(parts))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ratings):
            return NotImplemented
        return self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)


_OPTIONAL = ("times", "titles", "genres")
