"""Titles: normalization, matching with titles of other data sets, and search.

Case, accents, punctuation, articles and the form of numerals do not matter. A match must be
certain, because a wrong item is worse than none; a search returns the closest titles.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cfnade.kernels.edit_distance import EditDistances

_YEAR = re.compile(r"\s*\((\d{4})(?:\s*[-–]\s*(?:\d{4})?)?\)\s*$")
_ALIAS = re.compile(r"\(([^()]*)\)")
_ALSO = re.compile(r"^\s*(?:a\.?k\.?a\.?|also known as)\s+", re.IGNORECASE)
_DOTTED = re.compile(r"\b(?:\w\.){2,}")  # E.T., A.I.
_BREAK = re.compile(r"\s*:\s+|\s+[-–—]\s+")
_LAST_ARTICLE = re.compile(
    r",\s+(the|an?|la|les?|l'|el|los|las|il|lo|gli|der|die|das|ein|eine|une?|una|det|den|het)\s*$",
    re.IGNORECASE,
)
_ARTICLES = frozenset({"the", "a", "an"})
# Letters that Unicode does not decompose.
_LETTERS = str.maketrans({"æ": "ae", "œ": "oe", "ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th"})
_MARKS = str.maketrans({"'": "", "’": "", "‘": "", "`": "", "´": "", "&": " and "})
_TENS, _UNITS = ("", "x"), ("", "i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix")
_ROMAN = {
    ten + unit: str(10 * t + o) for t, ten in enumerate(_TENS) for o, unit in enumerate(_UNITS)
}
_LETTER_NUMERALS = frozenset({"i", "v", "x"})
_MIN_PART = 4  # letters of a part of a title that may stand for the whole
_EXTRAS = ("bonusmaterial", "makingof", "behindthescenes")  # parts of titles of films on films


class Name(NamedTuple):
    """One name of an item."""

    words: tuple[str, ...]  # without a leading "the", "a" or "an"
    parts: tuple[str, ...] = ()
    """The parts before and after a colon or dash, without spaces; () if there is none."""

    @property
    def key(self) -> str:
        """The words without spaces: equal for names that differ in spaces and articles only."""
        return "".join(self.words)


class Title(NamedTuple):
    """A parsed title: "Seven (a.k.a. Se7en) (1995)" has two names and a year."""

    names: tuple[Name, ...]
    year: int | None


def parse(text: str) -> Title:
    """Parse a title; without letters and digits it has no name."""
    year = None
    if dated := _YEAR.search(text):
        year, text = int(dated[1]), text[: dated.start()]
    main = _ALIAS.sub(" ", text)
    aliases = [_ALSO.sub("", alias) for alias in _ALIAS.findall(text)]
    # A title that is all in brackets has its name there.
    names = [name for name in map(_name, [main, *aliases]) if name.words]
    return Title(tuple(dict.fromkeys(names)), year)


def split_words(text: str) -> tuple[str, ...]:
    """Return the words of a text: ASCII where possible, lowercase, without a leading article."""
    words = _words(_article_first(text))
    return words[1:] if len(words) > 1 and words[0] in _ARTICLES else words


def _name(text: str) -> Name:
    text = _article_first(text)
    pieces = [piece for piece in _BREAK.split(text) if piece.strip()]
    parts = tuple("".join(split_words(piece)) for piece in pieces) if len(pieces) > 1 else ()
    return Name(split_words(text), tuple(part for part in parts if part))


def _article_first(text: str) -> str:
    """Return "The Matrix" for "Matrix, The"."""
    if article := _LAST_ARTICLE.search(text):
        return f"{article[1]} {text[: article.start()]}"
    return text


def _words(text: str) -> tuple[str, ...]:
    text = unicodedata.normalize("NFKD", text.translate(_MARKS)).casefold().translate(_LETTERS)
    text = "".join(c for c in text if not unicodedata.combining(c))
    text = _DOTTED.sub(lambda letters: letters[0].replace(".", ""), text)
    words = "".join(c if c.isalnum() else " " for c in text).split()
    return tuple(_numeral(word, place) for place, word in enumerate(words))


def _numeral(word: str, place: int) -> str:
    """Return Roman numerals as digits; a single letter only where it is hardly a word or a name."""
    if word in _LETTER_NUMERALS and (word == "i" or place == 0):
        return word
    return _ROMAN.get(word, word)


class TitleMatch:
    """Matches titles of other data sets with items, by names and parts of names."""

    def __init__(self, parsed: list[Title]) -> None:
        self._parsed = parsed
        self._by_name: dict[str, set[int]] = defaultdict(set)
        self._by_part: dict[str, set[int]] = defaultdict(set)
        for item, title in enumerate(parsed):
            for name in title.names:
                self._by_name[name.key].add(item)
                if not any(part.startswith(_EXTRAS) for part in name.parts):
                    for part in name.parts:
                        self._by_part[part].add(item)

    def match(self, text: str, year: int | None = None) -> int | None:
        """Return the item that a title certainly means, or None.

        Names must be equal up to case, accents, punctuation, spaces and articles, and years at
        most one year apart. With equal years, one name may be the part of the other before or
        after a colon or dash: "Star Wars" is "Star Wars: Episode IV - A New Hope".
        """
        title = parse(text)
        year = title.year if year is None else year
        matches = self._items_named(title)
        if year is None:
            return _only(matches)
        same, near = self._in_year(matches, year, 0), self._in_year(matches, year, 1)
        if same or near:
            return _only(same or near)
        undated = {item for item in matches if self._parsed[item].year is None}
        return (
            _only(undated)
            if undated
            else _only(self._in_year(self._items_with_part(title), year, 0))
        )

    def items_named(self, text: str) -> list[int]:
        """Return all items with this name, and this year if the text has one."""
        title = parse(text)
        matches = self._items_named(title)
        return sorted(matches if title.year is None else self._in_year(matches, title.year, 0))

    def _items_named(self, title: Title) -> set[int]:
        """Return the items with the first of the title's names that any item has."""
        for name in title.names:
            if items := self._by_name.get(name.key):
                return items
        return set()

    def _items_with_part(self, title: Title) -> set[int]:
        items: set[int] = set()
        for name in title.names:
            if len(name.key) >= _MIN_PART:
                items |= self._by_part.get(name.key, set())
            for part in name.parts:
                if len(part) >= _MIN_PART:
                    items |= self._by_name.get(part, set())
        return items

    def _in_year(self, items: Iterable[int], year: int, apart: int) -> set[int]:
        years = ((item, self._parsed[item].year) for item in items)
        return {item for item, y in years if y is not None and abs(y - year) <= apart}


