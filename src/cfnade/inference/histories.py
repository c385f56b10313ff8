"""Histories as the model reads them: what a new person said of items, users of a new item."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from cfnade._typing import IndexArray
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
    unknown: tuple[Any, ...] = ()
    """Raw ids of rated items that the model has never met; they say nothing to it."""
    user: int = -1
    """By index, if it is somebody of the data: their weights are used, and these ratings in place
    of those that the model knew."""

    def __len__(self) -> int:
        return len(self.items)


def check_users(users: Any, history: Any, histories: Any = None) -> None:
    """Check that a question is about known users, a new one, or several new ones."""
    given = sum(one is not None for one in (users, history, histories))
    if given == 0:
        raise PredictionError(f"give users, or {option('history')} (or histories=) for new users")
    if given > 1:
        raise PredictionError("give either users or a history, not both")


History = Mapping[Any, float] | Iterable[tuple[Any, float]] | Iterable[Any] | UserHistory
"""{raw item id or title: rating in stars}, the same as pairs, or one that was read before; of a
model without ratings, the items alone."""

NewItems = Mapping[Any, Any]
"""{new item's id or name: {user id: rating in stars}}, or pairs in place of the inner mapping."""


def parse_history(history: Any, items: Catalog, scale: Scale) -> UserHistory:
    """Check a history and look up its items; unknown ones are kept apart and logged."""
    pairs = picked_pairs(history) if len(scale) == 1 else pairs_of(history, "a history is", "item")
    raws = [raw for raw, _ in pairs]
    levels = levels_on(scale, pairs, "of item")
    indices = items.indices(raws)
    met = indices >= 0
    unknown = tuple(raw for raw, index in zip(raws, indices.tolist(), strict=True) if index < 0)
    _check_repeats(raws, indices)
    if unknown:
        _log.warning(
            "%d of %d items in a history are unknown to the model and were left out: %s",
            len(unknown),
            len(pairs),
            ", ".join(repr(raw) for raw in unknown[:5]) + (", …" if len(unknown) > 5 else ""),
        )
    return UserHistory(indices[met].astype(np.int32), levels[met], unknown)


def user_entities(histories: Sequence[UserHistory], context: Dataset) -> Entities:
    """Return the users of these histories, as queries have them."""
    ratings = [(one.items, one.levels) for one in histories]
    users, K = [one.user for one in histories], len(context.scale)
    return Entities.of_histories(users, ratings, context.n_items, K)


def parse_new_items(
    given: NewItems | None, catalog: Catalog, users: IdIndex, scale: Scale
) -> dict[Any, Entities]:
    """Check them and look up their users."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise PredictionError(
            "new_items is a mapping from new items to what users rated them, such as "
            f"{{'A new film': {{user: 4}}}}; got a {type(given).__name__}"
        )
    return {
        name: _read_item(name, ratings, catalog, users, scale) for name, ratings in given.items()
    }


def _read_item(name: Any, ratings: Any, catalog: Catalog, users: IdIndex, scale: Scale) -> Entities:
    if catalog.certain(name) is not None:
        raise PredictionError(
            f"new_items: {name!r} is an item that the model knows; leave it out, or give it "
            "another name"
        )
    pairs = pairs_of(ratings, f"the ratings of new item {name!r} are", "user")
    if not pairs:
        raise PredictionError(
            f"new_items: there are no ratings of {name!r}; give at least one, or leave it out"
        )
    raters = [user for user, _ in pairs]
    levels = levels_on(scale, pairs, f"of new item {name!r} by user")
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


# -- ratings beside ids ---------------------------------------------------------------------------


def picked_pairs(history: Any) -> list[tuple[Any, Any]]:
    """What was picked, where there are no stars: items one by one, or with anything beside them."""
    if isinstance(history, Mapping):
        return [(raw, 1.0) for raw in history]
    if not isinstance(history, Iterable) or isinstance(history, str | bytes):
        raise PredictionError(
            f"a history is a list of items that were picked; got {_brief(history)}"
        )
    entries = list(history)
    return [(one[0] if isinstance(one, tuple | list) and one else one, 1.0) for one in entries]


def pairs_of(history: Any, what: str, of: str) -> list[tuple[Any, Any]]:
    """Ids with ratings; an error begins with `what` it is and says what the ids are `of`."""
    if isinstance(history, Mapping):
        return list(history.items())
    if isinstance(history, Iterable) and not isinstance(history, str | bytes):
        entries = list(history)
        if all(isinstance(entry, tuple | list) and len(entry) == 2 for entry in entries):
            return [(raw, rating) for raw, rating in entries]
    raise PredictionError(
        f"{what} a mapping from {of} ids to ratings, or pairs of them; got {_brief(history)}"
    )


def levels_on(scale: Scale, pairs: list[tuple[Any, Any]], whose: str) -> LevelArray:
    """The ratings as levels of a scale; `whose` stands before an id in an error. Returns (n,)."""
    levels, on_scale = scale.levels_of(_numbers(pairs, whose))
    if not on_scale.all():
        raw, rating = pairs[int(np.argmin(on_scale))]
        raise PredictionError(
            f"rating {rating!r} {whose} {raw!r} is off the model's scale {scale}; allowed are "
            f"{_allowed(scale)}"
        )
    return levels


def _numbers(pairs: list[tuple[Any, Any]], whose: str) -> FloatArray:
    """The ratings, which must be finite numbers. Returns (n,)."""
    ratings = [rating for _, rating in pairs]
    if set(map(type, ratings)) <= {int, float}:
        try:
            values = np.array(ratings, np.float64)
        except OverflowError:
            values = np.array([math.inf])
        if np.isfinite(values).all():
            return values
    return np.array([_number(f"{whose} {raw!r}", rating) for raw, rating in pairs], np.float64)


def _number(whose: str, rating: Any) -> float:
    if not isinstance(rating, bool) and isinstance(rating, Real):
        try:
            value = float(rating)
        except OverflowError:
            value = math.inf
        if math.isfinite(value):
            return value
    raise PredictionError(f"rating {rating!r} {whose} is not a finite number")


def _check_repeats(raws: list[Any], indices: npt.NDArray[np.int64]) -> None:
    """An item must not come twice, be it by id and by title."""
    places = zip(indices.tolist(), raws, strict=True)
    items = [(index, raw if index < 0 else None) for index, raw in places]
    if len(set(items)) == len(items):
        return
    earlier: dict[Any, Any] = {}
    for item, raw in zip(items, raws, strict=True):
        if item in earlier:
            also = "" if earlier[item] == raw else f", also as {earlier[item]!r}"
            raise PredictionError(
                f"item {raw!r} is rated more than once in a history{also}; give one rating of each "
                "item"
            )
        earlier[item] = raw


def _allowed(scale: Scale) -> str:
    """The ratings of a scale, in an error."""
    texts = [f"{value:g}" for value in scale.values]
    return ", ".join(texts if len(texts) <= 12 else [*texts[:3], "…", *texts[-2:]])


def _brief(history: Any) -> str:
    text = repr(history)
    return text if len(text) <= 60 else text[:57] + "…"
