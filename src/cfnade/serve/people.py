"""Who asks, and about what: ids and titles of a request as the model knows them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cfnade.errors import PredictionError
from cfnade.predictor import Predictor
from cfnade.predictor.histories import Person
from cfnade.serve.problems import Problem
from cfnade.serve.schemas import Asker, Rated

IntArray = npt.NDArray[np.int64]


class Asked(NamedTuple):
    """Exactly one of user and history, and what was given but is unknown."""

    user: Any
    history: Person | None
    ignored: list[Rated]


def asked_by(predictor: Predictor, who: Asker) -> Asked:
    """Read who is asking, and refuse what cannot be read."""
    if (who.ratings is None) == (who.user is None):
        raise Problem(422, "give either ratings (of a new person) or user (a known user's id)")
    if who.ratings is not None:
        return _new_person(predictor, who.ratings)
    assert who.user is not None
    return _known_user(predictor, who.user)


def item_of(predictor: Predictor, given: int | str) -> Any:
    """The raw id of an item given by id or title, None if there is no such item."""
    items = predictor.items
    if isinstance(given, str) == items.are_texts and items.index(given) >= 0:
        return given
    if isinstance(given, str) and predictor.bundle.context.titles is not None:
        return predictor.match(given)
    return None


def unknown_item(given: int | str, where: str) -> Problem:
    return Problem(
        404, f"item {given!r} is unknown to the model; GET /items?q= finds items", where=where
    )


def _known_user(predictor: Predictor, user: int | str) -> Asked:
    try:
        at = predictor.users.index(user)
    except PredictionError as error:
        raise Problem(422, str(error), where="user") from None
    if at < 0 and predictor.bundle.has_context:
        raise Problem(
            404, f"user {user!r} is unknown to the model; give ratings of theirs", where="user"
        )
    return Asked(user, None, [])


def _new_person(predictor: Predictor, ratings: list[Rated]) -> Asked:
    indices = _indices(predictor, ratings)
    known = indices >= 0
    levels, on_scale = predictor.scale.levels_of(np.array([one["rating"] for one in ratings]))
    if not on_scale.all():
        _refuse_rating(predictor, ratings, int(np.argmin(on_scale)))
    _refuse_repeats(predictor, indices)
    ignored = [one for one, is_known in zip(ratings, known, strict=True) if not is_known]
    person = Person(indices[known].astype(np.int32), levels[known])
    return Asked(None, person, ignored)


def _indices(predictor: Predictor, ratings: list[Rated]) -> IntArray:
    """Where the rated items are, -1 for one that is unknown. Returns (n,)."""
    items = [one.get("item") for one in ratings]
    if all(type(item) is int for item in items) and not predictor.items.are_texts:
        _refuse_both(ratings)
        return predictor.items.indices(np.array(items, np.int64))  # all at once
    found = []
    for place, one in enumerate(ratings):
        raw = item_of(predictor, _name(one, place))
        found.append(-1 if raw is None else predictor.items.index(raw))
    return np.array(found, np.int64)


def _refuse_both(ratings: list[Rated]) -> None:
    for place, one in enumerate(ratings):
        if len(one) != 2:
            _name(one, place)


def _name(one: Rated, place: int) -> int | str:
    names = [name for name in (one.get("item"), one.get("title")) if name is not None]
    if len(names) != 1:
        where = f"ratings[{place}]"
        raise Problem(422, f"{where}: give either item (an id) or title", where=where)
    return names[0]


def _refuse_rating(predictor: Predictor, ratings: list[Rated], place: int) -> None:
    one = ratings[place]
    scale = predictor.scale
    values = ", ".join(f"{value:g}" for value in scale.values[:12])
    where = f"ratings[{place}].rating"
    raise Problem(
        422,
        f"{where}: {one['rating']:g} is off the model's scale {scale}; allowed are {values}"
        + (", …" if len(scale) > 12 else ""),
        where=where,
    )


def _refuse_repeats(predictor: Predictor, indices: IntArray) -> None:
    known = np.where(indices >= 0, indices, -1 - np.arange(len(indices)))  # unknown ones differ
    first = np.unique(known, return_index=True)[1]
    if len(first) == len(known):
        return
    place = int(np.setdiff1d(np.arange(len(known)), first)[0])
    raw = predictor.items.table[known[place] : known[place] + 1].tolist()[0]
    where = f"ratings[{place}]"
    raise Problem(
        422, f"{where}: item {raw!r} is rated more than once; give one rating of each", where=where
    )
