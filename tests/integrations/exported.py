"""Small models: of every kind that can be exported, and options that train fast."""

from __future__ import annotations

from typing import Any

import numpy as np

from cfnade import CFNADE, synthetic
from cfnade.inference.predictor import Predictor

FAST: dict[str, Any] = {"side": "user", "ridge": 0, "hidden": (4,), "epochs": 2}
FAST |= {"batch_rows": 8, "n_threads": 1}
KINDS: dict[str, dict[str, Any]] = {
    "plain": {"ridge": 0, "hidden": (8,)},
    "ridge": {"ridge": 5, "hidden": (8,)},
    "factored": {"ridge": 0, "hidden": (8, 6), "factors": 4, "activation": "relu", "shared": False},
    "deep": {"ridge": 0, "hidden": (7, 5), "activation": "sigmoid", "context_scale": "sum"},
    "members": {"ridge": 4, "hidden": (6,), "n_seeds": 2},
}
HISTORIES: list[dict[int, float]] = [{}, {4: 5}, {3: 1, 9: 4, 17: 5, 22: 2, 31: 3}]


def predictor_of(kind: str) -> Predictor:
    """Trained on ratings in which three items have none."""
    ratings = synthetic(60, 40, 900, seed=3).ratings
    kept = ratings.select(~np.isin(ratings.items, (5, 11, 39)))
    model = CFNADE(side="user", epochs=3, n_threads=1, **KINDS[kind]).fit(kept)
    return model.predictor_


def asked(predictor: Predictor, items: Any, history: dict[int, float]) -> Any:
    """Pairs (place among items, level) of a history; places and ids of the other items."""
    ids = predictor.items.table[list(items)].tolist()
    stars = predictor.scale.values
    pairs = [(ids.index(item), stars.index(rating)) for item, rating in history.items()]
    rest = [place for place, item in enumerate(ids) if item not in history]
    return pairs, rest, [ids[place] for place in rest]
