"""Histories as the model reads them: what a new person said of items, users of a new item."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from cfnade._typing import IndexArray, IntArray
from cfnade.data.dataset import Dataset
from cfnade.data.scale import LevelArray, Scale
from cfnade.exceptions import PredictionError
from cfnade.inference.catalog import Catalog, IdIndex
from cfnade.inference.query import Entities
from cfnade.utils.text import option

FloatArray = npt.NDArray[np.float64]

_log = logging.getLogger("cfnade")


@dataclass(frozen=True, eq=False)
class UserHistory:
    """A history that was read: known items by index, with levels."""

    items: IndexArray  # (c,)
    levels: LevelArray  # (c,)
    unknown: tuple[int, ...] = ()
    """Positions of entries prefix items are unknown to the model."""
    user: int = -1
    """Index of a known user, prefix weights are used, with these ratings instead of those in the
    model; -1: a new user."""

    def __len__(self) -> int:
        return len(self.items)


def check_users(users: Any, history: Any, histories: Any = None) -> None:
    """Check that a question is about known users, a new one, or several new ones."""
    count = sum(argument is not None for argument in (users, history, histories))
    if count == 0:
        raise PredictionError(f"give users, or {option('history')} (or histories=) for new users")
    if count > 1:
        raise PredictionError("give either users or a history, not both")


History = Mapping[Any, float] | Iterable[tuple[Any, float]] | Iterable[Any] | UserHistory
"""{raw item id or title: rating in stars}, the same as pairs, or one that was read before; of a
model without ratings, the items alone."""

NewItems = Mapping[Any, Any]
"""{new item's id or name: {user id: rating in stars}}, or pairs in place of the inner mapping."""


class HistoryError(PredictionError):
    """An entry of a history cannot be used.

    Attributes:
        index: Position of the entry, from 0.
        field: Its part, "item" or "rating".
    """

    def __init__(self, index: int, field: Literal["item", "rating"], message: str) -> None:
        super().__init__(message, field=field)
        self.index = index


def parse_history(
    history: Any,
    catalog: Catalog,
    scale: Scale,
    *,
    find_items: Callable[[list[Any]], IntArray] | None = None,
) -> UserHistory:
    """Check the ratings of a new user and look up their items.

    Args:
        history: Ratings by item, pairs of these, or the items of a model without ratings.
        catalog: The items of the model.
        scale: Its rating scale.
        find_items: Returns the indices of ids and titles, -1 for unknown ones. None: the catalog's
            rule, which refuses ambiguous titles, and a warning names unknown items.

    Raises:
        HistoryError: An entry cannot be used; it has the position of the entry.
        PredictionError: The history is of another form.
    """
    if isinstance(history, UserHistory):
        return history
    pairs = _interactions(history) if len(scale) == 1 else _pairs(history, "a history is", "item")
    raws = [raw for raw, _ in pairs]
    levels = _levels(scale, pairs, "of item")
    indices = _item_indices(raws, catalog) if find_items is None else find_items(raws)
    _check_repeats(raws, indices)
    is_known = indices >= 0
    unknown = np.flatnonzero(~is_known).tolist()
    if unknown and find_items is None:
        shown = ", ".join(repr(raws[place]) for place in unknown[:5])
        _log.warning(
            "%d of %d items in a history are unknown to the model and were left out: %s",
            len(unknown),
            len(pairs),
            shown + (", …" if len(unknown) > 5 else ""),
        )
    return UserHistory(indices[is_known].astype(np.int32), levels[is_known], tuple(unknown))


def _item_indices(raws: list[Any], catalog: Catalog) -> IntArray:
    try:
        return catalog.indices(raws)
    except PredictionError:
        for place, raw in enumerate(raws):
            try:
                catalog.indices([raw])
            except PredictionError as error:
                raise HistoryError(place, "item", str(error)) from error
        raise


def user_entities(histories: Sequence[UserHistory], context: Dataset) -> Entities:
    """Return the users of these histories, as queries have them."""
    ratings = [(history.items, history.levels) for history in histories]
    users, K = [history.user for history in histories], len(context.scale)
    return Entities.of_histories(users, ratings, context.n_items, K)


def parse_new_items(
    new_items: NewItems | None, catalog: Catalog, users: IdIndex, scale: Scale
) -> dict[Any, Entities]:
    """Check the ratings of new items and look up their users."""
    if new_items is None:
        return {}
    if not isinstance(new_items, Mapping):
        raise PredictionError(
            "new_items is a mapping from new items to what users rated them, such as "
            f"{{'A new film': {{user: 4}}}}; got a {type(new_items).__name__}"
        )
    return {
        name: _read_item(name, ratings, catalog, users, scale)
        for name, ratings in new_items.items()
    }


def _read_item(name: Any, ratings: Any, catalog: Catalog, users: IdIndex, scale: Scale) -> Entities:
    if catalog.certain(name) is not None:
        raise PredictionError(
            f"new_items: {name!r} is an item that the model knows; leave it out, or give it "
            "another name"
        )
    pairs = _pairs(ratings, f"the ratings of new item {name!r} are", "user")
    if not pairs:
        raise PredictionError(
            f"new_items: there are no ratings of {name!r}; give at least one, or leave it out"
        )
    raters = [user for user, _ in pairs]
    levels = _levels(scale, pairs, f"of new item {name!r} by user")
    indices = users.indices(raters)
    if (indices < 0).any():
        raise PredictionError(
            f"new_items: user {raters[int(np.argmin(indices))]!r}, who rated {name!r}, is unknown "
            "to the model; only ratings by users that it knows can be read"
        )
    if len(np.unique(indices)) < len(indices):
        twice = next(user for place, user in enumerate(raters) if user in raters[:place])
        raise PredictionError(
            f"new_items: user {twice!r} rated {name!r} more than once; give one rating of each user"
        )
    return Entities.of_histories([-1], [(indices, levels)], len(users.table), len(scale))


# -- ids and ratings ---------------------------------------------------------------------------


def _interactions(history: Any) -> list[tuple[Any, Any]]:
    """Return the items of a history without ratings, given alone or in pairs with anything."""
    if isinstance(history, Mapping):
        return [(raw, 1.0) for raw in history]
    if not isinstance(history, Iterable) or isinstance(history, str | bytes):
        raise PredictionError(f"a history is a list of items; got {_brief(history)}")
    entries = list(history)
    return [(raw[0] if isinstance(raw, tuple | list) and raw else raw, 1.0) for raw in entries]


def _pairs(history: Any, subject: str, noun: str) -> list[tuple[Any, Any]]:
    """Return ids with ratings; `subject` and `noun` are for the error: "a history is", "item"."""
    if isinstance(history, Mapping):
        return list(history.items())
    if isinstance(history, Iterable) and not isinstance(history, str | bytes):
        entries = list(history)
        if all(isinstance(entry, tuple | list) and len(entry) == 2 for entry in entries):
            return [(raw, rating) for raw, rating in entries]
    raise PredictionError(
        f"{subject} a mapping from {noun} ids to ratings, or pairs of them; got {_brief(history)}"
    )


def _levels(scale: Scale, pairs: list[tuple[Any, Any]], prefix: str) -> LevelArray:
    """Return the ratings as levels of a scale, (n,); `prefix` precedes an id in an error."""
    levels, on_scale = scale.levels_of(_numbers(pairs, prefix))
    if not on_scale.all():
        place = int(np.argmin(on_scale))
        raw, rating = pairs[place]
        raise HistoryError(
            place,
            "rating",
            f"rating {rating!r} {prefix} {raw!r} is off the model's scale {scale}; allowed are "
            f"{_allowed(scale)}",
        )
    return levels


def _numbers(pairs: list[tuple[Any, Any]], prefix: str) -> FloatArray:
    """Return the ratings, which must be finite numbers, (n,)."""
    ratings = [rating for _, rating in pairs]
    if set(map(type, ratings)) <= {int, float}:
        try:
            values = np.array(ratings, np.float64)
        except OverflowError:
            values = np.array([math.inf])
        if np.isfinite(values).all():
            return values
    return np.array(
        [_number(place, f"{prefix} {raw!r}", rating) for place, (raw, rating) in enumerate(pairs)],
        np.float64,
    )


def _number(place: int, prefix: str, rating: Any) -> float:
    if not isinstance(rating, bool) and isinstance(rating, Real):
        try:
            value = float(rating)
        except OverflowError:
            value = math.inf
        if math.isfinite(value):
            return value
    raise HistoryError(place, "rating", f"rating {rating!r} {prefix} is not a finite number")


def _check_repeats(raws: list[Any], indices: npt.NDArray[np.int64]) -> None:
    """An item must not come twice, be it by id and by title."""
    places = zip(indices.tolist(), raws, strict=True)
    items = [(index, raw if index < 0 else None) for index, raw in places]
    if len(set(items)) == len(items):
        return
    earlier: dict[Any, Any] = {}
    for place, (item, raw) in enumerate(zip(items, raws, strict=True)):
        if item in earlier:
            also = "" if earlier[item] == raw else f", also as {earlier[item]!r}"
            raise HistoryError(
                place,
                "item",
                f"item {raw!r} is rated more than once in a history{also}; give one rating of each "
                "item",
            )
        earlier[item] = raw


def _allowed(scale: Scale) -> str:
    """The ratings of a scale, in an error."""
    texts = [f"{value:g}" for value in scale.values]
    return ", ".join(texts if len(texts) <= 12 else [*texts[:3], "…", *texts[-2:]])


def _brief(history: Any) -> str:
    text = repr(history)
    return text if len(text) <= 60 else text[:57] + "…"
