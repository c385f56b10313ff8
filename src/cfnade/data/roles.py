"""Which column is the user, which the item, which the rating, which the time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from cfnade.exceptions import DataError

Choice = str | int | None
"""A column as a person gives it: its name, its position from 0, or None to have it guessed."""

NO_COLUMN = "-"
"""As `rating=`, `time=` or `weight=`: there is none, or it is left out."""

# Words for each, the most telling first. Case and punctuation are ignored, and what ids end in.
_STEMS = {
    "user": (
        "user reviewer customer member profile account visitor person client rater viewer reader "
        "listener player subscriber shopper buyer guest consumer student critic judge"
    ),
    "item": (
        "item asin sku isbn movie film product book song track artist album anime manga app game "
        "business beer wine recipe joke place venue restaurant hotel show series episode video "
        "article course listing title"
    ),
    "rating": "rating score star rate overall grade value point mark vote preference",
    "time": (
        "timestamp unixreviewtime unixtime reviewtime time datetime date ts tstamp ratedat "
        "createdat updatedat reviewedat ratingtimestamp ratingdate ratingtime reviewdate "
        "reviewtimestamp eventtime eventtimestamp createddate creationdate purchasedate unix when"
    ),
    "weight": (
        "weight count play playcount listen listencount view viewcount click clickcount hit "
        "purchase purchasecount quantity qty frequency freq timesplayed timesviewed "
        "interactioncount nplay numplay"
    ),
}
_OTHERS = {
    "user": "uid who usersid username profilename reviewername customername membername nickname",
    "item": "iid what mid pid parentasin contentid ean upc gtin",
    "rating": (
        "bookrating movierating userrating starrating reviewrating reviewscore reviewoverall "
        "overallrating"
    ),
    "time": "",
    "weight": "quantities frequencies",
}
_ENDINGS = ("id", "", "ids", "s", "no", "nr", "num", "number", "index", "idx", "key", "code")
_PLURAL = ("", "s")


def _usual(role: str) -> list[str]:
    endings = _ENDINGS if role in ("user", "item") else _PLURAL
    stems = _STEMS[role].split()
    common = [stem + ending for stem in stems for ending in endings[:2]]
    rare = [stem + ending for stem in stems for ending in endings[2:]]
    return [*common, *_OTHERS[role].split(), *rare]


USUAL = {role: _usual(role) for role in _STEMS}
"""Names of columns, bare, the most telling first."""
_TEXT_NAMES = {
    "titles": (
        "title itemtitle itemname movietitle moviename filmtitle booktitle bookname producttitle "
        "productname songtitle songname trackname artistname albumname animename gamename "
        "businessname placename videotitle"
    ),
    "genres": "genres genre categories category",
}
TEXTS = {kind: names.split() for kind, names in _TEXT_NAMES.items()}
"""The same of columns that describe items."""

# A longer name that ends in one of these means it too, if no other column does: "Book-Rating".
_LAST = {
    "user": {*_STEMS["user"].split()},
    "item": {*_STEMS["item"].split()} - {"title"},
    "rating": {"rating", "score", "star", "grade"},
}
_FIGURES = {"avg", "average", "mean", "count", "num", "n", "total", "max", "min", "predicted"}
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_NEEDED = ("user", "item", "rating")
_ORDER = (*_NEEDED, "time")
_MAY_LACK = ("rating", "time", "weight")


@dataclass(frozen=True)
class ReadOptions:
    """What a person says of a file or frame; the rest is recognised."""

    user: Choice = None
    item: Choice = None
    rating: Choice = None
    time: Choice = None
    separator: str | None = None
    header: bool | None = None
    encoding: str | None = None
    skip_bad_lines: bool = False
    weight: Choice = field(default=None, repr=False)  # caches know sources by the repr

    def columns(self) -> dict[str, str | int]:
        """The columns that were not left to be guessed."""
        choices = {role: getattr(self, role) for role in USUAL}
        return {role: choice for role, choice in choices.items() if choice is not None}

    def absent(self) -> list[str]:
        """The columns that were said not to be there."""
        return [role for role in _MAY_LACK if getattr(self, role) == NO_COLUMN]

    def counting(self) -> str:
        """What was said of weights, for caches: nothing where nothing was said."""
        return "" if self.weight is None else f" weight={self.weight!r}"

    def of_text(self) -> list[str]:
        """The names of options that were given and make sense for text only."""
        names = ("separator", "header", "encoding", "skip_bad_lines")
        return [name for name in names if getattr(self, name) != getattr(PLAIN, name)]


PLAIN = ReadOptions()
"""Nothing was said: everything is recognised."""


@dataclass(frozen=True)
class Roles:
    """Positions of the columns that are read."""

    user: int
    item: int
    rating: int | None = None  # none where lines are interactions
    time: int | None = None
    weight: int | None = None  # of interactions
    assumed: bool = False
    """Whether lines are interactions for want of a rating, and nobody said so."""

    def positions(self) -> list[int]:
        """In the order user, item, rating, time, weight, without those that are not there."""
        return list(self.named().values())

    def notice(self, names: Sequence[str] | None) -> str:
        """What was taken for granted, in words; empty if nothing was."""
        if not self.assumed:
            return ""
        called = {role: str(p) if names is None else names[p] for role, p in self.named().items()}
        shown = ", ".join(r if r == name else f"{r} {name}" for r, name in called.items())
        return (
            "no column of ratings, so every line was taken as an interaction "
            f"({shown if names else 'columns: ' + shown}); name a column of ratings with rating= "
            "(--rating) if there is one"
        )

    def named(self) -> dict[str, int]:
        """Each role that a column has, and its position."""
        places = {role: getattr(self, role) for role in USUAL}
        return {role: place for role, place in places.items() if place is not None}

    def texts(self, names: Sequence[str]) -> dict[str, int]:
        """Columns that may hold titles and genres of items, under these names."""
        positions = {kind: find_name(usual, names) for kind, usual in TEXTS.items()}
        taken = self.positions()
        return {kind: p for kind, p in positions.items() if p is not None and p not in taken}


def choose(names: Sequence[str] | None, width: int, options: ReadOptions, label: str) -> Roles:
    """The roles of `width` columns, by the names of a header or, without one, by position."""
    places: dict[str, Any] = {}
    absent = options.absent()
    for role, choice in options.columns().items():
        if role not in absent:
            places[role] = _place(role, choice, names, width, label)
    if len(set(places.values())) < len(places):
        raise DataError(f"{label}: one column is given twice: {options.columns()}")
    for role in USUAL:
        if role in places or role in (*absent, "weight"):
            continue
        guess = _by_order(role, width, options) if names is None else find_name(USUAL[role], names)
        if guess is not None and guess not in places.values():
            places[role] = guess
    for role in _NEEDED:
        if role not in (*places, *absent) and names is not None:
            places |= _by_last_word(role, names, places)
    if missing := _missing(places, names, width, options):
        arguments = ", ".join(f"{role}=" for role in missing)
        no_ratings = '; rating="-" if lines are clicks or the like' if "rating" in missing else ""
        raise DataError(
            f"{label}: which column is the {' and which the '.join(missing)}? There are "
            f"{_listed(names, width)}; say it with {arguments} (a name, or a position from 0"
            f"{no_ratings})"
        )
    if "rating" in places:
        _refuse_weight(places, options, label)
        return Roles(**places)
    if options.weight is None and names is not None:
        guess = find_name(USUAL["weight"], names)
        if guess not in (None, *places.values()):
            places["weight"] = guess
    return Roles(**places, assumed=options.rating is None)


def _missing(
    places: dict[str, Any], names: Sequence[str] | None, width: int, options: ReadOptions
) -> list[str]:
    """The columns to ask for; not for ratings where lines are interactions."""
    missing = [role for role in _NEEDED if role not in places]
    if missing == ["rating"] or width == 2 or "rating" in options.absent():
        return [role for role in missing if role != "rating" or _may_rate(names, width, options)]
    return missing


def _may_rate(names: Sequence[str] | None, width: int, options: ReadOptions) -> bool:
    """Whether a column may hold ratings and does not show it; else lines are interactions."""
    if options.rating == NO_COLUMN or options.weight not in (None, NO_COLUMN):
        return False
    if names is None:
        return width > 2
    # "avg_rating" may be the rating or not: that is for a person to say
    words = {word.lower() for name in names for word in _WORDS.findall(name)}
    return any(word.removesuffix("s") in _LAST["rating"] for word in words)


def _refuse_weight(places: dict[str, int], options: ReadOptions, label: str) -> None:
    if "weight" in places:
        raise DataError(
            f"{label}: weight={options.weight!r} is for interactions, and column "
            f"{places['rating']} (from 0) was taken as ratings; leave it out, or say that there "
            'are no ratings with rating="-"'
        )


def _place(
    role: str, choice: str | int, names: Sequence[str] | None, width: int, label: str
) -> int:
    if isinstance(choice, str) and names is not None:
        same = [i for i, name in enumerate(names) if name.strip() == choice.strip()]
        same = same or [i for i, name in enumerate(names) if _bare(name) == _bare(choice)]
        if len(same) == 1:
            return same[0]
        if len(same) > 1:
            raise DataError(f"{label}: {len(same)} columns are named {choice!r}; give a position")
    there = _listed(names, width)
    if isinstance(choice, bool) or (isinstance(choice, str) and not choice.isdecimal()):
        raise DataError(f"{label}: {role}={choice!r} is no column; there are {there}")
    if not 0 <= int(choice) < width:
        raise DataError(f"{label}: {role}={choice}: there are {there}, counted from 0")
    return int(choice)


def find_name(usual: Sequence[str], names: Sequence[str]) -> int | None:
    """The position of the most telling name."""
    bare = [_bare(name) for name in names]
    return next((bare.index(name) for name in usual if name in bare), None)


def _by_last_word(role: str, names: Sequence[str], taken: dict[str, int]) -> dict[str, int]:
    """The one column whose name ends in a word for the role, if there is just one."""
    positions = [
        place
        for place, name in enumerate(names)
        if place not in taken.values() and _last_word(name) in _LAST[role]
    ]
    return {role: positions[0]} if len(positions) == 1 else {}


def _last_word(name: str) -> str:
    """What a name says when "id" and its like are taken off; nothing if it is a figure's."""
    words: list[str] = [word.lower() for word in _WORDS.findall(name)]
    if not words or _FIGURES.intersection(words[:-1]):
        return ""
    while len(words) > 1 and words[-1] in _ENDINGS:
        words.pop()
    return words[-1] if words[-1] in _LAST["item"] else words[-1].removesuffix("s")


def _by_order(role: str, width: int, options: ReadOptions) -> int | None:
    """user, item, rating, time: the order of nearly every file without header."""
    place = _ORDER.index(role)
    if width > 4 and not options.columns():
        return None  # wide tables put anything anywhere
    return place if place < width else None


def _bare(name: str) -> str:
    return re.sub(r"[\W_]+", "", name.lower())


def _listed(names: Sequence[str] | None, width: int) -> str:
    if names is None:
        return f"{width} columns without names"
    shown = ", ".join(f"{name[:30]!r}" for name in names[:20])
    return f"{width} columns: {shown}{' …' if len(names) > 20 else ''}"
