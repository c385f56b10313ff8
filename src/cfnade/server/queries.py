"""Users and items of a request, or of the event store, as the model knows them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cfnade.exceptions import PredictionError
from cfnade.inference.catalog import IdIndex
from cfnade.inference.histories import HistoryError, UserHistory, parse_history
from cfnade.inference.predictor import Predictor
from cfnade.inference.query import Entities
from cfnade.inference.ranking_options import RankingOptions
from cfnade.inference.results import TopN
from cfnade.server.errors import ApiError
from cfnade.server.model_registry import LoadedModel
from cfnade.server.schemas import NewItem, RatingEntry, UserQuery
from cfnade.utils.cancellation import check_cancelled

if TYPE_CHECKING:
    from cfnade.online.event_store import StoredRating

_RANKING_OPTIONS = {field.name for field in dataclasses.fields(RankingOptions)}
_MAX_SHOWN = 12  # values of a scale, in an error


class ResolvedUser(NamedTuple):
    """Exactly one of user and history, and the entries of the request that were ignored."""

    user: Any
    history: UserHistory | None
    ignored: list[Any]

    def entities(self, predictor: Predictor) -> Entities:
        """Return the user by index, with their ratings."""
        return predictor.resolve_user(self.user, history=self.history)


def resolve_user(predictor: Predictor, query: UserQuery) -> ResolvedUser:
    """Look up the user of a request and check their ratings; entries of unknown items are ignored.

    Raises:
        ApiError: 404 for an unknown user; 422 for ratings that the model cannot use.
    """
    if query.user_id is not None:
        return _training_user(predictor, query.user_id)
    field = "interactions" if query.ratings is None else "ratings"
    needed = "ratings" if predictor.fitted.predicts_ratings else "interactions"
    if field != needed:
        raise ApiError(
            422, f"{field}: this model reads the {needed} of a user; give {needed}", field=field
        )
    entries: list[Any] = getattr(query, field)
    names, history = entries, entries
    if query.ratings is not None:
        names = item_names(query.ratings)
        history = [(name, entry["rating"]) for name, entry in zip(names, entries, strict=True)]
    found = find_items(predictor, names)
    try:
        parsed = parse_history(
            history,
            predictor.catalog,
            predictor.scale,
            find_items=lambda items: np.array([found[item] for item in items], np.int64),
        )
    except HistoryError as error:
        field = f"{field}[{error.index}]" + (".rating" if error.field == "rating" else "")
        raise ApiError(422, f"{field}: {error}", field=field) from None
    return ResolvedUser(None, parsed, [entries[position] for position in parsed.unknown])


def _training_user(predictor: Predictor, user_id: int | str) -> ResolvedUser:
    try:
        index = predictor.users.index(user_id)
    except PredictionError as error:
        raise ApiError(422, str(error), field="user_id") from None
    if index < 0 and predictor.fitted.has_context:
        raise ApiError(
            404, f"user {user_id!r} is unknown to the model; give their ratings", field="user_id"
        )
    return ResolvedUser(user_id, None, [])


# -- items ---------------------------------------------------------------------------------------


def find_items(predictor: Predictor, items: Iterable[Any]) -> dict[Any, int]:
    """Return the index of each different id or title, -1 for an unknown one."""
    names = list(dict.fromkeys(items))
    if set(map(type, names)) <= {int} and not predictor.items.are_texts:
        indices = predictor.items.indices(np.array(names, np.int64))  # all at once
        return dict(zip(names, indices.tolist(), strict=True))
    found = {}
    for name in names:
        check_cancelled()
        index = predictor.catalog.certain(name)
        found[name] = -1 if index is None else index
    return found


def resolve_item(predictor: Predictor, item: int | str, field: str = "item") -> int:
    """Return the index of the item that an id or title means; 404 if there is none."""
    index = predictor.catalog.certain(item)
    if index is None:
        raise unknown_item(item, field)
    return index


def resolve_item_path(predictor: Predictor, text: str) -> int:
    """Return the index of the item that a part of an address means, where ids are texts."""
    index = id_index(predictor.items, text)
    return index if index >= 0 else resolve_item(predictor, text, "item_id")


def unknown_item(item: int | str, field: str) -> ApiError:
    name = item[:40] if isinstance(item, str) else item
    return ApiError(404, f"item {name!r} is unknown; GET /items?q= finds items", field=field)


def resolve_new_items(predictor: Predictor, items: list[NewItem]) -> dict[int | str, Entities]:
    """Return new items by the names that the request gives them."""
    ratings: dict[int | str, Any] = {}
    for position, new in enumerate(items):
        if new.item in ratings:
            field = f"new_items[{position}].item"
            raise ApiError(422, f"{field}: {new.item!r} comes twice; give each once", field=field)
        ratings[new.item] = [(entry.user_id, entry.rating) for entry in new.ratings]
    try:
        return predictor.parse_new_items(ratings)
    except PredictionError as error:
        raise ApiError(422, str(error), field="new_items") from None


# -- rankings ------------------------------------------------------------------------------------


def rank_items(
    model: LoadedModel,
    user: ResolvedUser,
    query: Any,
    *,
    seen: Sequence[Any] = (),
    texts: bool = False,
) -> tuple[TopN, list[Any]]:
    """Return the top-n items for a user, and the items of filters that are unknown.

    Args:
        model: The model.
        user: The user.
        query: The RankingFields of the request.
        seen: Ids of further items to exclude.
        texts: Whether ids are texts, because they come from an address.
    """
    predictor = model.predictor
    options = query.model_dump(include=_RANKING_OPTIONS)
    unknown: list[Any] = []
    for name in ("candidate_items", "exclude_items"):
        if options[name] is not None:
            items = options[name]
            if texts:
                items = [id_of_text(predictor.items, item) for item in items]
            found = find_items(predictor, items)
            unknown += [item for item, index in found.items() if index < 0]
            options[name] = [predictor.items.raw(i) for i in found.values() if i >= 0]
    if query.decades is not None:
        candidates = options["candidate_items"]
        in_decades = predictor.items.table[model.metadata.in_decades(query.decades)].tolist()
        options["candidate_items"] = (
            in_decades if candidates is None else [*set(in_decades).intersection(candidates)]
        )
    options["exclude_items"] = [*(options["exclude_items"] or ()), *seen] or None
    return predictor.recommend(user.entities(predictor), RankingOptions(**options)), unknown


# -- ratings -------------------------------------------------------------------------------------


def item_names(ratings: Sequence[RatingEntry]) -> list[Any]:
    """Return the id or title of each rated item; every entry must have exactly one of them."""
    names: list[Any] = []
    for position, entry in enumerate(ratings):
        item, title = entry.get("item"), entry.get("title")
        if (item is None) == (title is None):
            field = f"ratings[{position}]"
            raise ApiError(422, f"{field}: give either item (an id) or title", field=field)
        names.append(title if item is None else item)
    return names


def check_rating(predictor: Predictor, rating: float | None, field: str = "rating") -> None:
    """Check one rating: on the scale, or left out for a model without ratings."""
    scale = predictor.scale
    if not predictor.fitted.predicts_ratings:
        reason = None if rating is None else "this model knows no ratings; leave it out"
    elif rating is None:
        reason = "give a rating on the model's scale"
    elif not scale.levels_of(np.array([rating]))[1].all():
        values = ", ".join(f"{value:g}" for value in scale.values[:_MAX_SHOWN])
        more = ", …" if len(scale) > _MAX_SHOWN else ""
        reason = f"{rating:g} is off the model's scale {scale}; allowed are {values}{more}"
    else:
        reason = None
    if reason is not None:
        raise ApiError(422, f"{field}: {reason}", field=field)


# -- users and items of the event store, whose ids are texts -------------------------------------


def id_index(ids: IdIndex, text: str) -> int:
    """Return the index of an id as the store writes it; -1 if the model does not know it."""
    try:
        raw = ids.parse(text)
    except PredictionError:
        return -1
    return ids.index(raw) if str(raw) == text else -1  # 007 is not 7


def id_of_text(ids: IdIndex, text: str) -> Any:
    """Return the id that a text is, in the type of the model; an unknown one stays a text."""
    index = id_index(ids, text)
    return text if index < 0 else ids.raw(index)


def user_index(predictor: Predictor, user_id: str) -> int:
    """Return the user's index if they are in the training data, else -1."""
    return id_index(predictor.users, user_id) if predictor.fitted.has_context else -1