def _only(items: set[int]) -> int | None:
    return next(iter(items)) if len(items) == 1 else None


# -- search ------------------------------------------------------------------------------------

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

_PREFIX, _NOT_FIRST, _NOT_ALONE, _EDIT = 0.6, 0.5, 0.5, 2.0
"""Costs of a word that is only the beginning of a title's word, of a title that begins with another
word, of a title with more words, and of each edit."""
_MISSING, _MIN_FOUND = 6.0, 0.6  # cost of a word that is missing; fraction of letters to find
_MAX_EXCESS = 4.0  # items with a cost higher than the lowest by more than this are not listed
_MIN_PREFIX = 4  # letters of the beginning of a word, except for the last word
_MAX_WORDS, _MAX_LETTERS = 12, 200


class TitleSearch:
    """Searches the titles of items by words; "" is no title."""

    def __init__(self, titles: Sequence[str], ratings: IntArray) -> None:
        self.parsed: list[Title] = [parse(title) for title in titles]
        self._ratings = ratings
        names = [(item, name) for item, t in enumerate(self.parsed) for name in t.names]
        self._items = np.array([item for item, _ in names], np.int64)  # by name
        words = [name.words for _, name in names]
        self._years = np.array([self.parsed[item].year or 0 for item, _ in names], np.int64)
        self._lengths = np.array([len(name_words) for name_words in words], np.int64)
        vocabulary = sorted({word for name_words in words for word in name_words})
        self._places = {word: place for place, word in enumerate(vocabulary)}
        self._vocabulary, self._spellings = vocabulary, EditDistances(vocabulary)
        self._firsts = np.array([self._places[name_words[0]] for name_words in words], np.int64)
        self._index(words)
        keys = sorted((name.key, place) for place, (_, name) in enumerate(names))
        self._keys, self._key_names = [key for key, _ in keys], [place for _, place in keys]

    def _index(self, words: list[tuple[str, ...]]) -> None:
        """Store the names with each word: those between its offsets."""
        pairs = sorted((self._places[word], name) for name, ws in enumerate(words) for word in ws)
        self._names = np.array([name for _, name in pairs], np.int64)
        held = np.array([word for word, _ in pairs], np.int64)
        self._offsets = np.searchsorted(held, np.arange(len(self._places) + 1))

    def search(self, text: str, limit: int) -> tuple[IntArray, FloatArray]:
        """Return the items with the closest titles, and their costs, both (≤ limit,)."""
        title = parse(text[:_MAX_LETTERS])
        empty = np.empty(0, np.int64), np.empty(0)
        if not title.names or not len(self._items):
            return empty
        query = title.names[0].words[:_MAX_WORDS]
        costs = self._name_costs(query)
        if title.year is not None:
            costs[self._years != title.year] += _EDIT
        elif len(query) > 1 and len(query[-1]) == 4 and query[-1].isdecimal():
            # A number at the end is a word of the title or its year.
            dated = self._name_costs(query[:-1])
            costs = np.minimum(costs, np.where(self._years == int(query[-1]), dated, np.inf))
        by_item = np.full(len(self.parsed), np.inf)
        np.minimum.at(by_item, self._items, costs)
        near = np.flatnonzero(by_item <= by_item.min() + _MAX_EXCESS)
        near = near[np.isfinite(by_item[near])]
        order = np.lexsort((near, -self._ratings[near], by_item[near].round(6)))
        nearest = near[order[:limit]]
        return nearest, by_item[nearest]

    # -- costs --------------------------------------------------------------------------------

    def _name_costs(self, query: tuple[str, ...]) -> FloatArray:
        """Return the cost of each name, (names,), with edits only if no name fits without."""
        costs = self._word_costs(query, edits=False)
        self._compare_joined("".join(query), costs)
        if costs.min() >= _EDIT:
            costs = np.minimum(costs, self._word_costs(query, edits=True))
        return costs

    def _word_costs(self, query: tuple[str, ...], *, edits: bool) -> FloatArray:
        """Return the cost of each name, (names,): ∞ if too much of the query is missing."""
        count = len(self._items)
        total, missing, letters = np.zeros(count), np.zeros(count), np.zeros(count)
        first = np.zeros(count, bool)
        for place, word in enumerate(query):
            near = self._similar_words(word, edits=edits, last=place == len(query) - 1)
            cost = np.full(count, np.inf)
            for word_cost in sorted({word_cost for word_cost, _ in near}, reverse=True):
                words = np.concatenate([places for cost_of, places in near if cost_of == word_cost])
                cost[self._names_with(words)] = word_cost
                first |= (place == 0) & np.isin(self._firsts, words)
            is_found = np.isfinite(cost)
            total += np.where(is_found, cost, _MISSING)
            missing += ~is_found
            letters += np.where(is_found, len(word), 0)
        is_all = (self._lengths == len(query)) & (missing == 0)
        total += np.where(first | is_all, 0.0, _NOT_FIRST) + np.where(is_all, 0.0, _NOT_ALONE)
        # Words may be missing if most letters are found, without edits.
        has_edits = total - _MISSING * missing >= _EDIT
        is_enough = (letters >= _MIN_FOUND * sum(map(len, query))) & ~has_edits
        total[(missing > 0) & ~(is_enough & edits)] = np.inf
        return total

    def _similar_words(self, word: str, *, edits: bool, last: bool) -> list[tuple[float, IntArray]]:
        """Return words of the vocabulary that may be meant, with their cost."""
        near: list[tuple[float, IntArray]] = []
        if last or len(word) >= _MIN_PREFIX:
            begin = bisect_left(self._vocabulary, word)
            end = bisect_left(self._vocabulary, word + "\U0010ffff")
            near.append((_PREFIX, np.arange(begin, end)))
        if word in self._places:
            near.append((0.0, np.array([self._places[word]])))
        most = _max_edits(word) if edits else 0
        if most:
            needed = self._spellings.edits(word, most)
            near += [(_EDIT * n, np.flatnonzero(needed == n)) for n in range(1, most + 1)]
            if last:
                needed = self._spellings.edits(word, most, prefix=True)
                by_edits = [np.flatnonzero(needed == n) for n in range(1, most + 1)]
                near += [(_EDIT * n + _PREFIX, part) for n, part in enumerate(by_edits, 1)]
        return near

    def _names_with(self, words: IntArray) -> IntArray:
        """Return the names with any of these words."""
        parts = [self._names[self._offsets[w] : self._offsets[w + 1]] for w in words.tolist()]
        return np.concatenate([np.empty(0, np.int64), *parts])

    def _compare_joined(self, key: str, costs: FloatArray) -> None:
        """Lower the costs of names that are, or begin with, the key without spaces: "starwars"."""
        begin = bisect_left(self._keys, key)
        end = bisect_left(self._keys, key + "\U0010ffff") if len(key) >= 4 else begin
        for place in range(begin, max(end, begin + 1)):
            if place < len(self._keys) and self._keys[place].startswith(key):
                cost = 0.0 if self._keys[place] == key else _NOT_ALONE + _PREFIX
                name = self._key_names[place]
                costs[name] = min(costs[name], cost)


def _max_edits(word: str) -> int:
    """Return how many edits are allowed: short words and numbers easily become other ones."""
    if len(word) < 3 or word.isdecimal():
        return 0
    return 1 if len(word) < 8 else 2
