"""Merge two data sets with different ids, on a common scale and common id tables."""

from __future__ import annotations

import numpy as np

from cfnade._typing import IndexArray
from cfnade.data.dataset import (
    Axis,
    Dataset,
    IdArray,
    Interactions,
    Ratings,
    TextArray,
    WeightArray,
    make_dataset,
)
from cfnade.data.scale import Scale, infer_scale
from cfnade.exceptions import DataError
from cfnade.utils.text import option


def merge(first: Dataset, second: Dataset) -> Ratings | Interactions:
    """Append the rows of a second data set; titles and genres of the first win."""
    user_ids = _union(first.user_ids, second.user_ids, "user")
    item_ids = _union(first.item_ids, second.item_ids, "item")
    scale = _common_scale(first.scale, second.scale)
    both = (first, second)
    return make_dataset(
        users=np.concatenate([_index(d.user_ids, user_ids)[d.users] for d in both]),
        items=np.concatenate([_index(d.item_ids, item_ids)[d.items] for d in both]),
        levels=np.concatenate([scale.levels_of(d.scale.array())[0][d.levels] for d in both]),
        scale=scale,
        user_ids=user_ids,
        item_ids=item_ids,
        times=(
            None
            if first.times is None or second.times is None
            else np.concatenate([first.times, second.times])
        ),
        titles=_texts(both, "titles", item_ids),
        genres=_texts(both, "genres", item_ids),
        source=" + ".join(dict.fromkeys(d.source for d in both if d.source)),
        weights=_weights(both),
    )


def _weights(both: tuple[Dataset, Dataset]) -> WeightArray | None:
    weights = [np.ones(len(d), np.float32) if d.weights is None else d.weights for d in both]
    return None if all(d.weights is None for d in both) else np.concatenate(weights)


def _common_scale(first: Scale, second: Scale) -> Scale:
    if first == second:
        return first
    if 1 in (len(first), len(second)):
        raise DataError(
            "one part holds ratings, the other interactions; read both the same way, with "
            f"{option('rating')} or {option('implicit', True)}"
        )
    if first.edges is not None or second.edges is not None:
        raise DataError(
            f"the two parts are binned differently ({first}; {second}); "
            "give both the same edges with bins=[…]"
        )
    return infer_scale(np.concatenate([first.array(), second.array()]))


def _union(first: IdArray, second: IdArray, axis: Axis) -> IdArray:
    if first.dtype != second.dtype:
        raise DataError(
            f"{axis} ids are numbers in one part and text in the other "
            f"({first[0]!r}, {second[0]!r}); read both parts the same way"
        )
    return np.union1d(first, second)


def _index(ids: IdArray, table: IdArray) -> IndexArray:
    return np.searchsorted(table, ids).astype(np.int32)


def _texts(both: tuple[Dataset, Dataset], name: str, ids: IdArray) -> TextArray | None:
    texts = np.full(len(ids), "", object)
    for dataset in reversed(both):  # the first overwrites the second
        column = getattr(dataset, name)
        if column is not None:
            filled = column != ""
            texts[_index(dataset.item_ids[filled], ids)] = column[filled]
    return texts if any(texts) else None
