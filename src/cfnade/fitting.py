"""What an estimator trains on, and how it says how far it is."""

from __future__ import annotations

from typing import Any

import numpy as np

from cfnade.data.load import load
from cfnade.data.predefined import together
from cfnade.data.ratings import Ratings
from cfnade.data.scale import Scale
from cfnade.data.splits import TRAIN, VALID, Split, add_validation, cut
from cfnade.errors import DataError, TrainingError


def parts_of(data: Any, valid: Any, seed: int) -> Split:
    """What to train on and what to choose by."""
    if isinstance(data, Split):
        if valid is not None:
            raise TrainingError("a Split has a validation part already; give no valid beside it")
        return data
    ratings = read(data)
    if valid is None:
        parts = np.full(len(ratings), TRAIN, np.uint8)
        return cut(ratings, add_validation(parts, seed), f"5 % validation, seed {seed}")
    chosen_by = read(valid, ratings.scale)
    whole = together(ratings, chosen_by)
    cells = whole.users.astype(np.int64) * whole.n_items + whole.items
    if repeated := len(cells) - len(np.unique(cells)):
        raise DataError(
            f"{repeated:,} of {len(chosen_by):,} validation ratings are of a user and an item that "
            "the training data rates too; take them out of one of the two"
        )
    return cut(whole, np.repeat(_LABELS, [len(ratings), len(chosen_by)]), "validation given")


_LABELS = np.array([TRAIN, VALID], np.uint8)


def read(data: Any, scale: Scale | None = None) -> Ratings:
    """Ratings as they are; anything else is loaded, on the scale if one is known already."""
    return data if isinstance(data, Ratings) else load(data, scale=scale)


class EpochLines:
    """Prints a line an epoch."""

    def step(self, done: float, cost: float) -> None:
        pass

    def epoch(self, record: dict[str, Any]) -> None:
        line = f"epoch {record['epoch']:4d}   cost {record['cost']:9.4f}"
        if record["valid_rmse"] is not None:
            line += f"   valid rmse {record['valid_rmse']:.4f}"
            line += f"   best {record['best_rmse']:.4f} @ {record['best_epoch']}"
        print(f"{line}   {record['seconds']:.1f} s")
