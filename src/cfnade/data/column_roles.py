"""Decide which column of a table is the user, the item, the rating, the time or the weight."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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

_AMOUNTS = {
    *("hour", "hours", "minute", "minutes", "second", "seconds", "duration", "playtime"),
    *("amount", "total", "spent", "plays", "listens", "views", "clicks", "purchases"),
}
_PREFERENCES = {
    *("liked", "like", "likes", "dislike", "thumb", "thumbs", "feedback", "sentiment", "label"),
    *("opinion", "satisfaction", "recommended", "favorite", "favourite", "helpful"),
    *("bewertung", "note", "calificacion", "puntuacion", "valoracion", "voto", "ocena"),
}
_OPINIONS = {
    *("true", "false", "yes", "no", "like", "dislike", "liked", "disliked", "positive"),
    *("pos", "neg"),
    *("negative", "neutral", "up", "down", "good", "bad", "love", "hate"),
}
_ADVISED = ("preference", "signed preference", "words")
"""Kinds of columns that look like ratings, about which the user decides."""
_STARS = r"^(?:[★☆⭐*]+|\d(?:[.,]\d)?\s*(?:stars?|/\s*\d+))$"
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

    def describe(self, names: Sequence[str] | None) -> str:
        """Return the columns that are read, in words."""
        positions = self.positions()
        if names is not None:
            return ", ".join(names[place] for place in positions.values())
        places = ", ".join(map(str, positions.values()))
        return f"{', '.join(positions)} in columns {places}"

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
        used = {*self.positions().values(), *self.item_columns(names or ()).values()}
        candidates = {*COLUMN_NAMES["weight"], *COLUMN_NAMES["time"]}  # the caller ignores them
        used |= {place for place, name in enumerate(names or ()) if bare_name(name) in candidates}
        amounts = []
        for place in (place for place in range(width) if place not in used):
            name = place if names is None else names[place]
            kind = _kind_of(column(place).head(_SAMPLE), str(name))
            if kind in _ADVISED and self.weight is None:
                raise DataError(
                    f"{label}: column {name!r} looks like ratings, but is not named so; "
                    + _advice(kind, name)
                )
            if kind == "amount":
                amounts.append(name)
        return _assumption(self, names, amounts if self.weight is None else [])


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
            places |= _by_last_word(role, names, places)
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
            f"{option('implicit', True)} if "
            "there are no ratings"
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


def _assumption(roles: ColumnRoles, names: Sequence[str] | None, amounts: Sequence[Any]) -> str:
    labels = {r: str(p) if names is None else names[p] for r, p in roles.positions().items()}
    column_list = ", ".join(r if r == name else f"{r} {name}" for r, name in labels.items())
    weight = option("weight", amounts[0]) if amounts else ""
    offer = f"; {weight} weighs rows by that column" if amounts else ""
    return (
        "no column of ratings, so every line was taken as an interaction "
        f"({column_list if names else 'columns: ' + column_list}){offer}; if there is one, name it "
        f"with {option('rating')}"
    )


def _advice(kind: str, name: int | str) -> str:
    """Return what to do about a column that looks like ratings; weights must be above 0."""
    rating, implicit = option("rating", name), option("implicit", True)
    if kind == "words":
        return (
            f"write numbers in place of its words and give {rating}, or give {implicit} to "
            "ignore it"
        )
    if kind == "signed preference":
        return f"give {rating} if it holds them, or {implicit} to ignore it"
    return (
        f"give {rating} if it holds them, {option('weight', name)} if it counts or measures use "
        f"(plays, hours), or {implicit} to ignore it"
    )


def _kind_of(column: pl.Series, name: str) -> str | None:
    """Return one of `_ADVISED`, "amount" or None, from the values of a column and its name."""
    import polars as pl

    from cfnade.data.raw_table import to_numbers

    column = column.drop_nulls()
    if column.dtype == pl.Boolean:
        return "signed preference" if column.n_unique() > 1 else None
    if not (column.dtype.is_numeric() or column.dtype == pl.String):
        return None
    named_as = {bare_name(word) for word in (name, *_WORDS.findall(name))}
    if column.dtype == pl.String:
        texts = column.str.strip_chars().str.to_lowercase()
        texts = texts.filter(texts != "")
        column = to_numbers(texts)
        if column.null_count():
            words = texts.unique()
            opinions = words.is_in(list(_OPINIONS)) | words.str.contains(_STARS)
            repeated = len(words) <= min(_MAX_LEVELS, len(texts) // 2)
            has_name = repeated and bool(named_as & _PREFERENCES)
            if len(words) < 2 or not (has_name or bool(opinions.all())):
                return None
            return "signed preference" if bool(words.is_in(["true", "false"]).all()) else "words"
    values = column.cast(pl.Float64).unique()
    if len(values) < 2 or not bool(values.is_finite().all()):
        return None
    low, high = float(values.min()), float(values.max())  # type: ignore[arg-type]
    preference = "preference" if low > 0 else "signed preference"
    if named_as & _PREFERENCES and -_MAX_RATING <= low <= high <= _MAX_RATING:
        return preference
    if low >= 0 and named_as & _AMOUNTS:
        return "amount"
    halves = bool(((2 * values) % 1 == 0).all())
    few = len(values) <= _MAX_LEVELS and 2 * len(values) <= max(len(column), 4)
    return preference if few and halves and max(-low, high) <= _MAX_RATING else None


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
    no_ratings = (
        (f"; {option('implicit', True)} if lines are clicks or the like")
        if "rating" in missing
        else ""
    )
    return (
        f"{label}: which column is the {' and which the '.join(missing)}? There are "
        f"{_listed(names, width)}; name it with {arguments} (a name, or a position from 0"
        f"{no_ratings})"
    )


def _position(
    role: str, requested_column: str | int, names: Sequence[str] | None, width: int, label: str
) -> int:
    if isinstance(requested_column, str) and names is not None:
        same = [i for i, name in enumerate(names) if name.strip() == requested_column.strip()]
        same = same or [
            i for i, name in enumerate(names) if bare_name(name) == bare_name(requested_column)
        ]
        if len(same) == 1:
            return same[0]
        if len(same) > 1:
            raise DataError(
                f"{label}: {len(same)} columns are named {requested_column!r}; give a position"
            )
    there = _listed(names, width)
    if isinstance(requested_column, str) and not requested_column.isdecimal():
        raise DataError(
            f"{label}: {option(role, requested_column)} is no column; there are {there}"
        )
    if not 0 <= int(requested_column) < width:
        raise DataError(
            f"{label}: {option(role, requested_column)}: there are {there}, counted from 0"
        )
    return int(requested_column)


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


def _by_last_word(role: str, names: Sequence[str], assigned: dict[str, int]) -> dict[str, int]:
    """Return the one column whose name ends in a word for the role, if there is just one."""
    positions = [
        place
        for place, name in enumerate(names)
        if place not in assigned.values() and _last_word(name) in _LAST_WORDS[role]
    ]
    return {role: positions[0]} if len(positions) == 1 else {}


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
