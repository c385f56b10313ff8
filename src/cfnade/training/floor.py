"""What plain means give on the validation part: the floor that a model must not fall through."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from cfnade.data.ratings import Ratings
from cfnade.metrics import rmse

FloatArray = npt.NDArray[np.float64]

SHRINKAGE = 5.0
"""Imagined ratings at the mean that every item and user has."""


def means_rmse(train: Ratings, valid: Ratings) -> float:
    """Of mean + item's offset + user's offset, each shrunk, clipped to the scale."""
    mean = float(train.values.mean())
    above = train.values - mean
    items = _offsets(train.items, above, train.n_items)
    users = _offsets(train.users, above - items[train.items], train.n_users)
    stars = train.scale.values
    said = np.clip(mean + items[valid.items] + users[valid.users], stars[0], stars[-1])
    return rmse(valid.values, said)


def _offsets(index: npt.NDArray[np.int32], above: FloatArray, count: int) -> FloatArray:
    sums = np.bincount(index, above, minlength=count)
    return np.asarray(sums / (np.bincount(index, minlength=count) + SHRINKAGE))


def behind_means(facts: Mapping[str, Any]) -> str | None:
    """A warning, if plain means do better on the validation part."""
    valid = facts.get("valid") or {}
    if valid.get("rmse") is None or valid["rmse"] <= valid["means_rmse"]:
        return None
    return (
        f"on the validation part the model (RMSE {valid['rmse']:.4f}) is no better than plain "
        f"means of users and items ({valid['means_rmse']:.4f}); there may be too few ratings to "
        "learn from"
    )
