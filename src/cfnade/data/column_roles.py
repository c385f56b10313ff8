"""Decide which column of a table is the user, the item, the rating, the time or the weight."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cfnade.exceptions import DataError
from cfnade.utils.text import option

if TYPE_CHECKING:
    import polars as pl

    from cfnade.data.load import LoadOptions

# Words for each role, the most telling first. Case, punctuation and the endings of ids are ignored.
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
_MORE_NAMES = {
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


def _names_of(role: str) -> list[str]:
    endings = _ENDINGS if role in ("user", "item") else ("", "s")
    stems = _STEMS[role].split()
    common = [stem + ending for stem in stems for ending in endings[:2]]
    rare = [stem + ending for stem in stems for ending in endings[2:]]
    return [*common, *_MORE_NAMES[role].split(), *rare]


COLUMNS = "columns"
"""Field of the error if columns are not recognized."""
COLUMN_NAMES = {role: _names_of(role) for role in _STEMS}
"""Usual names of columns, lower case without punctuation, the most telling first."""
_ITEM_COLUMNS = {
    "title": (
        "title itemtitle itemname movietitle moviename filmtitle booktitle bookname producttitle "
        "productname songtitle songname trackname artistname albumname animename gamename "
        "businessname placename videotitle"
    ),
    "genres": "genres genre categories category",
}
ITEM_COLUMN_NAMES = {kind: names.split() for kind, names in _ITEM_COLUMNS.items()}
"""The same for columns that describe items."""

# A longer name that ends in one of these words has the role if no other column does: "Book-Rating".
_LAST_WORDS = {
    "user": {*_STEMS["user"].split()},
    "item": {*_STEMS["item"].split()} - {"title"},
    "rating": {"rating", "score", "star", "grade"},
}
_STATISTICS = {"avg", "average", "mean", "count", "num", "n", "total", "max", "min", "predicted"}
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_REQUIRED = ("user", "item", "rating")
_ORDER = (*_REQUIRED, "time")

_PREFERENCES = {
    *("liked", "like", "likes", "dislike", "thumb", "thumbs", "feedback", "sentiment", "label"),
    *("opinion", "satisfaction", "recommended", "favorite", "favourite", "helpful"),
    *("bewertung", "note", "calificacion", "puntuacion", "valoracion", "voto", "ocena"),
}
_SAMPLE = 10_000  # rows of a column that are examined
_MAX_LEVELS = 21  # distinct numbers up to which a column looks like ratings; 0–10 in halves
_MAX_RATING = 100.0


@dataclass(frozen=True)
class ColumnRoles:
    """Positions of the columns that are read; None for a role that no column has."""

    user: int
    item: int
    rating: int | None = None  # None if the rows are interactions
    time: int | None = None
    weight: int | None = None  # of interactions only
    implicit_assumed: bool = False
    """Whether rows are interactions only because no column of ratings was found."""
    time_assumed: bool = True
    """Whether the column of times was recognized and not named by the caller."""

    def positions(self) -> dict[str, int]:
        """Return the position of each role that a column has."""
        places = {role: getattr(self, role) for role in COLUMN_NAMES}
        return {role: place for role, place in places.items() if place is not None}

    def item_columns(self, names: Sequence[str]) -> dict[str, int]:
        """Return the positions of columns that may hold titles and genres of items."""
        matches = {
            kind: find_name(candidates, names) for kind, candidates in ITEM_COLUMN_NAMES.items()
        }
        assigned = self.positions().values()
        return {kind: p for kind, p in matches.items() if p is not None and p not in assigned}

    def check_no_rating_ignored(
        self,
        names: Sequence[str] | None,
        column: Callable[[int], pl.Series],
        width: int,
        label: str,
    ) -> str:
        """Raise if a column that is not read looks like ratings; else return the assumption.

        For rows that count as interactions because no column of ratings is known: a column of
        likes and dislikes under an unusual name must not disappear that way.
        """
        positions = self.positions()
        used = {*positions.values(), *self.item_columns(names or ()).values()}
        ignored = {*COLUMN_NAMES["weight"], *COLUMN_NAMES["time"]}  # by the caller
        for place in range(width if self.weight is None else 0):
            name = place if names is None else names[place]
            if place in used or bare_name(str(name)) in ignored:
                continue
            lowest = _lowest_rating(column(place).head(_SAMPLE), str(name))
            if lowest is not None:
                advice = f"give {option('rating', name)} if it holds them, as numbers"
                if lowest > 0:  # as weights must be
                    advice += f", {option('weight', name)} if it counts or measures use"
                raise DataError(
                    f"{label}: column {name!r} looks like ratings, but is not named so; {advice}, "
                    f"or {option('implicit', True)} to ignore it"
                )
        labels = {role: str(p) if names is None else names[p] for role, p in positions.items()}
        columns = [role if role == name else f"{role} {name}" for role, name in labels.items()]
        return (
            "no column of ratings, so every line was taken as an interaction "
            f"({'' if names else 'columns: '}{', '.join(columns)}); if there is one, name it with "
            f"{option('rating')}"
        )


def assign_roles(
    names: Sequence[str] | None, width: int, options: LoadOptions, label: str
) -> ColumnRoles:
    """Assign roles to `width` columns, by their names or, without names, by position."""
    requested, absent = dict[str, str | int](), {"rating"} if options.implicit else set[str]()
    for role in COLUMN_NAMES:
        value = getattr(options, role)
        if value is False:
            absent.add(role)
        elif value is not None:
            requested[role] = value
    if options.implicit and "rating" in requested:
        raise DataError(
            f"{option('rating')} and {option('implicit', True)} exclude each other; leave one "
            "of them out"
        )
    places = {role: _position(role, c, names, width, label) for role, c in requested.items()}
    if len(set(places.values())) < len(places):
        raise DataError(f"{label}: one column is given twice: {requested}")
    for role in _ORDER:
        if role in places or role in absent:
            continue
        guess = None
        if names is not None:
            guess = find_name(COLUMN_NAMES[role], names, label)
        elif width <= 4 or requested:  # wide tables put anything anywhere
            guess = _ORDER.index(role) if _ORDER.index(role) < width else None
        if guess is not None and guess not in places.values():
            places[role] = guess
    for role in _REQUIRED:
        if role not in places and role not in absent and names is not None:
            matches = [
                place
                for place, name in enumerate(names)
                if place not in places.values() and _last_word(name) in _LAST_WORDS[role]
            ]
            if len(matches) == 1:
                places[role] = matches[0]
    missing = [role for role in _REQUIRED if role not in places]
    if missing == ["rating"] or width == 2 or options.implicit:  # perhaps these are interactions
        missing = [r for r in missing if r != "rating" or _may_rate(names, width, options)]
    if missing:
        raise DataError(_question(missing, names, width, label), field=COLUMNS)
    implicit = "rating" not in places
    if not implicit and "weight" in places:
        raise DataError(
            f"{label}: {option('weight', options.weight)} is for interactions, and column "
            f"{places['rating']} (from 0) has the ratings; leave it out, or add "
            f"{option('implicit', True)} if there are no ratings"
        )
    if implicit and options.weight is None and names is not None:
        guess = find_name(COLUMN_NAMES["weight"], names)
        if guess is not None and guess not in places.values():
            places["weight"] = guess
    return ColumnRoles(
        **places,
        implicit_assumed=implicit and not options.implicit,
        time_assumed="time" not in requested,
    )


def _lowest_rating(column: pl.Series, name: str) -> float | None:
    """Return the lowest value of a column that looks like ratings, 0 for words; None otherwise.

    Its name speaks of preference, or its values are few and whole or halves.
    """
    import polars as pl

    from cfnade.data.raw_table import to_numbers

    column = column.drop_nulls()
    is_preference = any(bare_name(word) in _PREFERENCES for word in (name, *_WORDS.findall(name)))
    if column.dtype == pl.String:
        texts = column.str.strip_chars().str.to_lowercase()
        texts = texts.filter(texts != "")
        column = to_numbers(texts.replace({"true": "1", "false": "0"}))
        if column.null_count():
            repeated = 1 < texts.n_unique() <= min(_MAX_LEVELS, len(texts) // 2)
            return 0.0 if repeated and is_preference else None
    if not (column.dtype.is_numeric() or column.dtype == pl.Boolean):
        return None
    values = column.cast(pl.Float64).unique().sort()
    if len(values) < 2 or not bool(values.is_between(-_MAX_RATING, _MAX_RATING).all()):
        return None
    few = len(values) <= _MAX_LEVELS and 2 * len(values) <= max(len(column), 4)
    halves = bool(((2 * values) % 1 == 0).all())
    return float(values[0]) if is_preference or (few and halves) else None


def _may_rate(names: Sequence[str] | None, width: int, options: LoadOptions) -> bool:
    """Return whether a column may hold ratings without a usual name."""
    if options.implicit or (options.weight is not None and options.weight is not False):
        return False
    if names is None:
        return width > 2
    # "avg_rating" may be the rating or not: the caller must decide
    words = {word.lower() for name in names for word in _WORDS.findall(name)}
    return any(word.removesuffix("s") in _LAST_WORDS["rating"] for word in words)


def _question(missing: list[str], names: Sequence[str] | None, width: int, label: str) -> str:
    arguments = ", ".join(option(role) for role in missing)
    if "rating" in missing:
        arguments += f", or give {option('implicit', True)} if lines are clicks or the like"
    return (
        f"{label}: which column is the {', which the '.join(missing)}? There are "
        f"{_listed(names, width)}; name {'it' if len(missing) == 1 else 'them'} (a name, or a "
        f"position from 0) with {arguments}"
    )


def _position(
    role: str, requested: str | int, names: Sequence[str] | None, width: int, label: str
) -> int:
    """Return the position of a column that was given by name or position."""
    if isinstance(requested, str) and names is not None:
        same = [i for i, name in enumerate(names) if name.strip() == requested.strip()]
        bare = bare_name(requested)
        same = same or [i for i, name in enumerate(names) if bare_name(name) == bare]
        if len(same) == 1:
            return same[0]
        if len(same) > 1:
            raise DataError(
                f"{label}: {len(same)} columns are named {requested!r}; give a position"
            )
    is_number = not isinstance(requested, str) or requested.isdecimal()
    if not is_number or not 0 <= int(requested) < width:
        raise DataError(
            f"{label}: {option(role, requested)} is no column; there are {_listed(names, width)}, "
            "counted from 0"
        )
    return int(requested)


def find_name(candidates: Sequence[str], names: Sequence[str], label: str = "") -> int | None:
    """Return the position of the most telling name; with a label, it must occur once."""
    bare = [bare_name(name) for name in names]
    for candidate in candidates:
        if candidate not in bare:
            continue
        place = bare.index(candidate)
        if label and bare.count(candidate) > 1:
            raise DataError(
                f"{label}: {bare.count(candidate)} columns are named {names[place]!r}; give the "
                f"position (from 0) of the one that counts, such as {option('rating', 2)}"
            )
        return place
    return None


def _last_word(name: str) -> str:
    """Return the word that a name ends in, without "id" and its like; "" for a statistic."""
    words: list[str] = [word.lower() for word in _WORDS.findall(name)]
    if not words or _STATISTICS.intersection(words[:-1]):
        return ""
    while len(words) > 1 and words[-1] in _ENDINGS:
        words.pop()
    return words[-1] if words[-1] in _LAST_WORDS["item"] else words[-1].removesuffix("s")


def bare_name(name: str) -> str:
    """Return a name in lower case without punctuation."""
    return re.sub(r"[\W_]+", "", name.lower())


def _listed(names: Sequence[str] | None, width: int) -> str:
    if names is None:
        return f"{width} columns without names"
    column_list = ", ".join(f"{name[:30]!r}" for name in names[:20])
    return f"{width} columns: {column_list}{' …' if len(names) > 20 else ''}"
