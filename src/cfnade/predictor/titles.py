"""Titles as people write them: case, accents, punctuation, articles and numerals made alike."""

from __future__ import annotations

import re
import unicodedata
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
    if found := _YEAR.search(text):
        year, text = int(found[1]), text[: found.start()]
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
    if found := _LAST_ARTICLE.search(text):
        return f"{found[1]} {text[: found.start()]}"
    return text


def _words(text: str) -> tuple[str, ...]:
    text = unicodedata.normalize("NFKD", text.translate(_MARKS)).casefold().translate(_LETTERS)
    text = "".join(c for c in text if not unicodedata.combining(c))
    text = _DOTTED.sub(lambda found: found[0].replace(".", ""), text)
    words = "".join(c if c.isalnum() else " " for c in text).split()
    return tuple(_numeral(word, at) for at, word in enumerate(words))


def _numeral(word: str, at: int) -> str:
    """Roman numerals as digits; a letter alone only where it can hardly be a word or a name."""
    if word in _LETTER_NUMERALS and (word == "i" or at == 0):
        return word
    return _ROMAN.get(word, word)
