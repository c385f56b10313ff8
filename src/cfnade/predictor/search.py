"""Finding titles by what people type: words in any order, unfinished, with typing errors.

Each word asked for is found in a title as it is, as a beginning, or with a few edits; what a title
costs is what it takes to get there. Of equal cost the title with more ratings comes first.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from cfnade.kernels.spelling import Spellings
from cfnade.predictor.titles import Title, parse

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

_UNFINISHED, _NOT_FIRST, _NOT_ALONE, _EDIT = 0.6, 0.5, 0.5, 2.0
"""What it costs that a word is a beginning only, that the title begins with another word or holds
more words, and each edit."""
_MISSING, _ENOUGH = 6.0, 0.6  # a word that is not there; the letters that must be
_WORSE = 4.0  # than the best: is not shown beside it
_STEM = 4  # letters of a word before the last one that may be a beginning
_MOST_WORDS, _MOST_LETTERS = 12, 200


class TitleSearch:
    """An index of titles by item; "" is no title."""

    def __init__(self, titles: Sequence[str], ratings: IntArray) -> None:
        self.parsed: list[Title] = [parse(title) for title in titles]
        self._ratings = ratings
        names = [(item, name) for item, t in enumerate(self.parsed) for name in t.names]
        self._items = np.array([item for item, _ in names], np.int64)  # by name
        words = [name.words for _, name in names]
        self._years = np.array([self.parsed[item].year or 0 for item, _ in names], np.int64)
        self._lengths = np.array([len(one) for one in words], np.int64)
        vocabulary = sorted({word for one in words for word in one})
        self._places = {word: place for place, word in enumerate(vocabulary)}
        self._vocabulary, self._spellings = vocabulary, Spellings(vocabulary)
        self._firsts = np.array([self._places[one[0]] for one in words], np.int64)
        self._index(words)
        keys = sorted((name.key, place) for place, (_, name) in enumerate(names))
        self._keys, self._key_names = [key for key, _ in keys], [place for _, place in keys]

    def _index(self, words: list[tuple[str, ...]]) -> None:
        """Which names hold a word: those from offsets[word] on."""
        pairs = sorted((self._places[word], name) for name, one in enumerate(words) for word in one)
        self._names = np.array([name for _, name in pairs], np.int64)
        held = np.array([word for word, _ in pairs], np.int64)
        self._offsets = np.searchsorted(held, np.arange(len(self._places) + 1))

    def search(self, text: str, limit: int) -> tuple[IntArray, FloatArray]:
        """Items whose titles fit best, and what each costs (0: the very title). Both (≤ limit,)."""
        title = parse(text[:_MOST_LETTERS])
        nothing = np.empty(0, np.int64), np.empty(0)
        if not title.names or not len(self._items):
            return nothing
        asked = title.names[0].words[:_MOST_WORDS]
        costs = self._fitting(asked)
        if title.year is not None:
            costs[self._years != title.year] += _EDIT
        elif len(asked) > 1 and len(asked[-1]) == 4 and asked[-1].isdecimal():
            # A number at the end is a word of the title or its year.
            dated = self._fitting(asked[:-1])
            costs = np.minimum(costs, np.where(self._years == int(asked[-1]), dated, np.inf))
        by_item = np.full(len(self.parsed), np.inf)
        np.minimum.at(by_item, self._items, costs)
        near = np.flatnonzero(by_item <= by_item.min() + _WORSE)
        near = near[np.isfinite(by_item[near])]
        order = np.lexsort((near, -self._ratings[near], by_item[near].round(6)))
        nearest = near[order[:limit]]
        return nearest, by_item[nearest]

    # -- what names cost ----------------------------------------------------------------------

    def _fitting(self, asked: tuple[str, ...]) -> FloatArray:
        """What each name costs; edits are tried if nothing fits without. Returns (names,)."""
        costs = self._costs(asked, edits=False)
        self._squeezed("".join(asked), costs)
        if costs.min() >= _EDIT:
            costs = np.minimum(costs, self._costs(asked, edits=True))
        return costs

    def _costs(self, asked: tuple[str, ...], *, edits: bool) -> FloatArray:
        """What each name costs, ∞ if too little of what was asked is in it. Returns (names,)."""
        count = len(self._items)
        total, missing, letters = np.zeros(count), np.zeros(count), np.zeros(count)
        first = np.zeros(count, bool)
        for place, word in enumerate(asked):
            near = self._near(word, edits=edits, last=place == len(asked) - 1)
            cost = np.full(count, np.inf)
            for price in sorted({price for price, _ in near}, reverse=True):
                same = [places for one, places in near if one == price]
                words = np.concatenate(same)
                cost[self._holding(words)] = price
                first |= (place == 0) & np.isin(self._firsts, words)
            there = np.isfinite(cost)
            total += np.where(there, cost, _MISSING)
            missing += ~there
            letters += np.where(there, len(word), 0)
        alone = (self._lengths == len(asked)) & (missing == 0)
        total += np.where(first | alone, 0.0, _NOT_FIRST) + np.where(alone, 0.0, _NOT_ALONE)
        # What is not there may be made up for by the rest, if that is there as it was asked for.
        enough = (letters >= _ENOUGH * sum(map(len, asked))) & (total - _MISSING * missing < _EDIT)
        total[(missing > 0) & ~(enough & edits)] = np.inf
        return total

    def _near(self, word: str, *, edits: bool, last: bool) -> list[tuple[float, IntArray]]:
        """Words of the vocabulary that may be meant, by price."""
        near: list[tuple[float, IntArray]] = []
        if last or len(word) >= _STEM:
            begin = bisect_left(self._vocabulary, word)
            end = bisect_left(self._vocabulary, word + "\U0010ffff")
            near.append((_UNFINISHED, np.arange(begin, end)))
        if word in self._places:
            near.append((0.0, np.array([self._places[word]])))
        most = _most_edits(word) if edits else 0
        if most:
            needed = self._spellings.edits(word, most)
            near += [(_EDIT * n, np.flatnonzero(needed == n)) for n in range(1, most + 1)]
            if last:
                needed = self._spellings.edits(word, most, prefix=True)
                some = [np.flatnonzero(needed == n) for n in range(1, most + 1)]
                near += [(_EDIT * n + _UNFINISHED, part) for n, part in enumerate(some, 1)]
        return near

    def _holding(self, words: IntArray) -> IntArray:
        """Names that hold any of these words."""
        parts = [self._names[self._offsets[w] : self._offsets[w + 1]] for w in words.tolist()]
        return np.concatenate([np.empty(0, np.int64), *parts])

    def _squeezed(self, key: str, costs: FloatArray) -> None:
        """Names that are the same, or begin so, without their spaces: "starwars", "spiderman"."""
        begin = bisect_left(self._keys, key)
        end = bisect_left(self._keys, key + "\U0010ffff") if len(key) >= 4 else begin
        for place in range(begin, max(end, begin + 1)):
            if place < len(self._keys) and self._keys[place].startswith(key):
                price = 0.0 if self._keys[place] == key else _NOT_ALONE + _UNFINISHED
                name = self._key_names[place]
                costs[name] = min(costs[name], price)


def _most_edits(word: str) -> int:
    """Short words and numbers are easily another one."""
    if len(word) < 3 or word.isdecimal():
        return 0
    return 1 if len(word) < 8 else 2
