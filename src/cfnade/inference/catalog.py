"""The items of a model, by id and by title: one rule says which item a text means.

It is the item with this very id; else with this title or name; else the one that a title from
elsewhere is sure to mean; else, as a guess, the one whose title the text is a part of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from numbers import Integral
from typing import Any

import numpy as np
import numpy.typing as npt

from cfnade.data.dataset import Dataset, match_ids
from cfnade.exceptions import PredictionError
from cfnade.inference.titles import TitleMatch, TitleSearch, words_of
from cfnade.utils.caching import locked_cached_property
from cfnade.utils.text import count_of

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

_SHOWN = 5  # titles in an error
_LOOKED_AT = 100  # ids, to tell titles from codes


def titles_of(ratings: Dataset) -> npt.NDArray[Any] | None:
    """Titles by item, "" for one without. Where there are none, ids with spaces are titles.

    Codes such as "B000A3XY1C" have no spaces: an unknown one must not be taken for one like it.
    """
    ids = ratings.item_ids
    if ratings.titles is not None or ids.dtype != object:
        return ratings.titles
    return ids if any(" " in text for text in ids[:_LOOKED_AT].tolist()) else None


class Catalog:
    """Looks items up; the indices over titles are made when first needed."""

    def __init__(self, ids: IdIndex, ratings: Dataset, counts: Callable[[], IntArray]) -> None:
        self.ids = ids
        self.titles = titles_of(ratings)
        """By item; None if the model knows no titles."""
        self._guesses = ratings.titles is not None
        self._counts = counts

    # -- one item that is meant ---------------------------------------------------------------

    def index(self, item: Any) -> int:
        """The index of an item given by raw id or title, -1 for an unknown id.

        A title that fits no item, or several, is an error that lists the nearest. Where ids are
        texts, one that fits no item is an unknown id; where they are the titles themselves nothing
        is guessed, for part of a title may be the whole title of an item not known.
        """
        if not isinstance(item, str) or self.titles is None:
            return self.ids.index(item)
        is_number = item.strip().lstrip("+-").isdecimal()
        if is_number and not self.ids.are_texts and not self._matches.items_named(item):
            return self.ids.index(item)  # an id in the wrong type, which is said
        items = self._surely(item) or (self._containing(item) if self._guesses else [])
        return -1 if self.ids.are_texts and not items else self._only(items, item)

    def known(self, item: Any) -> int:
        """The same, but there must be an item: none is an error that lists the nearest."""
        index = self.index(item)
        if index < 0:
            hint = self._nearest(item) if isinstance(item, str) and self.titles is not None else ""
            raise PredictionError(f"item {item!r} is unknown to the model{hint}")
        return index

    def indices(self, items: Any) -> IntArray:
        """The same as `index` for many. Returns (n,)."""
        if isinstance(items, np.ndarray) or self.titles is None:
            return self.ids.indices(items)
        texts = dict.fromkeys(item for item in items if isinstance(item, str))
        if not texts:
            return self.ids.indices(items)
        places = {text: self.index(text) for text in texts}
        return np.array(
            [places[item] if isinstance(item, str) else self.ids.index(item) for item in items],
            np.int64,
        )

    def typed(self, text: str) -> int:
        """As `index` for what a person types: a number may be an id, and there must be an item."""
        if self.ids.are_texts or text.isdecimal():
            index = self.ids.index(self.ids.typed(text))
            if index >= 0:
                return index
        if self.titles is None:
            raise PredictionError(
                f"{text!r} is not an item id, and this model knows no titles; give an id"
            )
        return self._only(self._surely(text) or self._containing(text), text)

    def certain(self, item: int | str) -> int | None:
        """The index of the one item that an id or a title is sure to mean: no guess, no error."""
        if isinstance(item, str) and self.titles is not None:
            items = self._surely(item)
            return items[0] if len(items) == 1 else None
        if isinstance(item, str) != self.ids.are_texts:
            return None
        index = self.ids.index(item)
        return None if index < 0 else index

    def _surely(self, text: str) -> list[int]:
        """Items of this id, title or name; several of them are for the caller to tell apart."""
        if self.ids.are_texts and (index := self.ids.index(text)) >= 0:
            return [index]
        same = self._folded.get(text.strip().casefold()) or self._matches.items_named(text)
        if same:
            return same
        match = self._matches.match(text)
        return [] if match is None else [match]

    def _containing(self, text: str) -> list[int]:
        words = " ".join(words_of(text))
        return [item for item, title in enumerate(self._spaced) if words in title] if words else []

    def _only(self, items: list[int], text: str) -> int:
        if len(items) == 1:
            return items[0]
        if items:
            best_known = sorted(items, key=lambda item: (-int(self._counts()[item]), item))
            some = self._listed(best_known[:_SHOWN]) + ("; …" if len(items) > _SHOWN else "")
            raise PredictionError(f"{text!r} is in {len(items)} titles, say which one: {some}")
        raise PredictionError(
            f"{text!r} is neither an item id nor part of a title{self._nearest(text)}"
        )

    def _nearest(self, text: str) -> str:
        """A hint for the end of an error."""
        near = self.search(text, _SHOWN)[0].tolist()
        return f"; did you mean: {self._listed(near)}" if near else ""

    def _listed(self, items: list[int]) -> str:
        assert self.titles is not None
        return "; ".join(str(self.titles[item]) for item in items)

    # -- many that may be ---------------------------------------------------------------------

    def search(self, text: str, limit: int) -> tuple[IntArray, FloatArray]:
        """Items whose titles are nearest, nearest first, and how far each is. Both (≤ limit,)."""
        return self._index.search(text, limit)

    def match(self, title: str, year: int | None = None) -> int | None:
        """The item that a title from elsewhere means, or None if that is not certain."""
        return None if self.titles is None else self._matches.match(title, year)

    @locked_cached_property
    def _index(self) -> TitleSearch:
        if self.titles is None:
            raise PredictionError("this model knows no titles, so none can be searched; use ids")
        return TitleSearch([str(title) for title in self.titles], self._counts())

    @locked_cached_property
    def _matches(self) -> TitleMatch:
        return TitleMatch(self._index.parsed)

    @locked_cached_property
    def _folded(self) -> dict[str, list[int]]:
        assert self.titles is not None
        folded: dict[str, list[int]] = {}
        for item, title in enumerate(self.titles):
            if title:
                folded.setdefault(str(title).strip().casefold(), []).append(item)
        return folded

    @locked_cached_property
    def _spaced(self) -> list[str]:
        assert self.titles is not None
        return [" ".join(words_of(str(title))) for title in self.titles]


# -- ids ---------------------------------------------------------------------------------------


_LEAST, _MOST = -(2**63), 2**63 - 1  # ids are kept in 64 bits
_SHOWN_LETTERS = 40  # letters of what was typed, in an error


class IdIndex:
    """The id table of one side of the data."""

    def __init__(self, side: str, table: npt.NDArray[Any]) -> None:
        self.side = side
        self.table = table
        self.are_texts = table.dtype == object

    def indices(self, raw: Any) -> IntArray:
        """The index of each raw id, -1 for one that is unknown. Returns (n,)."""
        if isinstance(raw, np.ndarray) and raw.ndim == 1 and raw.dtype.kind in "iu":
            return self._integers(raw)
        if set(map(type, raw)) == {str if self.are_texts else int}:
            places = self._places
            return np.array([places.get(one, -1) for one in raw], np.int64)
        return np.array([self.index(one) for one in raw], np.int64)

    def index(self, raw: Any) -> int:
        """The index of a raw id, -1 if it is unknown."""
        if self.are_texts:
            fits = isinstance(raw, str)
        else:
            fits = isinstance(raw, Integral) and not isinstance(raw, bool)
        if not fits and len(self.table):
            kind = "texts" if self.are_texts else "integers"
            raise PredictionError(
                f"{self.side} id {raw!r} is a {type(raw).__name__}; the {self.side} ids of this "
                f"model are {kind}, such as {self.table[:1].tolist()[0]!r}: convert it"
            )
        return self._places.get(raw, -1)

    def raw(self, index: int) -> Any:
        """The raw id at an index, as Python has it."""
        return self.table[index : index + 1].tolist()[0]

    def typed(self, text: str) -> Any:
        """A raw id as a person types it, in the type that the table has."""
        if self.are_texts:
            return text
        shown = repr(text if len(text) <= _SHOWN_LETTERS else text[: _SHOWN_LETTERS - 3] + "…")
        try:
            number = int(text)
        except ValueError:
            raise PredictionError(
                f"{self.side} {shown}: the {self.side} ids of this model are whole numbers"
            ) from None
        if not _LEAST <= number <= _MOST:
            raise PredictionError(
                f"{self.side} {shown}: an id is a whole number from {_LEAST} to {_MOST}"
            )
        return number

    @locked_cached_property
    def _places(self) -> dict[Any, int]:
        return {raw: place for place, raw in enumerate(self.table.tolist())}

    def _integers(self, raw: npt.NDArray[Any]) -> IntArray:
        if self.are_texts or not len(self.table):
            return np.array([self.index(one) for one in raw.tolist()], np.int64)
        # An unsigned id beyond int64 is in no table; a cast would wrap it onto another.
        fits = raw <= np.iinfo(np.int64).max
        asked = np.where(fits, raw, 0).astype(np.int64)
        return np.where(fits, match_ids(self.table, asked), -1)


def listed(ids: Any) -> tuple[Any, bool]:
    """Raw ids as an array or a list, and whether it was a single one."""
    if np.isscalar(ids):
        return [ids], True
    if isinstance(ids, np.ndarray):
        if ids.ndim != 1:
            raise PredictionError(f"ids have shape {ids.shape}; give one dimension")
        return (ids if ids.dtype.kind in "iu" else ids.tolist()), False
    for method in ("to_list", "tolist", "to_pylist"):  # of polars, pandas and pyarrow
        if hasattr(ids, method):
            return getattr(ids, method)(), False
    if isinstance(ids, Iterable):
        return list(ids), False
    raise PredictionError(f"ids are given as a {type(ids).__name__}; give one id or a list")


def paired(users: Any, items: Any) -> tuple[Any, Any]:
    """Equally many users and items; a single one on either side goes with all of the other."""
    (left, one_user), (right, one_item) = listed(users), listed(items)
    if one_user and not one_item:
        left = list(left) * len(right)
    elif one_item and not one_user:
        right = list(right) * len(left)
    if len(left) != len(right):
        raise PredictionError(
            f"{count_of(len(left), 'user')} and {count_of(len(right), 'item')} were given; a "
            "question is one of each, so give equally many, or a single one on either side"
        )
    return left, right
