"""Who asks, and about what: ids and titles of a request as the model knows them; and sample people,
so that nobody begins with an empty list."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cfnade.errors import PredictionError
from cfnade.predictor import Predictor
from cfnade.predictor.histories import Person
from cfnade.serve.problems import Problem
from cfnade.serve.schemas import Asker, NewItem, Rated
from cfnade.sides.side import What

IntArray = npt.NDArray[np.int64]

_SHOWN = 12
"""Values of a scale in a refusal."""
_LEAST = 4
"""Films of a taste that the catalogue must have."""
_TASTES = tomllib.loads((Path(__file__).parent / "tastes.toml").read_text(encoding="utf-8"))
TASTES: dict[str, dict[tuple[str, int], float]] = {
    name: {(film[:-7], int(film[-5:-1])): liking for film, liking in films.items()}
    for name, films in _TASTES.items()
}
"""Title and year, with a liking from 0 (the scale's lowest) to 1 (its highest)."""


class Asked(NamedTuple):
    """Exactly one of user and history, and what was given but is unknown."""

    user: Any
    history: Person | None
    ignored: list[Rated]


def asked_by(predictor: Predictor, asker: Asker) -> Asked:
    """Read who is asking, and refuse what cannot be read."""
    if (asker.ratings is None) == (asker.user is None):
        raise Problem(422, "give either ratings (of a new person) or user (a known user's id)")
    if asker.ratings is not None:
        return _new_person(predictor, asker.ratings)
    assert asker.user is not None
    return _known_user(predictor, asker.user)


def item_of(predictor: Predictor, item: int | str, where: str) -> int:
    """The index of the item that an id or title means, which there must be."""
    index = predictor.catalogue.certain(item)
    if index is None:
        raise Problem(
            404, f"item {item!r} is unknown to the model; GET /items?q= finds items", where=where
        )
    return index


def new_items_in(predictor: Predictor, given: list[NewItem]) -> dict[int | str, What]:
    """New items by the names that they were given."""
    ratings: dict[int | str, Any] = {}
    for place, one in enumerate(given):
        if one.item in ratings:
            where = f"new_items[{place}].item"
            raise Problem(422, f"{where}: {one.item!r} comes twice; give each once", where=where)
        ratings[one.item] = [(rated.user, rated.rating) for rated in one.ratings]
    try:
        return predictor.new_items(ratings)
    except PredictionError as error:
        raise Problem(422, str(error), where="new_items") from None


def _known_user(predictor: Predictor, user: int | str) -> Asked:
    try:
        index = predictor.users.index(user)
    except PredictionError as error:
        raise Problem(422, str(error), where="user") from None
    if index < 0 and predictor.fitted.has_context:
        raise Problem(
            404, f"user {user!r} is unknown to the model; give ratings of theirs", where="user"
        )
    return Asked(user, None, [])


def _new_person(predictor: Predictor, ratings: list[Rated]) -> Asked:
    indices = _indices(predictor, ratings)
    levels, on_scale = predictor.scale.levels_of(np.array([one["rating"] for one in ratings]))
    if not on_scale.all():
        raise _off_scale(predictor, ratings, int(np.argmin(on_scale)))
    known = np.flatnonzero(indices >= 0)
    rated, firsts = np.unique(indices[known], return_index=True)
    if len(rated) < len(known):
        raise _repeated(predictor, indices, int(np.delete(known, firsts)[0]))
    ignored = [one for one, index in zip(ratings, indices.tolist(), strict=True) if index < 0]
    return Asked(None, Person(indices[known].astype(np.int32), levels[known]), ignored)


def _indices(predictor: Predictor, ratings: list[Rated]) -> IntArray:
    """Where the rated items are, -1 for one that is unknown. Returns (n,)."""
    items = [one.get("item") for one in ratings]
    named_once = len(ratings) == 0 or max(map(len, ratings)) == 2  # by item or title, and a rating
    if named_once and set(map(type, items)) <= {int} and not predictor.items.are_texts:
        return predictor.items.indices(np.array(items, np.int64))  # all at once
    names = [_name(one, place) for place, one in enumerate(ratings)]
    places = {name: predictor.catalogue.certain(name) for name in names}
    return np.array([-1 if places[name] is None else places[name] for name in names], np.int64)


def _name(one: Rated, place: int) -> int | str:
    names = [name for name in (one.get("item"), one.get("title")) if name is not None]
    if len(names) != 1:
        where = f"ratings[{place}]"
        raise Problem(422, f"{where}: give either item (an id) or title", where=where)
    return names[0]


def _off_scale(predictor: Predictor, ratings: list[Rated], place: int) -> Problem:
    scale, where = predictor.scale, f"ratings[{place}].rating"
    values = ", ".join(f"{value:g}" for value in scale.values[:_SHOWN])
    more = ", …" if len(scale) > _SHOWN else ""
    return Problem(
        422,
        f"{where}: {ratings[place]['rating']:g} is off the model's scale {scale}; allowed are "
        f"{values}{more}",
        where=where,
    )


def _repeated(predictor: Predictor, indices: IntArray, place: int) -> Problem:
    raw, where = predictor.items.raw(int(indices[place])), f"ratings[{place}]"
    return Problem(
        422, f"{where}: item {raw!r} is rated more than once; give one rating of each", where=where
    )


# -- samples -------------------------------------------------------------------------------------


def samples_of(predictor: Predictor, counts: npt.NDArray[np.int64]) -> list[dict[str, Any]]:
    """The tastes whose films the catalogue has; the most rated items at the top rating if none."""
    samples = []
    for name, taste in TASTES.items():
        films = {predictor.catalogue.match(*film): liking for film, liking in taste.items()}
        films.pop(None, None)
        if len(films) >= _LEAST:
            samples.append({"name": name, "ratings": _ratings(predictor, films)})
    most_rated = dict.fromkeys(np.argsort(-counts, kind="stable")[:_LEAST].tolist(), 1.0)
    return samples or [{"name": "Most rated", "ratings": _ratings(predictor, most_rated)}]


def _ratings(predictor: Predictor, likings: dict[int | None, float]) -> list[dict[str, Any]]:
    """Items by index, with the level of the scale that is nearest to each liking."""
    values, titles = predictor.scale.array(), predictor.catalogue.titles
    ratings = []
    for index, liking in likings.items():
        assert index is not None
        wished = values[0] + liking * (values[-1] - values[0])
        ratings.append(
            {
                "item": predictor.items.raw(index),
                "title": None if titles is None else titles[index] or None,
                "rating": float(values[np.abs(values - wished).argmin()]),
            }
        )
    return ratings
