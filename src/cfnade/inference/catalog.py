"""Catalog: raw ids and titles of items, and raw ids of users, as indices.

A text means the item with this id; else the item with this title or name; else the item that a
title from another data set certainly means; else the only item whose title contains the text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from numbers import Integral
from typing import Any

import numpy as np
import numpy.typing as npt

from cfnade._typing import IntArray
from cfnade.data.dataset import Dataset, match_ids
from cfnade.exceptions import PredictionError
from cfnade.inference.titles import TitleMatch, TitleSearch, split_words
from cfnade.utils.caching import locked_cached_property
from cfnade.utils.text import count_of

FloatArray = npt.NDArray[np.float64]

_MAX_TITLES = 5  # in an error message
_MAX_ID_LENGTH = 40  # in an error message
_SAMPLE = 100  # ids that are checked for spaces


def titles_of(ratings: Dataset) -> npt.NDArray[Any] | None:
    """Return the title of each item, "" for none. Without titles, ids with spaces are titles.

    Codes such as "B000A3XY1C" have no spaces: an unknown code must not be taken for a similar one.
    """
    ids = ratings.item_ids
    if ratings.titles is not None or ids.dtype != object:
        return ratings.titles
    return ids if any(" " in text for text in ids[:_SAMPLE].tolist()) else None


class Catalog:
    """Looks up items by id or title; indexes over titles are built when they are first needed."""

    def __init__(self, ids: IdIndex, ratings: Dataset, n_ratings: Callable[[], IntArray]) -> None:
        self.ids = ids
        self.titles = titles_of(ratings)
        """Title of each item; None if the model has no titles."""
        self._allows_parts = ratings.titles is not None
        self._n_ratings = n_ratings

    # -- one item -----------------------------------------------------------------------------

    def index(self, item: Any) -> int:
        """Return the index of an item by raw id or title, -1 for an unknown id.

        A title that fits no item, or several, raises an error with the closest titles. If ids are
        strings, a text that fits no item is an unknown id. If ids are titles themselves, a part of
        a title does not suffice: it may be the whole title of an unknown item.
        """
        if not isinstance(item, str) or self.titles is None:
            return self.ids.index(item)
        is_number = item.strip().lstrip("+-").isdecimal()
        if is_number and not self.ids.are_texts and not self._title_match.items_named(item):
            return self.ids.index(item)  # raises: an id of the wrong type
        items = self._exact_matches(item)
        if not items and self._allows_parts:
            items = self._items_containing(item)
        return -1 if self.ids.are_texts and not items else self._single_item(items, item)

    def require_index(self, item: Any) -> int:
        """Return the index of an item by raw id or title; raise an error if it is unknown."""
        index = self.index(item)
        if index < 0:
            hint = self._hint(item) if isinstance(item, str) and self.titles is not None else ""
            raise PredictionError(f"item {item!r} is unknown to the model{hint}")
        return index

    def indices(self, items: Any) -> IntArray:
        """Return the index of each item by raw id or title, -1 for an unknown id. (n,)."""
        if isinstance(items, np.ndarray) or self.titles is None:
            return self.ids.indices(items)
        texts = dict.fromkeys(item for item in items if isinstance(item, str))
        if not texts:
            return self.ids.indices(items)
        by_text = {text: self.index(text) for text in texts}
        return np.array(
            [by_text[item] if isinstance(item, str) else self.ids.index(item) for item in items],
            np.int64,
        )

    def parse(self, text: str) -> int:
        """Return the index of an item that a person typed: an id, also as a number, or a title."""
        if self.ids.are_texts or text.isdecimal():
            index = self.ids.index(self.ids.parse(text))
            if index >= 0:
                return index
        if self.titles is None:
            raise PredictionError(
                f"{text!r} is not an item id, and this model knows no titles; give an id"
            )
        return self._single_item(self._exact_matches(text) or self._items_containing(text), text)

    def certain(self, item: int | str) -> int | None:
        """Return the index of the only item that an id or a title certainly means, or None."""
        if isinstance(item, str) and self.titles is not None:
            items = self._exact_matches(item)
            return items[0] if len(items) == 1 else None
        if isinstance(item, str) != self.ids.are_texts:
            return None
        index = self.ids.index(item)
        return None if index < 0 else index

    def _exact_matches(self, text: str) -> list[int]:
        """Return the items with this id, title or name, or the one that matches it."""
        if self.ids.are_texts and (index := self.ids.index(text)) >= 0:
            return [index]
        same = self._by_folded_title.get(text.strip().casefold())
        same = same or self._title_match.items_named(text)
        if same:
            return same
        match = self._title_match.match(text)
        return [] if match is None else [match]

    def _items_containing(self, text: str) -> list[int]:
        words = " ".join(split_words(text))
        if not words:
            return []
        return [item for item, title in enumerate(self._normalized_titles) if words in title]

    def _single_item(self, items: list[int], text: str) -> int:
        if len(items) == 1:
            return items[0]
        if items:
            most_rated = sorted(items, key=lambda item: (-int(self._n_ratings()[item]), item))
            titles = self._join_titles(most_rated[:_MAX_TITLES])
            more = "; …" if len(items) > _MAX_TITLES else ""
            raise PredictionError(
                f"{text!r} is in {len(items)} titles, say which one: {titles}{more}"
            )
        raise PredictionError(
            f"{text!r} is neither an item id nor part of a title{self._hint(text)}"
        )

    def _hint(self, text: str) -> str:
        """Return the closest titles, for the end of an error message."""
        closest = self.search(text, _MAX_TITLES)[0].tolist()
        return f"; did you mean: {self._join_titles(closest)}" if closest else ""

    def _join_titles(self, items: list[int]) -> str:
        assert self.titles is not None
        return "; ".join(str(self.titles[item]) for item in items)

    # -- titles -------------------------------------------------------------------------------

    def search(self, text: str, limit: int) -> tuple[IntArray, FloatArray]:
        """Return the items with the closest titles, and their distances, both (≤ limit,)."""
        return self._title_search.search(text, limit)

    def match(self, title: str, year: int | None = None) -> int | None:
        """Return the item that a title from another data set means; None if it is not certain."""
        return None if self.titles is None else self._title_match.match(title, year)

    @locked_cached_property
    def _title_search(self) -> TitleSearch:
        if self.titles is None:
            raise PredictionError("this model knows no titles, so none can be searched; use ids")
        return TitleSearch([str(title) for title in self.titles], self._n_ratings())

    @locked_cached_property
    def _title_match(self) -> TitleMatch:
        return TitleMatch(self._title_search.parsed)

    @locked_cached_property
    def _by_folded_title(self) -> dict[str, list[int]]:
        assert self.titles is not None
        items: dict[str, list[int]] = {}
        for item, title in enumerate(self.titles):
            if title:
                items.setdefault(str(title).strip().casefold(), []).append(item)
        return items

    @locked_cached_property
    def _normalized_titles(self) -> list[str]:
        assert self.titles is not None
        return [" ".join(split_words(str(title))) for title in self.titles]


# -- ids ---------------------------------------------------------------------------------------


class IdIndex:
    """The raw ids of users or items in the order of their indices."""

    def __init__(self, axis: str, table: npt.NDArray[Any]) -> None:
        self.axis = axis
        self.table = table
        self.are_texts = table.dtype == object

    def indices(self, raw: Any) -> IntArray:
        """Return the index of each raw id, -1 for an unknown one, (n,)."""
        if isinstance(raw, np.ndarray) and raw.ndim == 1 and raw.dtype.kind in "iu":
            return self._integer_indices(raw)
        if set(map(type, raw)) == {str if self.are_texts else int}:
            by_id = self._by_id
            return np.array([by_id.get(raw_id, -1) for raw_id in raw], np.int64)
        return np.array([self.index(raw_id) for raw_id in raw], np.int64)

    def index(self, raw: Any) -> int:
        """Return the index of a raw id, -1 if it is unknown."""
        is_valid = isinstance(raw, str)
        if not self.are_texts:
            is_valid = isinstance(raw, Integral) and not isinstance(raw, bool)
        if not is_valid and len(self.table):
            kind = "texts" if self.are_texts else "integers"
            raise PredictionError(
                f"{self.axis} id {raw!r} is a {type(raw).__name__}; the {self.axis} ids of this "
                f"model are {kind}, such as {self.raw(0)!r}: convert it"
            )
        return self._by_id.get(raw, -1)

    def raw(self, index: int) -> Any:
        """Return the raw id at an index, in Python's own type."""
        return self.table[index : index + 1].tolist()[0]

    def parse(self, text: str) -> Any:
        """Return a raw id from text, in the type of the table."""
        if self.are_texts:
            return text
        is_long = len(text) > _MAX_ID_LENGTH
        short = repr(text[: _MAX_ID_LENGTH - 3] + "…" if is_long else text)
        try:
            number = int(text)
        except ValueError:
            raise PredictionError(
                f"{self.axis} {short}: the {self.axis} ids of this model are whole numbers"
            ) from None
        limits = np.iinfo(np.int64)
        if not limits.min <= number <= limits.max:
            raise PredictionError(
                f"{self.axis} {short}: an id is a whole number from {limits.min} to {limits.max}"
            )
        return number

    @locked_cached_property
    def _by_id(self) -> dict[Any, int]:
        return {raw: index for index, raw in enumerate(self.table.tolist())}

    def _integer_indices(self, raw: npt.NDArray[Any]) -> IntArray:
        if self.are_texts or not len(self.table):
            return np.array([self.index(raw_id) for raw_id in raw.tolist()], np.int64)
        # An unsigned id beyond int64 is in no table; a cast would wrap it onto another.
        fits = raw <= np.iinfo(np.int64).max
        integers = np.where(fits, raw, 0).astype(np.int64)
        return np.where(fits, match_ids(self.table, integers), -1)


def as_ids(ids: Any) -> tuple[Any, bool]:
    """Return raw ids as an array of integers or a list, and whether a single id was given."""
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


def pair_ids(users: Any, items: Any) -> tuple[Any, Any]:
    """Return as many users as items; a single one is repeated."""
    (user_ids, one_user), (item_ids, one_item) = as_ids(users), as_ids(items)
    if one_user and not one_item:
        user_ids = list(user_ids) * len(item_ids)
    elif one_item and not one_user:
        item_ids = list(item_ids) * len(user_ids)
    if len(user_ids) != len(item_ids):
        raise PredictionError(
            f"{count_of(len(user_ids), 'user')} and {count_of(len(item_ids), 'item')} were given; "
            "give equally many, or a single one of either"
        )
    return user_ids, item_ids
