"""Results as polars frames: raw ids, titles and distributions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from cfnade.data.dataset import Dataset
from cfnade.data.scale import Scale
from cfnade.inference.catalog import IdIndex, titles_of
from cfnade.inference.scorer import Scorer

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


class Predictions(NamedTuple):
    """Of each cell asked for."""

    items: IntArray  # (n,) indices
    predictions: FloatArray  # (n,) expected ratings
    probabilities: FloatArray  # (n, K) calibrated
    n_user_ratings: IntArray  # (n,)
    n_item_ratings: IntArray  # (n,)


@dataclass(frozen=True, eq=False)
class UserTopN:
    """One person's list, best first, as arrays."""

    items: IntArray  # (n,) indices
    scores: FloatArray  # (n,) what they are ranked by
    predictions: FloatArray  # (n,) expected ratings
    probabilities: FloatArray  # (n, K) calibrated
    n_item_ratings: IntArray  # (n,)
    n_user_ratings: int
    n_hidden_items: int
    """How many items could be listed but have fewer than min_ratings ratings."""
    min_ratings: int
    picks: FloatArray | None = None
    """(n,) probabilities of being the next interaction, of a list by these."""

    def __len__(self) -> int:
        return len(self.items)


class RankedItems(NamedTuple):
    """The chosen items of some people, person by person and best first."""

    which: IntArray  # (n,) whose
    items: IntArray
    scores: FloatArray
    predictions: FloatArray
    probabilities: FloatArray
    picks: FloatArray
    """Chances to be picked next; NaN where they were not asked for."""

    @classmethod
    def joined(cls, parts: Sequence[RankedItems]) -> RankedItems:
        """All of these, one after the other."""
        columns: Any = zip(*parts, strict=True)
        return cls(*map(np.concatenate, columns))

    def take(self, places: IntArray) -> RankedItems:
        """Those at these places."""
        columns: tuple[Any, ...] = self
        return RankedItems(*(column[places] for column in columns))

    @classmethod
    def none(cls, K: int) -> RankedItems:
        """Of nobody."""
        index, value = np.empty(0, np.int64), np.empty(0)
        return cls(index, index, value, value, np.empty((0, K)), value)


class TopN(NamedTuple):
    """Lists of many people, one below the other."""

    top: RankedItems  # whose are places among these people
    n_item_ratings: IntArray  # (n,)
    n_user_ratings: IntArray  # (people,)
    n_hidden_items: IntArray  # (people,)

    def of_top(self, top: RankedItems, scorer: Scorer) -> TopN:
        """Others of the same people's items."""
        return self._replace(top=top, n_item_ratings=scorer.known("item")[top.items])


def id_series(raw: Sequence[Any] | npt.NDArray[Any], *, texts: bool) -> pl.Series:
    """Raw ids as a column: integers, or texts if one is a text or the data's ids are."""
    if isinstance(raw, np.ndarray) and raw.dtype != object:
        return pl.Series(raw)
    listed = list(raw)
    if texts or any(isinstance(one, str) for one in listed):
        return pl.Series([str(one) for one in listed], dtype=pl.String)
    return pl.Series(listed, dtype=pl.Int64)


def item_columns(context: Dataset, items: IntArray) -> dict[str, pl.Series]:
    """item and title, of items by index."""
    raws = id_series(context.item_ids[items], texts=context.item_ids.dtype == object)
    return {"item": raws, "title": title_series(context, items)}


def item_series(ids: IdIndex, items: Any, indices: IntArray) -> pl.Series:
    """Raw ids of items that were asked for by id or title; an unknown id stays as it was given."""
    if isinstance(items, np.ndarray):
        return id_series(items, texts=ids.are_texts)
    table = ids.table[np.maximum(indices, 0)].tolist() if len(ids.table) else items
    raws = [one if i < 0 else raw for one, raw, i in zip(items, table, indices, strict=True)]
    return id_series(raws, texts=ids.are_texts)


def cell_frame(
    context: Dataset, ids: tuple[IdIndex, IdIndex], asked: Any, answers: Predictions
) -> pl.DataFrame:
    """What is said of cells; ids are those of the data, `asked` users and items as they came."""
    (own_users, own_items), (users, items) = ids, asked
    return pl.DataFrame(
        {
            "user": id_series(users, texts=own_users.are_texts),
            "item": item_series(own_items, items, answers.items),
            "title": title_series(context, answers.items),
            **distribution_columns(answers.probabilities, answers.predictions, context.scale),
            "n_user_ratings": answers.n_user_ratings,
            "n_item_ratings": answers.n_item_ratings,
        }
    )


def list_frame(context: Dataset, users: Any, lists: TopN, *, interactions: bool) -> pl.DataFrame:
    """Lists of one or many people, one below the other; users are raw ids, None for a history.

    `interactions` says whether lists have probabilities of interactions.
    """
    top = lists.top
    columns: dict[str, Any] = {}
    if users is not None:
        ids = id_series(users, texts=context.user_ids.dtype == object)
        columns["user"] = ids.gather(top.which)
    columns["rank"] = 1 + np.arange(len(top.which)) - np.searchsorted(top.which, top.which)
    columns |= item_columns(context, top.items)
    columns["score"] = top.scores
    if interactions:  # even of no user: columns do not depend on how long lists are
        columns["interaction_probability"] = top.picks
    if not context.implicit:
        columns |= distribution_columns(top.probabilities, top.predictions, context.scale)
    columns["n_user_ratings"] = lists.n_user_ratings[top.which]
    columns["n_item_ratings"] = lists.n_item_ratings
    columns["n_hidden_items"] = lists.n_hidden_items[top.which]
    return pl.DataFrame(columns)


def search_frame(scorer: Scorer, items: IntArray, distances: FloatArray) -> pl.DataFrame:
    """Items that were searched for, by index."""
    return pl.DataFrame(
        {
            **item_columns(scorer.fitted.context, items),
            "n_item_ratings": scorer.known_of("item", items),
            "distance": distances,
        }
    )


def title_series(ratings: Dataset, items: IntArray) -> pl.Series:
    """Titles of items by index; null where there is none, or the item is unknown (-1)."""
    titles = titles_of(ratings)
    texts = [None if titles is None or i < 0 else titles[i] or None for i in items.tolist()]
    return pl.Series(texts, dtype=pl.String)


def distribution_columns(
    probabilities: FloatArray, predictions: FloatArray, scale: Scale
) -> dict[str, pl.Series]:
    """prediction, std, and p_ for each value of the scale, of distributions (n, K)."""
    values = scale.array()
    gaps = np.square(values - predictions[:, None])  # (n, K)
    columns = {
        "prediction": pl.Series(predictions),
        "std": pl.Series(np.sqrt((probabilities * gaps).sum(1))),
    }
    names = probability_names(scale)
    return columns | {
        name: pl.Series(np.ascontiguousarray(probabilities[:, k])) for k, name in enumerate(names)
    }


def probability_names(scale: Scale) -> list[str]:
    """p_1, p_2 … or p_0.5, p_1 …: one for each value of the scale."""
    short = [f"p_{value:g}" for value in scale.values]
    return short if len(set(short)) == len(short) else [f"p_{value!r}" for value in scale.values]
