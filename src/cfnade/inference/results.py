"""Results of predictions and recommendations: arrays, and polars frames of these.

Shapes: n pairs or list entries, B users, K levels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from cfnade._typing import IntArray
from cfnade.data.dataset import Dataset
from cfnade.data.scale import Scale
from cfnade.inference.catalog import titles_of

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Predictions:
    """Predictions of pairs of users and items."""

    context: Dataset
    items: IntArray  # (n,) indices
    predictions: FloatArray  # (n,) expected ratings
    probabilities: FloatArray  # (n, K)
    n_user_ratings: IntArray  # (n,) known ratings of each pair's user
    n_item_ratings: IntArray  # (n,)
    user_ids: Any = None
    """The users as the caller gave them."""
    item_ids: Any = None

    @classmethod
    def concat(cls, parts: Sequence[Predictions], places: IntArray) -> Predictions:
        """Return the predictions of all parts, which are for these places, in order."""
        order = np.argsort(places, kind="stable")
        names = ("items", "predictions", "probabilities", "n_user_ratings", "n_item_ratings")
        arrays = {
            name: np.concatenate([getattr(part, name) for part in parts])[order] for name in names
        }
        return cls(parts[0].context, **arrays)

    def to_frame(self) -> pl.DataFrame:
        """Return a row for each pair; an unknown id stays as the caller gave it."""
        users, items = self.context.user_ids, self.context.item_ids
        item_ids = self.item_ids
        if not isinstance(item_ids, np.ndarray) and len(items):  # ids or titles
            table = items[np.maximum(self.items, 0)].tolist()
            rows = zip(self.items.tolist(), table, item_ids, strict=True)
            item_ids = [raw if index >= 0 else asked_id for index, raw, asked_id in rows]
        return pl.DataFrame(
            {
                "user": id_series(self.user_ids, texts=users.dtype == object),
                "item": id_series(item_ids, texts=items.dtype == object),
                "title": title_series(self.context, self.items),
                **distribution_columns(self.probabilities, self.predictions, self.context.scale),
                "n_user_ratings": self.n_user_ratings,
                "n_item_ratings": self.n_item_ratings,
            }
        )


@dataclass(frozen=True, eq=False)
class TopN:
    """Ranked items of B users: user by user, best first."""

    context: Dataset
    user: IntArray  # (n,) the user's number
    items: IntArray  # (n,) indices
    scores: FloatArray  # (n,) what items are ranked by
    predictions: FloatArray  # (n,) expected ratings
    probabilities: FloatArray  # (n, K) calibrated
    interaction_probabilities: FloatArray | None  # (n,) if items are ranked by these
    n_item_ratings: IntArray  # (n,)
    n_user_ratings: IntArray  # (B,)
    n_hidden_items: IntArray  # (B,) items with fewer than `min_ratings` ratings
    min_ratings: int

    def to_frame(self, user_ids: Any = None) -> pl.DataFrame:
        """Return a row for each entry, with a column user if ids of the users are given."""
        columns: dict[str, Any] = {}
        if user_ids is not None:
            texts = self.context.user_ids.dtype == object
            columns["user"] = id_series(user_ids, texts=texts).gather(self.user)
        first = np.searchsorted(self.user, self.user)
        columns["rank"] = 1 + np.arange(len(self.user)) - first
        columns |= item_columns(self.context, self.items)
        columns["score"] = self.scores
        if self.interaction_probabilities is not None:
            columns["interaction_probability"] = self.interaction_probabilities
        if not self.context.implicit:
            scale = self.context.scale
            columns |= distribution_columns(self.probabilities, self.predictions, scale)
        columns["n_user_ratings"] = self.n_user_ratings[self.user]
        columns["n_item_ratings"] = self.n_item_ratings
        columns["n_hidden_items"] = self.n_hidden_items[self.user]
        return pl.DataFrame(columns)


# -- columns ---------------------------------------------------------------------------------------


def id_series(raw: Sequence[Any] | npt.NDArray[Any], *, texts: bool) -> pl.Series:
    """Return raw ids as a column: strings if `texts` or if one is a string, else integers."""
    if isinstance(raw, np.ndarray) and raw.dtype != object:
        return pl.Series(raw)
    ids = list(raw)
    if texts or any(isinstance(raw_id, str) for raw_id in ids):
        return pl.Series([str(raw_id) for raw_id in ids], dtype=pl.String)
    return pl.Series(ids, dtype=pl.Int64)


def item_columns(context: Dataset, items: IntArray) -> dict[str, pl.Series]:
    """Return the columns item and title of items by index."""
    ids = id_series(context.item_ids[items], texts=context.item_ids.dtype == object)
    return {"item": ids, "title": title_series(context, items)}


def title_series(context: Dataset, items: IntArray) -> pl.Series:
    """Return titles of items by index; null for an item without a title and for -1."""
    titles = titles_of(context)
    texts = [None if titles is None or i < 0 else titles[i] or None for i in items.tolist()]
    return pl.Series(texts, dtype=pl.String)


def distribution_columns(
    probabilities: FloatArray, predictions: FloatArray, scale: Scale
) -> dict[str, pl.Series]:
    """Return the columns prediction, std and the probability of each rating."""
    deviations = scale.array() - predictions[:, None]  # (n, K)
    columns = {
        "prediction": pl.Series(predictions),
        "std": pl.Series(np.sqrt((probabilities * np.square(deviations)).sum(1))),
    }
    for k, name in enumerate(probability_names(scale)):
        columns[name] = pl.Series(np.ascontiguousarray(probabilities[:, k]))
    return columns


def probability_names(scale: Scale) -> list[str]:
    """Return the column names of the probabilities, such as p_0.5, p_1, …"""
    short = [f"p_{value:g}" for value in scale.values]
    return short if len(set(short)) == len(short) else [f"p_{value!r}" for value in scale.values]
