"""LensKit's biased ALS with fold-in of new people; runs in LensKit's own environment.

    PYTHON_WITH_LENSKIT benchmarks/lenskit_als.py FOLDER

Reads FOLDER/ask.npz and FOLDER/settings.json as new_users.py writes them, and writes answer.npz and
seconds.json beside them. It is never told the ratings that it has to predict.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from lenskit.als import BiasedMFScorer
from lenskit.data import (
    ItemList,
    RecQuery,
    from_interactions_df,
)
from lenskit.training import TrainingOptions


def answer(folder: Path) -> None:
    """Fit with each setting and predict all that is asked from the first so many given ratings."""
    job: dict[str, Any] = json.loads((folder / "settings.json").read_text())
    ask = dict(np.load(folder / "ask.npz"))
    frame = pd.DataFrame({name: ask[f"fit_{name}"] for name in ("user_id", "item_id", "rating")})
    data = from_interactions_df(frame)
    found, fit_s, predict_s = [], [], []
    for setting in job["settings"]:
        scorer = BiasedMFScorer(**setting)
        start = time.perf_counter()
        scorer.train(data, TrainingOptions(rng=job["seed"]))
        fit_s.append(time.perf_counter() - start)
        start = time.perf_counter()
        found.append([predictions(scorer, ask, given) for given in job["given"]])
        predict_s.append(time.perf_counter() - start)
    np.savez(folder / "answer.npz", predictions=np.array(found))  # (settings, given, n)
    (folder / "seconds.json").write_text(json.dumps({"fit": fit_s, "predict": predict_s}))


def predictions(scorer: Any, ask: dict[str, Any], given: int) -> Any:
    """A query a person, with a history and without an id. Returns (n,)."""
    ends = np.cumsum(np.bincount(ask["asked_row"], minlength=len(ask["given_item"])))[:-1]
    told = zip(ask["given_item"], ask["given_rating"], strict=True)
    asked = np.split(ask["asked_item"], ends)
    return np.concatenate(
        [
            fold_in(scorer, items[:given], ratings[:given], wanted)
            for (items, ratings), wanted in zip(told, asked, strict=True)
        ]
    )


def fold_in(scorer: Any, items: Any, ratings: Any, wanted: Any) -> Any:
    history = ItemList(item_ids=items, rating=ratings)
    asked = ItemList(item_ids=wanted)
    scores = scorer(RecQuery(history_items=history), asked).scores()
    # An item without training ratings has no embedding: LensKit's own fallback is the bias model.
    biases, _ = scorer.bias.compute_for_items(asked, None, history)
    return np.where(np.isnan(scores), biases, scores)


if __name__ == "__main__":
    logging.disable(logging.INFO)
    answer(Path(sys.argv[1]))
