"""Histories: the ratings of new users and of new items, checked and by index."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
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

FloatArray = npt.NDArray[np.float64]

_log = logging.getLogger("cfnade")


@dataclass(frozen=True, eq=False)
class UserHistory:
    """The ratings of a user: known items by index, and levels."""

    items: IndexArray  # (c,)
    levels: LevelArray  # (c,)
    unknown: tuple[int, ...] = ()
    """Positions of the entries whose items are unknown to the model."""
    user: int = -1
    """Index of a user of the training data, whose weights are used with these ratings in place of
    those in the model; -1: a new user."""

    def __len__(self) -> int:
        return len(self.items)


History = Mapping[Any, float] | Iterable[tuple[Any, float]] | Iterable[Any] | UserHistory
"""{raw item id or title: rating}, the same as pairs, or a parsed history; for a model without
ratings, the items alone."""

NewItems = Mapping[Any, Any]
"""{new item's id or name: {user id: rating}}, or pairs in place of the inner mapping."""


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
    if len(scale) == 1:
        raws = _interactions(history)
        levels = np.zeros(len(raws), np.uint8)
    else:
        pairs = _pairs(history, "a history is", "item")
        raws, levels = [raw for raw, _ in pairs], _levels(scale, pairs, "of item")
    indices = _item_indices(raws, catalog) if find_items is None else find_items(raws)
    _check_repeats(raws, indices)
    is_known = indices >= 0
    unknown = np.flatnonzero(~is_known).tolist()
    if unknown and find_items is None:
        names = ", ".join(repr(raws[place]) for place in unknown[:5])
        _log.warning(
            "%d of %d items in a history are unknown to the model and were left out: %s",
            len(unknown),
            len(raws),
            names + (", …" if len(unknown) > 5 else ""),
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
    """Return the users with these histories, for queries."""
    ratings = [(history.items, history.levels) for history in histories]
    users, K = [history.user for history in histories], len(context.scale)
    return Entities.of_histories(users, ratings, context.n_items, K)


def parse_new_items(
    new_items: NewItems, catalog: Catalog, users: IdIndex, scale: Scale
) -> dict[Any, Entities]:
    """Check the ratings of new items and look up their users."""
    if not isinstance(new_items, Mapping):
        raise PredictionError(
            "new_items is a mapping from new items to their ratings by users, such as "
            f"{{'A new film': {{user: 4}}}}; got a {type(new_items).__name__}"
        )
    return {
        name: _parse_new_item(name, ratings, catalog, users, scale)
        for name, ratings in new_items.items()
    }


def _parse_new_item(
    name: Any, ratings: Any, catalog: Catalog, users: IdIndex, scale: Scale
) -> Entities:
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
            "to the model; only ratings by known users can be used"
        )
    if len(np.unique(indices)) < len(indices):
        repeated = next(user for place, user in enumerate(raters) if user in raters[:place])
        raise PredictionError(
            f"new_items: user {repeated!r} rated {name!r} more than once; give one rating of each "
            "user"
        )
    return Entities.of_histories([-1], [(indices, levels)], len(users.table), len(scale))


# -- ids and ratings ---------------------------------------------------------------------------


def _interactions(history: Any) -> list[Any]:
    """Return the items of a history without ratings, given alone or in pairs with anything."""
    if isinstance(history, Mapping):
        return list(history)
    if not isinstance(history, Iterable) or isinstance(history, str | bytes):
        raise PredictionError(f"a history is a list of items; got {_shorten(history)}")
    return [entry[0] if isinstance(entry, tuple | list) and entry else entry for entry in history]


def _pairs(history: Any, subject: str, noun: str) -> list[tuple[Any, Any]]:
    """Return ids with ratings; `subject` and `noun` are for the error: "a history is", "item"."""
    if isinstance(history, Mapping):
        return list(history.items())
    if isinstance(history, Iterable) and not isinstance(history, str | bytes):
        entries = list(history)
        if all(isinstance(entry, tuple | list) and len(entry) == 2 for entry in entries):
            return [(raw, rating) for raw, rating in entries]
    raise PredictionError(
        f"{subject} a mapping from {noun} ids to ratings, or pairs of them; got {_shorten(history)}"
    )


def _levels(scale: Scale, pairs: list[tuple[Any, Any]], prefix: str) -> LevelArray:
    """Return the ratings as levels of a scale, (n,); `prefix` precedes an id in an error."""
    levels, on_scale = scale.levels_of(_numbers(pairs, prefix))
    if not on_scale.all():
        place = int(np.argmin(on_scale))
        raw, rating = pairs[place]
        texts = [f"{value:g}" for value in scale.values]
        allowed = texts if len(texts) <= 12 else [*texts[:3], "…", *texts[-2:]]
        raise HistoryError(
            place,
            "rating",
            f"rating {rating!r} {prefix} {raw!r} is off the model's scale {scale}; allowed are "
            f"{', '.join(allowed)}",
        )
    return levels


def _numbers(pairs: list[tuple[Any, Any]], prefix: str) -> FloatArray:
    """Return the ratings, which must be finite numbers, (n,)."""
    ratings = [rating for _, rating in pairs]
    if set(map(type, ratings)) <= {int, float}:  # as most are: all at once
        with suppress(OverflowError):
            values = np.array(ratings, np.float64)
            if np.isfinite(values).all():
                return values
    values = np.empty(len(pairs))
    for place, (raw, rating) in enumerate(pairs):
        try:
            is_number = isinstance(rating, Real) and not isinstance(rating, bool)
            values[place] = float(rating) if is_number else math.nan
        except OverflowError:
            values[place] = math.inf
        if not math.isfinite(values[place]):
            raise HistoryError(
                place, "rating", f"rating {rating!r} {prefix} {raw!r} is not a finite number"
            )
    return values


def _check_repeats(raws: list[Any], indices: IntArray) -> None:
    """Refuse an item that is given twice, also if once by id and once by title."""
    keys = [
        index if index >= 0 else (raw,) for index, raw in zip(indices.tolist(), raws, strict=True)
    ]
    if len(set(keys)) == len(keys):
        return
    earlier: dict[Any, Any] = {}
    for place, (key, raw) in enumerate(zip(keys, raws, strict=True)):
        if key in earlier:
            also = "" if earlier[key] == raw else f", also as {earlier[key]!r}"
            raise HistoryError(
                place,
                "item",
                f"item {raw!r} is rated more than once in a history{also}; give one rating of each "
                "item",
            )
        earlier[key] = raw


def _shorten(history: Any) -> str:
    text = repr(history)
    return text if len(text) <= 60 else text[:57] + "…"
