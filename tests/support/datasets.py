"""Look at data sets in terms of raw ids."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from cfnade.data.dataset import Dataset


def triples(dataset: Dataset) -> list[tuple[Any, Any, float]]:
    """Return user id, item id and rating, or weight of an interaction, in the stored order."""
    users, items = dataset.user_ids[dataset.users], dataset.item_ids[dataset.items]
    values: npt.NDArray[Any] = dataset.values
    if dataset.implicit:
        values = np.ones(len(dataset)) if dataset.weights is None else dataset.weights
    return list(zip(users.tolist(), items.tolist(), values.tolist(), strict=True))
