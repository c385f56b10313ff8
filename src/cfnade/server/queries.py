"""Who asks, and about what, as the model knows them: ids and titles of a request, or what counts of
a person of the store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cfnade.components.base import What, Who
from cfnade.data.scale import LevelArray
from cfnade.exceptions import PredictionError
from cfnade.inference.catalog import IdIndex
from cfnade.inference.histories import UserHistory
from cfnade.inference.predictor import Predictor
from cfnade.server.errors import ApiError
from cfnade.server.schemas import Asker, NewItem, Rated
from cfnade.utils.cancellation import check_cancelled

if TYPE_CHECKING:
    from cfnade.online.event_store import StoredRating

IntArray = npt.NDArray[np.int64]

_SHOWN = 12
"""Values of a scale in a refusal."""


class ResolvedUser(NamedTuple):
    """Exactly one of user and history, and what was given but is unknown."""

    user: Any
    history: UserHistory | None
    ignored: list[Any]

    def as_known_by(self, predictor: Predictor) -> Who:
        """By index, with what they rated."""
        return predictor.who(self.user) if self.history is None else self.history.who()


def resolve_user(predictor: Predictor, asker: Asker) -> ResolvedUser:
    """Read who is asking, and refuse what cannot be read."""
    if sum(given is not None for given in (asker.ratings, asker.picked, asker.user)) != 1:
        raise ApiError(
            422, "give either ratings or picked (of a new person) or user (a known user's id)"
        )
    if asker.user is not None:
        return _known_user(predictor, asker.user)
    if (asker.ratings is None) == predictor.fitted.rates:
        given, instead = ("picked", "ratings") if asker.ratings is None else ("ratings", "picked")
        knows = "ratings" if instead == "ratings" else "no ratings, only what people pick"
        raise ApiError(422, f"{given}: this model knows {knows}; give {instead}", where=given)
    if asker.ratings is not None:
        return _who_rated(predictor, asker.ratings)
    assert asker.picked is not None
    return _who_picked(predictor, asker.picked)


def item_of(predictor: Predictor, item: int | str, where: str) -> int:
    """The index of the item that an id or title means, which there must be."""
    index = predictor.catalog.certain(item)
    if index is None:
        raise ApiError(
            404, f"item {item!r} is unknown to the model; GET /items?q= finds items", where=where
        )
    return index


def indices_of(predictor: Predictor, items: Iterable[Any]) -> dict[Any, int | None]:
    """The index of each different id or title, None of an unknown one."""
    indices: dict[Any, int | None] = {}
    for item in dict.fromkeys(items):
        check_cancelled()
        indices[item] = predictor.catalog.certain(item)
    return indices


def known_ids(predictor: Predictor, given: list[Any] | None) -> tuple[Any, list[Any]]:
    """The ids that ids or titles mean, and what means none; None stays None."""
    if given is None:
        return None, []
    indices = indices_of(predictor, given)
    known = [predictor.items.raw(index) for index in indices.values() if index is not None]
    return known, [one for one, index in indices.items() if index is None]


def new_items_in(predictor: Predictor, given: list[NewItem]) -> dict[int | str, What]:
    """New items by the names that they were given."""
    ratings: dict[int | str, Any] = {}
    for place, one in enumerate(given):
        if one.item in ratings:
            where = f"new_items[{place}].item"
            raise ApiError(422, f"{where}: {one.item!r} comes twice; give each once", where=where)
        ratings[one.item] = [(rated.user, rated.rating) for rated in one.ratings]
    try:
        return predictor.new_items(ratings)
    except PredictionError as error:
        raise ApiError(422, str(error), where="new_items") from None


def _known_user(predictor: Predictor, user: int | str) -> ResolvedUser:
    try:
        index = predictor.users.index(user)
    except PredictionError as error:
        raise ApiError(422, str(error), where="user") from None
    if index < 0 and predictor.fitted.has_context:
        raise ApiError(
            404, f"user {user!r} is unknown to the model; give ratings of theirs", where="user"
        )
    return ResolvedUser(user, None, [])


def _who_rated(predictor: Predictor, ratings: list[Rated]) -> ResolvedUser:
    names = names_in(ratings)
    check_ratings(predictor, ratings)
    levels, _ = predictor.scale.levels_of(np.array([one["rating"] for one in ratings]))
    return _person(predictor, _indices(predictor, names), levels, ratings, "ratings")


def _who_picked(predictor: Predictor, picked: list[Any]) -> ResolvedUser:
    levels = np.zeros(len(picked), np.uint8)
    return _person(predictor, _indices(predictor, picked), levels, picked, "picked")


def _person(
    predictor: Predictor, indices: IntArray, levels: LevelArray, given: list[Any], where: str
) -> ResolvedUser:
    """Somebody new, with levels of items by index; what is unknown is named as it was given."""
    known = np.flatnonzero(indices >= 0)
    if len(set(indices[known].tolist())) < len(known):
        _, firsts = np.unique(indices[known], return_index=True)
        place = int(np.delete(known, firsts)[0])
        raise _repeated(predictor, int(indices[place]), f"{where}[{place}]")
    ignored = [given[place] for place in np.flatnonzero(indices < 0).tolist()]
    return ResolvedUser(None, UserHistory(indices[known].astype(np.int32), levels[known]), ignored)


def _indices(predictor: Predictor, names: list[Any]) -> IntArray:
    """Where items are, given by id or title; -1 for one that is unknown. Returns (n,)."""
    if set(map(type, names)) <= {int} and not predictor.items.are_texts:
        return predictor.items.indices(np.array(names, np.int64))  # all at once
    places = indices_of(predictor, names)
    return np.array([-1 if places[name] is None else places[name] for name in names], np.int64)


def names_in(ratings: Sequence[Rated]) -> list[Any]:
    """Of the rated items: an id or a title each."""
    items = [one.get("item") for one in ratings]
    if None not in items and max(map(len, ratings), default=2) == 2:  # an item and a rating each
        return items
    return [_name(one, place) for place, one in enumerate(ratings)]


def _name(one: Rated, place: int) -> int | str:
    names = [name for name in (one.get("item"), one.get("title")) if name is not None]
    if len(names) != 1:
        where = f"ratings[{place}]"
        raise ApiError(422, f"{where}: give either item (an id) or title", where=where)
    return names[0]


def check_rating(predictor: Predictor, rating: float | None) -> None:
    """One rating, which must be there and on the scale."""
    if rating is None:
        raise ApiError(422, "rating: give a rating on the model's scale", where="rating")
    _, on_scale = predictor.scale.levels_of(np.array([rating]))
    if not on_scale.all():
        raise _off_scale(predictor, rating, "rating")


def check_ratings(predictor: Predictor, ratings: list[Rated]) -> None:
    """Ratings, which must be on the scale."""
    _, on_scale = predictor.scale.levels_of(np.array([one["rating"] for one in ratings]))
    if not on_scale.all():
        place = int(np.argmin(on_scale))
        raise _off_scale(predictor, ratings[place]["rating"], f"ratings[{place}].rating")


def check_different(items: Sequence[str]) -> None:
    """Items of one request, each of which may be there once."""
    repeated = [item for item, count in Counter(items).items() if count > 1]
    if repeated:
        raise ApiError(
            422,
            f"ratings: item {repeated[0]!r} is there more than once; give it once",
            where="ratings",
        )


def _off_scale(predictor: Predictor, rating: float, where: str) -> ApiError:
    scale = predictor.scale
    values = ", ".join(f"{value:g}" for value in scale.values[:_SHOWN])
    more = ", …" if len(scale) > _SHOWN else ""
    return ApiError(
        422,
        f"{where}: {rating:g} is off the model's scale {scale}; allowed are {values}{more}",
        where=where,
    )


def _repeated(predictor: Predictor, index: int, where: str) -> ApiError:
    raw = predictor.items.raw(index)
    return ApiError(
        422, f"{where}: item {raw!r} is there more than once; give it once", where=where
    )


# -- people of the store --------------------------------------------------------------------------


def index_of(ids: IdIndex, text: str) -> int:
    """The index of an id as the store writes it; -1 if the model does not know it."""
    try:
        raw = ids.typed(text)
    except PredictionError:
        return -1
    return ids.index(raw) if str(raw) == text else -1  # 007 is not 7


def stored_item_of(predictor: Predictor, item: str) -> str | None:
    """The id under which the store has the item that an id or title is sure to mean.

    An id as the store writes it comes first; None if the model knows no such item.
    """
    if index_of(predictor.items, item) >= 0:
        return item
    index = predictor.catalog.certain(item)
    return None if index is None else str(predictor.items.raw(index))


def user_of(predictor: Predictor, person: str) -> int:
    """The person's index if the model has met them, else -1."""
    return index_of(predictor.users, person) if predictor.fitted.has_context else -1


