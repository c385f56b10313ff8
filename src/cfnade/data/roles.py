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
_USUAL = {
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
_NAMES = {role: names.split() for role, names in _USUAL.items()}
_NEEDED = ("user", "item", "rating")


@dataclass(frozen=True)
class Wanted:
    """The columns that were asked for."""

    user: Choice = None
    item: Choice = None
    rating: Choice = None
    time: Choice = None

    def given(self) -> dict[str, str | int]:
        """Those that were not left to be guessed."""
        return {role: choice for role, choice in vars(self).items() if choice is not None}


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


def choose(names: Sequence[str] | None, width: int, wanted: Wanted, label: str) -> Roles:
    """The roles of `width` columns, by the names of a header or, without one, by position."""
    at: dict[str, int] = {}
    for role, choice in wanted.given().items():
        if (role, choice) != ("time", NO_TIME):
            at[role] = _position(role, choice, names, width, label)
    taken = set(at.values())
    if len(taken) < len(at):
        raise DataError(f"{label}: one column is given twice: {wanted.given()}")
    for role in _NAMES:
        if role in at or (role == "time" and wanted.time is not None):
            continue
        found = _by_order(role, width, wanted) if names is None else _by_name(role, names)
        if found is not None and found not in taken:
            at[role] = found
            taken.add(found)
    if missing := [role for role in _NEEDED if role not in at]:
        raise DataError(_missing(missing, names, width, label))
    return Roles(at["user"], at["item"], at["rating"], at.get("time"))


def _position(
    role: str, choice: str | int, names: Sequence[str] | None, width: int, label: str
) -> int:
    if isinstance(choice, str) and names is not None:
        same = [i for i, name in enumerate(names) if name.strip() == choice.strip()]
        same = same or [i for i, name in enumerate(names) if _plain(name) == _plain(choice)]
        if len(same) == 1:
            return same[0]
        if len(same) > 1:
            raise DataError(f"{label}: {len(same)} columns are named {choice!r}; give a position")
    if isinstance(choice, bool) or (isinstance(choice, str) and not choice.isdecimal()):
        raise DataError(f"{label}: {role}={choice!r} is no column; there are {_list(names, width)}")
    if not 0 <= int(choice) < width:
        raise DataError(
            f"{label}: {role}={choice}: there are {_list(names, width)}, counted from 0"
        )
    return int(choice)


def _by_name(role: str, names: Sequence[str]) -> int | None:
    plain = [_plain(name) for name in names]
    for known in _NAMES[role]:
        if known in plain:
            return plain.index(known)
    return None


def _by_order(role: str, width: int, wanted: Wanted) -> int | None:
    """user, item, rating, time: the order of nearly every file without header."""
    place = list(_NAMES).index(role)
    if width > 4 and not wanted.given():
        return None  # wide tables put anything anywhere
    return place if place < width else None


def _plain(name: str) -> str:
    return re.sub(r"[\W_]+", "", name.lower())


def _list(names: Sequence[str] | None, width: int) -> str:
    if names is None:
        return f"{width} columns without names"
    shown = ", ".join(f"{name[:30]!r}" for name in names[:20])
    return f"{width} columns: {shown}{' …' if len(names) > 20 else ''}"


def _missing(missing: Sequence[str], names: Sequence[str] | None, width: int, label: str) -> str:
    options = ", ".join(f"{role}=" for role in missing)
    return (
        f"{label}: which column is the {' and which the '.join(missing)}? There are "
        f"{_list(names, width)}; say it with {options} (a name, or a position from 0)"
    )
