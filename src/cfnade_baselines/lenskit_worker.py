"""Fits LensKit's biased ALS; runs in LensKit's environment, so it imports nothing of cfnade.

python lenskit_worker.py FOLDER reads FOLDER/job.json and ratings.npz and writes learnt.npz.
"""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import Any

import numpy as np


def fit(folder: Path) -> None:
    """Learn biases and factors, by LensKit's numbers of users and items."""
    import pandas as pd  # type: ignore[import-untyped,unused-ignore]
    from lenskit.als import BiasedMFScorer  # type: ignore[import-not-found,unused-ignore]
    from lenskit.data import from_interactions_df  # type: ignore[import-not-found,unused-ignore]
    from lenskit.training import TrainingOptions  # type: ignore[import-not-found,unused-ignore]

    job: dict[str, Any] = json.loads((folder / "job.json").read_text())
    with np.load(folder / "ratings.npz", allow_pickle=False) as ratings:
        frame = pd.DataFrame(
            {"user_id": ratings["users"], "item_id": ratings["items"], "rating": ratings["values"]}
        )
    data = from_interactions_df(frame)
    scorer = BiasedMFScorer(
        embedding_size=job["factors"],
        epochs=job["epochs"],
        regularization={"user": job["user_regularisation"], "item": job["item_regularisation"]},
        damping=job["damping"],
    )
    scorer.train(data, TrainingOptions(rng=job["seed"]))
    users, biases = _solved_again(scorer, frame)
    learnt = {
        "mean": scorer.bias.global_bias,
        "users": scorer.users.ids(),
        "items": scorer.items.ids(),
        "user_biases": biases,
        "item_biases": scorer.bias.item_biases,
        "user_factors": users,
        "item_factors": scorer.item_embeddings,
    }
    np.savez(folder / "learnt.npz", **learnt)


def _solved_again(scorer: Any, frame: Any) -> tuple[Any, Any]:
    """Each user solved for from the final items, as LensKit does for a user with a history."""
    from lenskit.data import ItemList

    factors = np.zeros_like(scorer.user_embeddings)
    biases = np.zeros(len(factors))
    for user, rated in frame.groupby("user_id"):
        history = ItemList(item_ids=rated["item_id"].to_numpy(), rating=rated["rating"].to_numpy())
        number = scorer.users.number(user)
        factors[number], biases[number] = scorer.new_user_embedding(number, history)
    return factors, biases


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    fit(Path(sys.argv[1]))
