"""What plain means give on the validation part: the floor that a model must not fall through."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from cfnade.data.dataset import Dataset
from cfnade.evaluation.rating_metrics import rmse

SHRINKAGE = 5.0
"""Imagined ratings at the mean that every item and user has."""


def means_rmse(train: Dataset, valid: Dataset) -> float:
    """Of mean + item's offset + user's offset, each shrunk, clipped to the scale."""
    stars, gave = train.scale.array(), train.level_counts("item")
    mean = float(gave.sum(0) @ stars / len(train))
    items = gave @ (stars - mean) / (gave.sum(1) + SHRINKAGE)
    gave = train.level_counts("user")
    above = np.zeros(train.n_users)  # what the items that each user rated are above the mean
    for users, rated in train.chunks("users", "items"):
        above += np.bincount(users, items[rated], train.n_users)
    own = (gave @ (stars - mean) - above) / (gave.sum(1) + SHRINKAGE)
    said = np.clip(mean + items[valid.items] + own[valid.users], stars[0], stars[-1])
    return rmse(valid.values, said)


def behind_means(facts: Mapping[str, Any]) -> str | None:
    """A warning, if plain means do better on the validation part, by what the warning can show."""
    valid = facts.get("valid") or {}
    if valid.get("rmse") is None or round(valid["rmse"], 4) <= round(valid["means_rmse"], 4):
        return None
    return (
        f"on the validation part the model (RMSE {valid['rmse']:.4f}) is no better than plain "
        f"means of users and items ({valid['means_rmse']:.4f}); there may be too few ratings to "
        "learn from"
    )
