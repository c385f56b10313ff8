"""The items of a model, by id and by title."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from cfnade.data.ratings import Ratings
from cfnade.errors import PredictionError
from cfnade.predictor.ids import Ids
from cfnade.predictor.matching import TitleMatch
from cfnade.predictor.once import once
from cfnade.predictor.search import TitleSearch
from cfnade.predictor.titles import words_of

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

_SHOWN = 5  # titles in an error


class Catalogue:
    """Looks items up; the indices over titles are made when first needed."""

    def __init__(self, ids: Ids, ratings: Ratings, counts: Callable[[], IntArray]) -> None:
        self.ids = ids
        self.titles = ratings.titles
        self._counts = counts

    # -- one item that is meant ---------------------------------------------------------------

    def index(self, item: Any) -> int:
        """The index of an item given by raw id or title, -1 for an unknown id.

        A title that fits no item, or several, is an error that lists the nearest. Where ids are
        texts themselves, a text that is neither is an unknown id.
        """
        if not isinstance(item, str) or self.titles is None:
            return self.ids.index(item)
        if self.ids.are_texts:
            at = self.ids.index(item)
            return at if at >= 0 else self._titled(item, lost_is_error=False)
        if item.strip().lstrip("+-").isdecimal() and not self._matches.named(item):
            return self.ids.index(item)  # an id in the wrong type, which is said
        return self._titled(item, lost_is_error=True)

    def indices(self, items: Any) -> IntArray:
        """The same for many. Returns (n,)."""
        if isinstance(items, np.ndarray) or self.titles is None:
            return self.ids.indices(items)
        if self.ids.are_texts or any(isinstance(item, str) for item in items):
            return np.array([self.index(item) for item in items], np.int64)
        return self.ids.indices(items)

    def titled(self, text: str) -> int:
        """The index of the one item with this title; part of it will do if no other has it."""
        if self.titles is None:
            raise PredictionError(
                f"{text!r} is not an item id, and this model knows no titles; give an id"
            )
        return self._titled(text, lost_is_error=True)

    def _titled(self, text: str, *, lost_is_error: bool) -> int:
        folded = text.strip().casefold()
        same = self._folded.get(folded, [])
        found = same or self._matches.named(text) or self._containing(text)
        if len(found) == 1:
            return found[0]
        if found:
            best_known = sorted(found, key=lambda at: (-int(self._counts()[at]), at))
            some = self._listed(best_known[:_SHOWN]) + ("; …" if len(found) > _SHOWN else "")
            raise PredictionError(f"{text!r} is in {len(found)} titles, say which one: {some}")
        if not lost_is_error:
            return -1
        near = self.search(text, _SHOWN)[0].tolist()
        hint = f"; did you mean: {self._listed(near)}" if near else ""
        raise PredictionError(f"{text!r} is neither an item id nor part of a title{hint}")

    def _listed(self, items: list[int]) -> str:
        assert self.titles is not None
        return "; ".join(str(self.titles[at]) for at in items)

    def _containing(self, text: str) -> list[int]:
        words = " ".join(words_of(text))
        return [at for at, title in enumerate(self._spaced) if words in title] if words else []

    # -- many that may be ---------------------------------------------------------------------

    def search(self, text: str, limit: int) -> tuple[IntArray, FloatArray]:
        """Items whose titles are nearest, nearest first, and how far each is. Both (≤ limit,)."""
        return self._index.search(text, limit)

    def match(self, title: str, year: int | None = None) -> int | None:
        """The item that a title from elsewhere means, or None if that is not certain."""
        return None if self.titles is None else self._matches.match(title, year)

    @once
    def _index(self) -> TitleSearch:
        if self.titles is None:
            raise PredictionError("this model knows no titles, so none can be searched; use ids")
        return TitleSearch([str(title) for title in self.titles], self._counts())

    @once
    def _matches(self) -> TitleMatch:
        return TitleMatch(self._index.parsed)

    @once
    def _folded(self) -> dict[str, list[int]]:
        assert self.titles is not None
        folded: dict[str, list[int]] = {}
        for at, title in enumerate(self.titles):
            if title:
                folded.setdefault(str(title).strip().casefold(), []).append(at)
        return folded

    @once
    def _spaced(self) -> list[str]:
        assert self.titles is not None
        return [" ".join(words_of(str(title))) for title in self.titles]
