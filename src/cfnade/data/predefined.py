"""Splits that come as files: a training file and a test file, such as u1.base and u1.test."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from cfnade._typing import IndexArray, IntArray
from cfnade.data.dataset import Dataset, make_dataset, pair_keys
from cfnade.data.scale import Scale, find_scale
from cfnade.data.splits import TEST, TRAIN, Split, add_validation, cut
from cfnade.exceptions import DataError

_NEITHER = 255
_SEED = 0  # of the validation part: nobody says one for files


def predefined(train: Dataset, test: Dataset, *, name: str, whole: Dataset | None = None) -> Split:
    """The split that two files prescribe; 5 % of the training file, always the same, becomes
    validation.

    `whole` is the data set that the two were cut from (u.data): the parts then have its order,
    ids, times and titles. Without it they are put together here, training file first.
    """
    whole = together(train, test) if whole is None else whole
    cells = pair_keys(whole.users, whole.items, whole.n_items)
    order = np.argsort(cells, kind="stable")
    parts = np.full(len(whole), _NEITHER, np.uint8)
    for part, label in ((train, TRAIN), (test, TEST)):
        places = _places(part, whole, cells, order, name)
        both = parts[places] != _NEITHER
        if both.any():
            raise DataError(
                f"split {name}: {int(both.sum()):,} ratings are in both parts, for example "
                f"{_cell(part, int(np.argmax(both)))}; a rating may be in one part only"
            )
        parts[places] = label
    missing = parts == _NEITHER
    if missing.any():
        raise DataError(
            f"split {name}: {int(missing.sum()):,} ratings are in neither part, for example "
            f"{_cell(whole, int(np.argmax(missing)))}; are these files cut from this data?"
        )
    return cut(whole, add_validation(parts, _SEED), name)


def together(first: Dataset, second: Dataset) -> Dataset:
    """Both after each other, on one scale and one table of ids."""
    user_ids = _union(first.user_ids, second.user_ids, "user")
    item_ids = _union(first.item_ids, second.item_ids, "item")
    scale = _common_scale(first.scale, second.scale)
    pair = (first, second)
    return make_dataset(
        users=np.concatenate([_place(p.user_ids, user_ids)[p.users] for p in pair]),
        items=np.concatenate([_place(p.item_ids, item_ids)[p.items] for p in pair]),
        levels=np.concatenate([scale.levels_of(p.scale.array())[0][p.levels] for p in pair]),
        scale=scale,
        user_ids=user_ids,
        item_ids=item_ids,
        times=(
            None
            if first.times is None or second.times is None
            else np.concatenate([first.times, second.times])
        ),
        titles=_texts(pair, "titles", item_ids),
        genres=_texts(pair, "genres", item_ids),
        source=" + ".join(dict.fromkeys(p.source for p in pair if p.source)),
        weights=_weights(pair),
    )


def _weights(pair: tuple[Dataset, Dataset]) -> npt.NDArray[np.float32] | None:
    own = [np.ones(len(p), np.float32) if p.weights is None else p.weights for p in pair]
    return None if all(part.weights is None for part in pair) else np.concatenate(own)


def _common_scale(first: Scale, second: Scale) -> Scale:
    if first == second:
        return first
    if 1 in (len(first), len(second)):
        raise DataError(
            "one part holds ratings, the other interactions; read both the same way, with "
            'rating= or rating="-"'
        )
    if first.edges is not None or second.edges is not None:
        raise DataError(
            f"the two parts are binned differently ({first}; {second}); "
            "give both the same edges with bins=[…]"
        )
    return find_scale(np.concatenate([first.array(), second.array()]))


def _union(a: npt.NDArray[Any], b: npt.NDArray[Any], side: str) -> npt.NDArray[Any]:
    if a.dtype != b.dtype:
        raise DataError(
            f"{side} ids are numbers in one part and text in the other "
            f"({a[0]!r}, {b[0]!r}); read both parts the same way"
        )
    return np.union1d(a, b)


def _place(ids: npt.NDArray[Any], table: npt.NDArray[Any]) -> IndexArray:
    return np.searchsorted(table, ids).astype(np.int32)


def _texts(
    parts: tuple[Dataset, Dataset], name: str, ids: npt.NDArray[Any]
) -> npt.NDArray[np.object_] | None:
    texts = np.full(len(ids), "", object)
    for part in reversed(parts):  # so that the first part's word counts
        own = getattr(part, name)
        if own is not None:
            filled = own != ""
            texts[_place(part.item_ids[filled], ids)] = own[filled]
    return texts if any(texts) else None


def _places(part: Dataset, whole: Dataset, cells: IntArray, order: IntArray, name: str) -> IntArray:
    """Where the part's ratings stand in the whole; it is an error if one does not."""
    users, has_user = _looked_up(part.user_ids, whole.user_ids, part.users)
    items, has_item = _looked_up(part.item_ids, whole.item_ids, part.items)
    own_cells = pair_keys(users, items, whole.n_items)
    rank = np.minimum(np.searchsorted(cells, own_cells, sorter=order), len(cells) - 1)
    places = order[rank]
    level, on_scale = whole.scale.levels_of(part.scale.array())
    same = has_user & has_item & (cells[places] == own_cells)
    same &= on_scale[part.levels] & (whole.levels[places] == level[part.levels])
    if not same.all():
        raise DataError(
            f"split {name}: {int((~same).sum()):,} ratings are not in the data set, for example "
            f"{_cell(part, int(np.argmin(same)))}; are these files cut from this data?"
        )
    return places


def _looked_up(
    ids: npt.NDArray[Any], table: npt.NDArray[Any], index: IndexArray
) -> tuple[IndexArray, npt.NDArray[np.bool_]]:
    """Each rating's id as an index of `table`, and whether it is there. Returns (n,), (n,)."""
    if ids.dtype != table.dtype:
        return np.zeros(len(index), np.int32), np.zeros(len(index), bool)
    place = np.minimum(_place(ids, table), np.int32(len(table) - 1))
    return place[index], (table[place] == ids)[index]


def _cell(ratings: Dataset, place: int) -> str:
    user, item = ratings.user_ids[ratings.users[place]], ratings.item_ids[ratings.items[place]]
    return f"user {user}, item {item}"
