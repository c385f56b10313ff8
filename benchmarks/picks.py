"""What people pick: an epoch of the choice's network against Cornac's VAECF, and lists for
everybody against implicit's ALS, each pair in one run.

    python benchmarks/picks.py ml-1m.zip [--threads 2] [--model FOLDER]

Needs cfnade[compare]. Writes results/picks.json and the tables of README.md. --model is a trained
folder of MovieLens 1M whose lists are timed; one is trained if it is left out.
"""

from __future__ import annotations

import argparse
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import cfnade
from benchmarks.common import machine, save, seconds
from cfnade.choice.nade_training import ChoiceSettings, ChoiceTrainer
from cfnade.choice.picks import Picks
from cfnade.data.ratings import Ratings
from cfnade.predictor.ranking import Rank

HIDDEN, BATCH, TOP = 300, 500, 20
_EPOCHS = 3


def our_epoch(likes: Ratings, threads: int) -> float:
    """Seconds of an epoch, the fastest of a few."""
    torch.set_num_threads(threads)
    settings = ChoiceSettings(hidden=HIDDEN, batch=BATCH)
    trainer = ChoiceTrainer(Picks.of(likes), 1, settings)
    return min(seconds(partial(trainer.epoch, number)) for number in range(_EPOCHS))


def vaecf_epoch(likes: Ratings, threads: int) -> float:
    """The same of Cornac's variational autoencoder with as many hidden units and people a batch."""
    from cornac.data import Dataset
    from cornac.models import VAECF

    torch.set_num_threads(threads)
    rows = zip(likes.users.tolist(), likes.items.tolist(), np.ones(len(likes)), strict=True)
    data = Dataset.from_uir(list(rows))
    sizes: dict[str, Any] = {"k": HIDDEN, "autoencoder_structure": [HIDDEN], "batch_size": BATCH}

    def fit(epochs: int) -> float:
        model = VAECF(n_epochs=epochs, likelihood="mult", seed=1, verbose=False, **sizes)
        return seconds(lambda: model.fit(data))

    return (fit(1 + _EPOCHS) - fit(1)) / _EPOCHS


def our_lists(model: cfnade.CFNADE, rank: Rank, threads: int) -> float:
    """Seconds of the top lists of every user."""
    torch.set_num_threads(threads)
    users = model.fitted_.context.user_ids
    model.recommend(users[:50], n=TOP, rank=rank)
    return min(seconds(lambda: model.recommend(users, n=TOP, rank=rank)) for _ in range(2))


def implicit_lists(likes: Ratings, factors: int, threads: int) -> float:
    """The same of implicit's ALS with so many factors, trained for one sweep."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from implicit.als import AlternatingLeastSquares
    from scipy.sparse import csr_matrix

    ones = np.ones(len(likes), np.float32)
    cells = csr_matrix((ones, (likes.users, likes.items)), shape=(likes.n_users, likes.n_items))
    als = AlternatingLeastSquares(factors=factors, iterations=1, num_threads=threads)
    als.fit(cells, show_progress=False)
    everyone = np.arange(likes.n_users)
    return min(seconds(lambda: als.recommend(everyone, cells, N=TOP)) for _ in range(2))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--model", help="a folder that CFNADE(side='user', lists=True) saved")
    arguments = parser.parse_args()
    threads, likes = arguments.threads, cfnade.load(arguments.data, likes=4)
    if arguments.model:
        model = cfnade.CFNADE.load(arguments.model)
    else:
        model = cfnade.CFNADE(side="user", lists=True, threads=threads).fit(arguments.data)
    found = {
        "machine": machine(threads),
        "epoch": {"ours": our_epoch(likes, threads), "vaecf": vaecf_epoch(likes, threads)},
        "hidden": HIDDEN,
        "batch": BATCH,
        "lists": {
            "expected": our_lists(model, "expected", threads),
            "picked": our_lists(model, "picked", threads),
            "implicit, 120 factors": implicit_lists(likes, 120, threads),
            "implicit, 300 factors": implicit_lists(likes, 300, threads),
        },
        "people": model.n_users_,
    }
    save("picks", found)


if __name__ == "__main__":
    main()