def resolve_stored_user(
    predictor: Predictor, person: str, standing: Sequence[StoredRating]
) -> ResolvedUser:
    """Who asks: with all that counts of them, or as the model knows them if it reads no histories.

    Somebody of whom the store knows nothing is nobody whom the model knows: they may have been
    forgotten.
    """
    user = user_of(predictor, person) if standing else -1
    if predictor.fitted.takes_histories:
        return ResolvedUser(None, _read_standing(predictor, standing, user), [])
    if user < 0:
        raise ApiError(
            422,
            "this model reads items alone, so it knows nobody whom it was not trained on; serve a "
            "model of users or of both for that",
        )
    return ResolvedUser(predictor.users.raw(user), None, [])


def _read_standing(
    predictor: Predictor, standing: Sequence[StoredRating], user: int
) -> UserHistory:
    """Ratings of items that the model knows, on its scale; of a model of picks, all that count."""
    rated = predictor.fitted.rates
    counting = [one for one in standing if not rated or one.rating is not None]
    indices = np.array([index_of(predictor.items, one.item_id) for one in counting], np.int64)
    if not rated:
        levels, fits = np.zeros(len(counting), np.uint8), np.ones(len(counting), bool)
    else:
        values = np.array([one.rating for one in counting], np.float64)
        levels, fits = predictor.scale.levels_of(values)
    good = np.flatnonzero((indices >= 0) & fits)
    unknown = tuple(one.item_id for one, index in zip(counting, indices, strict=True) if index < 0)
    return UserHistory(indices[good].astype(np.int32), levels[good], unknown, user)


def name_of(predictor: Predictor, item: str) -> tuple[Any, str | None]:
    """The id that the model has for an item of the store, as it is if there is none; its title."""
    index, titles = index_of(predictor.items, item), predictor.catalog.titles
    if index < 0:
        return item, None
    return predictor.items.raw(index), None if titles is None else titles[index] or None
