"""A trained member for more users and items than it was trained on, with the same weights.

What is new gets the mean of what was trained, column by column: what is said of something of which
nothing is known. Ids that are gone are left out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cfnade._typing import IntArray
from cfnade.components.base import Axis, other_axis
from cfnade.components.trainable import Member, TorchComponent, TorchRowComponent
from cfnade.data.dataset import Dataset
from cfnade.exceptions import TrainingError


def widened(
    member: Member, earlier: Dataset, ratings: Dataset, trained_on: dict[Axis, IntArray]
) -> Member:
    """The member with the columns of `ratings`; trained_on are counts of the earlier columns."""
    sides: dict[str, TorchComponent] = {}
    for name, side in member.components.items():
        if not isinstance(side, TorchRowComponent):
            raise TrainingError(
                f"a model with a side {name!r} cannot be refreshed, only trained anew; refresh "
                "models of users, of items or of both"
            )
        axis = other_axis(side.axis)
        places = places_of(ratings.ids(axis), earlier.ids(axis))
        sides[name] = _widened(side, places, trained_on[axis].sum(1) > 0)
    return Member(sides).eval()


def places_of(ids: npt.NDArray[Any], earlier: npt.NDArray[Any]) -> IntArray:
    """Where each id was in an earlier table, -1 for a new one. Returns (n,).

    Whole numbers and texts that are written alike are the same: a store has both as texts.
    """
    if (ids.dtype == object) != (earlier.dtype == object):
        ids, earlier = (np.array([str(one) for one in some], object) for some in (ids, earlier))
    before = {raw: place for place, raw in enumerate(earlier.tolist())}
    return np.array([before.get(raw, -1) for raw in ids.tolist()], np.int64)


def recounted(counts: IntArray, places: IntArray) -> IntArray:
    """Counts (M, K) for the new table; nothing was counted of what is new."""
    return np.where(places[:, None] >= 0, counts[places], 0)


@torch.no_grad()
def _widened(
    side: TorchRowComponent, places: IntArray, trained: npt.NDArray[np.bool_]
) -> TorchRowComponent:
    wide = _like(side, len(places))
    narrow, wider = (dict(_empty(side, n).network.state_dict()) for n in (3, 4))
    weights: dict[str, Tensor] = {}
    for name, tensor in side.network.state_dict().items():
        sizes = zip(narrow[name].shape, wider[name].shape, strict=True)
        grown = [dimension for dimension, (small, large) in enumerate(sizes) if small != large]
        weights[name] = _columns(tensor, grown[0], places, trained) if grown else tensor.clone()
    wide.network.load_state_dict(weights, assign=True)
    return wide


def _columns(tensor: Tensor, dimension: int, places: IntArray, trained: Any) -> Tensor:
    rows = tensor.movedim(dimension, 0)
    usual = rows[torch.from_numpy(trained)] if trained.any() else rows
    out = rows[torch.from_numpy(np.maximum(places, 0))].clone()
    out[torch.from_numpy(places < 0)] = usual.float().mean(0).to(rows.dtype)
    return out.movedim(0, dimension).contiguous()


def _like(side: TorchRowComponent, columns: int) -> TorchRowComponent:
    fields = side.to_dict() | {"columns": columns}
    return type(side).from_saved(side.axis, fields, side.arrays())


def _empty(side: TorchRowComponent, columns: int) -> TorchRowComponent:
    """Sizes only: they tell which dimension of a table is that of columns."""
    with torch.device("meta"):
        return _like(side, columns)
