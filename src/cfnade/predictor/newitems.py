"""New items: what users of the data said of items that the model has never met."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from cfnade.data.scale import Scale
from cfnade.errors import PredictionError
from cfnade.predictor.catalogue import Catalogue
from cfnade.predictor.histories import levels_on, pairs_of
from cfnade.predictor.ids import Ids
from cfnade.sides.side import Row, What

NewItems = Mapping[Any, Any]
"""{new item's id or name: {user id: rating in stars}}, or pairs in place of the inner mapping."""


def read_new_items(
    given: NewItems | None, catalogue: Catalogue, users: Ids, scale: Scale
) -> dict[Any, What]:
    """Check them and look up their users."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise PredictionError(
            "new_items is a mapping from new items to what users rated them, such as "
            f"{{'A new film': {{user: 4}}}}; got a {type(given).__name__}"
        )
    return {name: _read(name, ratings, catalogue, users, scale) for name, ratings in given.items()}


def _read(name: Any, ratings: Any, catalogue: Catalogue, users: Ids, scale: Scale) -> What:
    if catalogue.certain(name) is not None:
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
    return What(-1, Row(indices.astype(np.int32), levels))
