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
from lenskit.data import ItemList, RecQuery, from_interactions_df
from lenskit.training import TrainingOptions


def answer(folder: Path) -> None:
    """Fit with each setting and predict all that is asked, for each number of ratings given."""
    job: dict[str, Any] = json.loads((folder / "settings.json").read_text())
    ask = dict(np.load(folder / "ask.npz"))
    frame = pd.DataFrame({name: ask[f"fit_{name}"] for name in ("user_id", "item_id", "rating")})
    data = from_interactions_df(frame)
    found: dict[str, list[Any]] = {given: [] for given in job["given"]}
    fit_s, predict_s = [], []
    for setting in job["settings"]:
        scorer = BiasedMFScorer(**setting)
        start = now()
        scorer.train(data, TrainingOptions(rng=job["seed"]))
        fit_s.append((now() - start).tolist())
        start = now()
        for given, of_settings in found.items():
            of_settings.append(predictions(scorer, ask, given))
        predict_s.append((now() - start).tolist())
    arrays: dict[str, Any] = {given: np.array(x) for given, x in found.items()}  # (settings, n)
    np.savez(folder / "answer.npz", **arrays)
    (folder / "seconds.json").write_text(json.dumps({"fit": fit_s, "predict": predict_s}))


def now() -> Any:
    """The clock and the processor's seconds. Returns (2,)."""
    return np.array([time.perf_counter(), time.process_time()])


def predictions(scorer: Any, ask: dict[str, Any], given: str) -> Any:
    """A query a person, with a history and without an id. Returns (n,)."""
    offsets, rows = ask[f"{given}_offsets"], ask[f"{given}_asked_row"]
    items, ratings = (np.split(ask[f"{given}_{x}"], offsets[1:-1]) for x in ("item", "rating"))
    ends = np.cumsum(np.bincount(rows, minlength=len(items)))[:-1]
    asked = np.split(ask[f"{given}_asked_item"], ends)
    told = zip(items, ratings, asked, strict=True)
    return np.concatenate([fold_in(scorer, *person) for person in told])


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
