"""Titles as people write them: case, accents, punctuation, articles and numerals made alike.

By these, which item a film from elsewhere is. A wrong film is worse than none.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

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
# What Unicode does not take apart.
_LETTERS = str.maketrans({"æ": "ae", "œ": "oe", "ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th"})
_MARKS = str.maketrans({"'": "", "’": "", "‘": "", "`": "", "´": "", "&": " and "})
_TENS, _ONES = ("", "x"), ("", "i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix")
_ROMAN = {ten + one: str(10 * t + o) for t, ten in enumerate(_TENS) for o, one in enumerate(_ONES)}
_LETTER_NUMERALS = frozenset({"i", "v", "x"})
_LEAST_LETTERS = 4  # of a part of a title that may stand for the whole
_BESIDES = ("bonusmaterial", "makingof", "behindthescenes")  # films about a film, by their parts


class Name(NamedTuple):
    """One name of an item."""

    words: tuple[str, ...]  # without a leading "the", "a" or "an"
    parts: tuple[str, ...] = ()
    """What stands before and after a colon or dash, each without spaces, if there is one."""

    @property
    def key(self) -> str:
        """Equal for spellings that differ in spaces and articles only."""
        return "".join(self.words)


class Title(NamedTuple):
    """A title taken apart: "Seven (a.k.a. Se7en) (1995)" has two names and a year."""

    names: tuple[Name, ...]
    year: int | None


def parse(text: str) -> Title:
    """Take a title apart; without letters and digits it has no name."""
    year = None
    if dated := _YEAR.search(text):
        year, text = int(dated[1]), text[: dated.start()]
    main = _ALIAS.sub(" ", text)
    aliases = [_ALSO.sub("", alias) for alias in _ALIAS.findall(text)]
    # A title that is all in brackets has its name there.
    names = [name for name in map(_name, [main, *aliases]) if name.words]
    return Title(tuple(dict.fromkeys(names)), year)


def words_of(text: str) -> tuple[str, ...]:
    """The words of a text in plain small letters, numerals as digits, no leading article."""
    words = _words(_front(text))
    return words[1:] if len(words) > 1 and words[0] in _ARTICLES else words


def _name(text: str) -> Name:
    text = _front(text)
    pieces = [piece for piece in _BREAK.split(text) if piece.strip()]
    parts = tuple("".join(words_of(piece)) for piece in pieces) if len(pieces) > 1 else ()
    return Name(words_of(text), tuple(part for part in parts if part))


def _front(text: str) -> str:
    """ "Matrix, The" as "The Matrix"."""
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
    """Roman numerals as digits; a letter alone only where it can hardly be a word or a name."""
    if word in _LETTER_NUMERALS and (word == "i" or place == 0):
        return word
    return _ROMAN.get(word, word)


class TitleMatch:
    """Items by the keys of their names, and of the parts of these."""

    def __init__(self, parsed: list[Title]) -> None:
        self._parsed = parsed
        self._by_name: dict[str, set[int]] = defaultdict(set)
        self._by_part: dict[str, set[int]] = defaultdict(set)
        for item, title in enumerate(parsed):
            for name in title.names:
                self._by_name[name.key].add(item)
                if not any(part.startswith(_BESIDES) for part in name.parts):
                    for part in name.parts:
                        self._by_part[part].add(item)

    def match(self, text: str, year: int | None = None) -> int | None:
        """The one item that is meant, or None.

        Names must be equal but for case, accents, punctuation, spaces and articles, and years a
        year apart at most. With the very same year one side may be a part of the other before or
        after a colon or dash: "Star Wars" is "Star Wars: Episode IV - A New Hope".
        """
        title = parse(text)
        year = title.year if year is None else year
        named = self._named(title)
        if year is None:
            return _only(named)
        same, near = self._in_year(named, year, 0), self._in_year(named, year, 1)
        if same or near:
            return _only(same or near)
        undated = {item for item in named if self._parsed[item].year is None}
        return _only(undated) if undated else _only(self._in_year(self._partly(title), year, 0))

    def named(self, text: str) -> list[int]:
        """All items of this name; of this year, if the text has one."""
        title = parse(text)
        named = self._named(title)
        return sorted(named if title.year is None else self._in_year(named, title.year, 0))

    def _named(self, title: Title) -> set[int]:
        """By the main name if an item has it, otherwise by the others."""
        for name in title.names:
            if items := self._by_name.get(name.key):
                return items
        return set()

    def _partly(self, title: Title) -> set[int]:
        items: set[int] = set()
        for name in title.names:
            if len(name.key) >= _LEAST_LETTERS:
                items |= self._by_part.get(name.key, set())
            for part in name.parts:
                if len(part) >= _LEAST_LETTERS:
                    items |= self._by_name.get(part, set())
        return items

    def _in_year(self, items: Iterable[int], year: int, apart: int) -> set[int]:
        years = ((item, self._parsed[item].year) for item in items)
        return {item for item, own in years if own is not None and abs(own - year) <= apart}


def _only(items: set[int]) -> int | None:
    return next(iter(items)) if len(items) == 1 else None
