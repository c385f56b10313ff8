"""The items of a model, by id and by title: one rule says which item a text means.

It is the item with this very id; else with this title or name; else the one that a title from
elsewhere is sure to mean; else, as a guess, the one whose title the text is a part of.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from cfnade.data.dataset import Dataset
from cfnade.exceptions import PredictionError
from cfnade.predictor.ids import Ids
from cfnade.predictor.search import TitleSearch
from cfnade.predictor.titles import TitleMatch, words_of
from cfnade.utils.caching import locked_cached_property

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


class Catalogue:
    """Looks items up; the indices over titles are made when first needed."""

    def __init__(self, ids: Ids, ratings: Dataset, counts: Callable[[], IntArray]) -> None:
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
        if is_number and not self.ids.are_texts and not self._matches.named(item):
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
        same = self._folded.get(text.strip().casefold()) or self._matches.named(text)
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
