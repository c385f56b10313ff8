"""Users and items of a request, or of the event store, as the model knows them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cfnade._typing import IntArray
from cfnade.data.scale import LevelArray
from cfnade.exceptions import PredictionError
from cfnade.inference.catalog import IdIndex
from cfnade.inference.histories import HistoryError, UserHistory, parse_history
from cfnade.inference.predictor import Predictor
from cfnade.inference.query import Entities
from cfnade.inference.ranking_options import RankBy
from cfnade.inference.results import UserTopN
from cfnade.server.errors import ApiError
from cfnade.server.model_registry import LoadedModel
from cfnade.server.schemas import NewItem, RankingFields, RatingEntry, UserQuery
from cfnade.utils.cancellation import check_cancelled

if TYPE_CHECKING:
    from cfnade.online.event_store import StoredRating

_RANKING_OPTIONS = (
    *("n", "rank_by", "balance", "threshold", "personalization", "min_ratings", "genres"),
    *("exclude_seen", "diversity", "popularity_penalty"),
)
_SHOWN_VALUES = 12  # of a scale, in an error


class ResolvedUser(NamedTuple):
    """Exactly one of user and history, and what was given but is unknown."""

    user: Any
    history: UserHistory | None
    ignored: list[Any]

    def as_known(self, predictor: Predictor) -> Entities:
        """Return the user by index, with their ratings."""
        return predictor.user_entities(self.user, history=self.history)


def resolve_user(predictor: Predictor, query: UserQuery) -> ResolvedUser:
    """Look up the user of a request and check their ratings."""
    if query.user_id is not None:
        return _training_user(predictor, query.user_id)
    if (query.ratings is None) == predictor.fitted.rates:
        field, other_field = ("interactions", "ratings")[:: 1 if query.ratings is None else -1]
        raise ApiError(
            422, f"{field}: this model knows {other_field} only; give {other_field}", field=field
        )
    if query.ratings is not None:
        entries: list[Any] = query.ratings
        pairs = [*zip(item_names(entries), (one["rating"] for one in entries), strict=True)]
        return _new_user(predictor, pairs, entries, "ratings")
    interactions = query.interactions or []
    return _new_user(predictor, interactions, interactions, "interactions")


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


def _new_user(
    predictor: Predictor, history: list[Any], entries: list[Any], field: str
) -> ResolvedUser:
    """Return a new user; entries with unknown items are ignored."""
    try:
        parsed = parse_history(
            history,
            predictor.catalog,
            predictor.scale,
            find_items=lambda items: _item_indices(predictor, items),
        )
    except HistoryError as error:
        field = f"{field}[{error.index}]" + (".rating" if error.field == "rating" else "")
        raise ApiError(422, f"{field}: {error}", field=field) from None
    return ResolvedUser(None, parsed, [entries[place] for place in parsed.unknown])


def _item_indices(predictor: Predictor, names: list[Any]) -> IntArray:
    """Return the index of each id or title, -1 for an unknown one."""
    if set(map(type, names)) <= {int} and not predictor.items.are_texts:
        return predictor.items.indices(np.array(names, np.int64))  # all at once
    found = find_items(predictor, names)
    return np.array([-1 if found[name] is None else found[name] for name in names], np.int64)


# -- items ---------------------------------------------------------------------------------------


def resolve_item(predictor: Predictor, item: int | str, field: str = "item") -> int:
    """Return the index of the item that an id or title means; 404 if there is none."""
    index = predictor.catalog.certain(item)
    if index is None:
        raise unknown_item(item, field)
    return index


def resolve_item_path(predictor: Predictor, text: str) -> int:
    """The same for a part of an address, where ids are texts."""
    index = id_index(predictor.items, text)
    return index if index >= 0 else resolve_item(predictor, text, "item_id")


def unknown_item(item: int | str, field: str) -> ApiError:
    shown = item[:40] if isinstance(item, str) else item
    return ApiError(404, f"item {shown!r} is unknown; GET /items?q= finds items", field=field)


def find_items(predictor: Predictor, items: Iterable[Any]) -> dict[Any, int | None]:
    """Return the index of each different id or title, None for an unknown one."""
    indices: dict[Any, int | None] = {}
    for item in dict.fromkeys(items):
        check_cancelled()
        indices[item] = predictor.catalog.certain(item)
    return indices


def known_ids(
    predictor: Predictor, items: list[Any] | None, *, texts: bool = False
) -> tuple[list[Any] | None, list[Any]]:
    """Return the ids that ids or titles mean, and those that are unknown; None stays None.

    `texts` says that ids are texts because they come from an address.
    """
    if items is None:
        return None, []
    if texts:
        items = [id_of_text(predictor.items, item) for item in items]
    indices = find_items(predictor, items)
    known = [predictor.items.raw(index) for index in indices.values() if index is not None]
    return known, [item for item, index in indices.items() if index is None]


def resolve_new_items(predictor: Predictor, items: list[NewItem]) -> dict[int | str, Entities]:
    """Return new items by the names that the request gives them."""
    ratings: dict[int | str, Any] = {}
    for position, new in enumerate(items):
        if new.item in ratings:
            field = f"new_items[{position}].item"
            raise ApiError(422, f"{field}: {new.item!r} comes twice; give each once", field=field)
        ratings[new.item] = [(entry.user_id, entry.rating) for entry in new.ratings]
    try:
        return predictor.new_items(ratings)
    except PredictionError as error:
        raise ApiError(422, str(error), field="new_items") from None


# -- rankings ------------------------------------------------------------------------------------


def criteria(predictor: Predictor) -> list[RankBy]:
    """Return what items may be ranked by, the default first."""
    interaction: list[RankBy] = ["interaction"] * (predictor.fitted.interaction_model is not None)
    ratings: list[RankBy] = ["prediction", "threshold"]
    return [*interaction, *(ratings if predictor.fitted.rates else [])]


def rank_items(
    model: LoadedModel,
    user: ResolvedUser,
    query: RankingFields,
    *,
    rated: Sequence[Any] = (),
    texts: bool = False,
) -> tuple[UserTopN, list[Any]]:
    """Return the top-n items for a user, and the items of filters that are unknown.

    `rated` are ids of further items to exclude; `texts` says that ids are texts.
    """
    predictor = model.predictor
    candidates, unknown = known_ids(predictor, query.candidate_items, texts=texts)
    excluded, more_unknown = known_ids(predictor, query.exclude_items, texts=texts)
    if query.decades is not None:
        of_decades = predictor.items.table[model.metadata.in_decades(query.decades)].tolist()
        allowed = None if candidates is None else set(candidates)
        candidates = [raw for raw in of_decades if allowed is None or raw in allowed]
    top = predictor.ranked(
        user.user,
        history=user.history,
        candidate_items=candidates,
        exclude_items=[*(excluded or []), *rated] or None,
        **{name: getattr(query, name) for name in _RANKING_OPTIONS},
    )
    return top, [*unknown, *more_unknown]


# -- ratings -------------------------------------------------------------------------------------


def item_names(ratings: Sequence[RatingEntry]) -> list[Any]:
    """Return the id or title of each rated item."""
    items = [entry.get("item") for entry in ratings]
    if None not in items and max(map(len, ratings), default=2) == 2:  # an item and a rating each
        return items
    return [_item_name(entry, position) for position, entry in enumerate(ratings)]


def _item_name(entry: RatingEntry, position: int) -> int | str:
    names = [name for name in (entry.get("item"), entry.get("title")) if name is not None]
    if len(names) != 1:
        field = f"ratings[{position}]"
        raise ApiError(422, f"{field}: give either item (an id) or title", field=field)
    return names[0]


def rating_levels(predictor: Predictor, ratings: Sequence[RatingEntry]) -> LevelArray:
    """Return ratings as levels of the scale, on which they must be."""
    levels, on_scale = predictor.scale.levels_of(np.array([entry["rating"] for entry in ratings]))
    if not on_scale.all():
        position = int(np.argmin(on_scale))
        field = f"ratings[{position}].rating"
        raise _off_scale(predictor, ratings[position]["rating"], field)
    return levels


def check_rating(predictor: Predictor, rating: float | None) -> None:
    """Check one rating: on the scale, or left out for a model without ratings."""
    if not predictor.fitted.rates:
        if rating is not None:
            raise ApiError(422, "rating: this model knows no ratings; leave it out", field="rating")
        return
    if rating is None:
        raise ApiError(422, "rating: give a rating on the model's scale", field="rating")
    if not predictor.scale.levels_of(np.array([rating]))[1].all():
        raise _off_scale(predictor, rating, "rating")


def check_different(items: Sequence[str]) -> None:
    """Check that no item comes twice."""
    repeated = [item for item, count in Counter(items).items() if count > 1]
    if repeated:
        raise ApiError(
            422,
            f"ratings: item {repeated[0]!r} is there more than once; give it once",
            field="ratings",
        )


def _off_scale(predictor: Predictor, rating: float, field: str) -> ApiError:
    scale = predictor.scale
    values = ", ".join(f"{value:g}" for value in scale.values[:_SHOWN_VALUES])
    more = ", …" if len(scale) > _SHOWN_VALUES else ""
    return ApiError(
        422,
        f"{field}: {rating:g} is off the model's scale {scale}; allowed are {values}{more}",
        field=field,
    )


# -- users and items of the event store, whose ids are texts -------------------------------------


def id_index(ids: IdIndex, text: str) -> int:
    """Return the index of an id as the store writes it; -1 if the model does not know it."""
    try:
        raw = ids.typed(text)
    except PredictionError:
        return -1
    return ids.index(raw) if str(raw) == text else -1  # 007 is not 7


def id_of_text(ids: IdIndex, text: str) -> Any:
    """Return the id that a text is, in the type of the model; a text that is none stays."""
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
    rates = predictor.fitted.rates
    current = [rating for rating in ratings if not rates or rating.rating is not None]
    indices = np.array([id_index(predictor.items, stored.item_id) for stored in current], np.int64)
    if rates:
        values = np.array([stored.rating for stored in current], np.float64)
        levels, on_scale = predictor.scale.levels_of(values)
    else:
        levels, on_scale = np.zeros(len(current), np.uint8), np.ones(len(current), bool)
    used = np.flatnonzero((indices >= 0) & on_scale)
    unknown = tuple(np.flatnonzero(indices < 0).tolist())
    return UserHistory(indices[used].astype(np.int32), levels[used], unknown, user)