def resolve_stored_user(
    predictor: Predictor, user_id: str, ratings: Sequence[StoredRating]
) -> ResolvedUser:
    """Return a user with their stored ratings, or as the model knows them if it reads no histories.

    A user without stored ratings is unknown even to a model that has weights for them: they may
    have been erased.
    """
    user = user_index(predictor, user_id) if ratings else -1
    if predictor.fitted.takes_histories:
        return ResolvedUser(None, _stored_history(predictor, ratings, user), [])
    if user < 0:
        raise ApiError(
            422,
            "this model is item-based, so it knows users of its training data only; serve a model "
            "of users or of both for others",
        )
    return ResolvedUser(predictor.users.raw(user), None, [])


def _stored_history(
    predictor: Predictor, ratings: Sequence[StoredRating], user: int
) -> UserHistory:
    """Return ratings of known items on the model's scale; of an implicit model, all items."""
    rates = predictor.fitted.predicts_ratings
    current = [rating for rating in ratings if not rates or rating.rating is not None]
    indices = np.array([id_index(predictor.items, stored.item_id) for stored in current], np.int64)
    levels, on_scale = np.zeros(len(current), np.uint8), np.ones(len(current), bool)
    if rates:
        values = np.array([stored.rating for stored in current], np.float64)
        levels, on_scale = predictor.scale.levels_of(values)
    used = np.flatnonzero((indices >= 0) & on_scale)
    unknown = tuple(np.flatnonzero(indices < 0).tolist())
    return UserHistory(indices[used].astype(np.int32), levels[used], unknown, user)
