"""Which column is the user, which the item, which the rating, which the time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from cfnade.errors import DataError

Choice = str | int | None
"""A column as a person gives it: its name, its position from 0, or None to have it guessed."""

NO_TIME = "-"
"""As `time=`: leave the times out."""

# Usual names, the most telling first, without case and punctuation.
_USUAL_NAMES = {
    "user": (
        "userid user uid usersid userno userindex useridx usernum reviewerid customerid "
        "memberid profileid accountid visitorid personid reviewer customer member person "
        "username profilename"
    ),
    "item": (
        "itemid item iid movieid asin parentasin productid bookid isbn songid trackid artistid "
        "albumid animeid gameid businessid beerid recipeid jokeid placeid filmid itemno itemindex "
        "itemidx contentid movie product book song track artist album anime game business beer "
        "recipe joke place film mid"
    ),
    "rating": (
        "rating ratings score stars star rate overall bookrating reviewrating reviewscore "
        "userrating starrating reviewoverall overallrating value"
    ),
    "time": (
        "timestamp unixreviewtime unixtime reviewtime time datetime date ts ratedat createdat "
        "tstamp timestamps ratingtimestamp ratingdate ratingtime"
    ),
}
USUAL = {role: names.split() for role, names in _USUAL_NAMES.items()}
_NEEDED = ("user", "item", "rating")


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

    def columns(self) -> dict[str, str | int]:
        """The columns that were not left to be guessed."""
        choices = {role: getattr(self, role) for role in USUAL}
        return {role: choice for role, choice in choices.items() if choice is not None}

    def of_text(self) -> list[str]:
        """The names of options that were given and make sense for text only."""
        names = ("separator", "header", "encoding")
        return [name for name in names if getattr(self, name) is not None]


PLAIN = ReadOptions()
"""Nothing was said: everything is recognised."""


@dataclass(frozen=True)
class Roles:
    """Positions of the columns that are read."""

    user: int
    item: int
    rating: int
    time: int | None = None

    def positions(self) -> list[int]:
        """In the order user, item, rating, and time if there is one."""
        return [p for p in (self.user, self.item, self.rating, self.time) if p is not None]


def choose(names: Sequence[str] | None, width: int, options: ReadOptions, label: str) -> Roles:
    """The roles of `width` columns, by the names of a header or, without one, by position."""
    places: dict[str, int] = {}
    for role, choice in options.columns().items():
        if (role, choice) != ("time", NO_TIME):
            places[role] = _place(role, choice, names, width, label)
    if len(set(places.values())) < len(places):
        raise DataError(f"{label}: one column is given twice: {options.columns()}")
    for role in USUAL:
        if role in places or (role == "time" and options.time is not None):
            continue
        guess = _by_order(role, width, options) if names is None else _by_name(role, names)
        if guess is not None and guess not in places.values():
            places[role] = guess
    if missing := [role for role in _NEEDED if role not in places]:
        arguments = ", ".join(f"{role}=" for role in missing)
        raise DataError(
            f"{label}: which column is the {' and which the '.join(missing)}? There are "
            f"{_listed(names, width)}; say it with {arguments} (a name, or a position from 0)"
        )
    return Roles(**places)


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


def _by_name(role: str, names: Sequence[str]) -> int | None:
    bare = [_bare(name) for name in names]
    return next((bare.index(usual) for usual in USUAL[role] if usual in bare), None)


def _by_order(role: str, width: int, options: ReadOptions) -> int | None:
    """user, item, rating, time: the order of nearly every file without header."""
    place = list(USUAL).index(role)
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
