"""Implicit feedback: an epoch of the set NADE against Cornac's VAECF, and top-n lists of all users
against implicit's ALS, each pair in one run.

    python benchmarks/picks.py ml-1m.zip [--threads 2] [--model FOLDER] [--joint FOLDER]
                               [--everybody 480189]

--everybody times the top 20 of so many users from an interaction model of Netflix's size with
random weights, and the memory that it takes.

Needs cfnade[compare]. Writes results/picks.json and the tables of README.md. --model is a trained
folder of MovieLens 1M whose lists are timed; one is trained if it is left out. --joint is another,
of a joint model.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import cfnade
from benchmarks.common import machine, save, seconds
from cfnade.data.dataset import Dataset, Interactions
from cfnade.fitted_model import FittedModel, count_training_ratings
from cfnade.implicit import Ease, InteractionModel, InteractionRows, Popularity, SetNade
from cfnade.implicit.base import FitCache
from cfnade.implicit.low_rank import RidgeConfig
from cfnade.implicit.set_nade_training import SetNadeSettings, training_loop
from cfnade.inference.predictor import Predictor
from cfnade.inference.ranking_options import RankBy, RankingOptions
from cfnade.models.config import SetNADEConfig
from cfnade.models.set_nade import SetNADENetwork
from cfnade_baselines.run_fit import peak_mb

HIDDEN, BATCH, TOP = 300, 500, 20
ITEMS, PICKS = 17_770, 117
"""Of Netflix: items, and likes a person."""
_EPOCHS = 3
_TIMES = 5  # the fastest counts, of ours and of theirs
_RANKS: tuple[RankBy, ...] = ("prediction", "interaction")


def our_epoch(likes: Dataset, threads: int) -> float:
    """Seconds of an epoch, the fastest of a few."""
    torch.set_num_threads(threads)
    settings = SetNadeSettings(hidden=HIDDEN, batch=BATCH)
    loop = training_loop(InteractionRows.from_ratings(likes), settings)
    return min(seconds(partial(loop.run, number + 1)) for number in range(_EPOCHS))


def vaecf_epoch(likes: Dataset, threads: int) -> float:
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


def our_lists(model: cfnade.CFNADE, rank: RankBy, threads: int) -> float:
    """Seconds of the top lists of every user."""
    torch.set_num_threads(threads)
    users = model.fitted_.context.user_ids
    model.recommend(users[:50], n=TOP, rank_by=rank)
    return _fastest(lambda: model.recommend(users, n=TOP, rank_by=rank))


def _fastest(work: Callable[[], Any]) -> float:
    return min(seconds(work) for _ in range(_TIMES))


def implicit_lists(likes: Dataset, factors: int, threads: int) -> float:
    """The same of implicit's ALS with so many factors, trained for one sweep."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from implicit.als import AlternatingLeastSquares
    from scipy.sparse import csr_matrix

    ones = np.ones(len(likes), np.float32)
    cells = csr_matrix((ones, (likes.users, likes.items)), shape=(likes.n_users, likes.n_items))
    als = AlternatingLeastSquares(factors=factors, iterations=1, num_threads=threads)
    als.fit(cells, show_progress=False)
    everyone = np.arange(likes.n_users)
    return _fastest(lambda: als.recommend(everyone, cells, N=TOP))


def everybody(people: int, threads: int) -> dict[str, Any]:
    """Lists of so many people, of 17,770 items: seconds and megabytes."""
    torch.set_num_threads(threads)
    rng = np.random.default_rng(1)
    chances = 1 / np.arange(20, ITEMS + 20)
    counts = rng.geometric(1 / PICKS, people).clip(1, 2000)
    users = np.repeat(np.arange(people, dtype=np.int32), counts)
    edges = np.cumsum(chances / chances.sum())
    items = np.searchsorted(edges, rng.random(len(users))).clip(0, ITEMS - 1).astype(np.int32)
    cells = np.unique(users.astype(np.int64) * ITEMS + items)
    users, items = (part.astype(np.int32) for part in np.divmod(cells, ITEMS))
    context = Interactions(
        users,
        items,
        np.arange(people),
        np.arange(ITEMS),
    )
    network = SetNADENetwork(SetNADEConfig(columns=ITEMS, levels=1, hidden=500, usual=PICKS))
    with torch.no_grad():
        for tensor in network.parameters():
            tensor.uniform_(-0.05, 0.05)
    table = torch.rand(ITEMS, ITEMS) * 0.01
    ease = Ease(RidgeConfig(columns=ITEMS, penalty=1.0), {"B": table.numpy()})
    rows = InteractionRows.from_ratings(context)
    popularity = Popularity.fit(rows, {}, seed=0, cache=FitCache())
    components = {"set-nade": SetNade.of_network(network), "ease": ease, "popularity": popularity}
    weights = {"set-nade": 0.3, "ease": 0.7, "popularity": 0.0}
    model = InteractionModel(components, weights)
    counted = count_training_ratings(("user",), context)
    fitted = FittedModel((), "picks", context, counted, interaction_model=model)
    predictor, options = Predictor(fitted), RankingOptions(n=TOP)
    predictor.recommend(predictor.scorer.stored_users(np.arange(6)), options)
    all_users = predictor.scorer.stored_users(np.arange(context.n_users))
    took = seconds(lambda: predictor.recommend(all_users, options).to_frame(context.user_ids))
    return {"people": people, "picks": len(users), "seconds": took, "peak_mb": peak_mb()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument(
        "--model", help="a folder that CFNADE(side='user', learn_interactions=True) saved"
    )
    parser.add_argument(
        "--joint", help="a folder that CFNADE(side='both', learn_interactions=True) saved"
    )
    parser.add_argument("--everybody", type=int, help="users of a model of Netflix's size")
    arguments = parser.parse_args()
    if arguments.everybody:
        found = everybody(arguments.everybody, arguments.threads)
        save("picks_everybody", {"machine": machine(arguments.threads), **found})
        return
    threads, likes = arguments.threads, cfnade.load(arguments.data, min_rating=4)
    if arguments.model:
        model = cfnade.CFNADE.load(arguments.model)
    else:
        model = cfnade.CFNADE(side="user", learn_interactions=True, n_threads=threads).fit(
            arguments.data
        )
    models = {"user-based": model}
    if arguments.joint:
        models["joint"] = cfnade.CFNADE.load(arguments.joint)
    ours = {
        f"{name}, {rank}": our_lists(one, rank, threads)
        for name, one in models.items()
        for rank in _RANKS
    }
    found = {
        "machine": machine(threads),
        "epoch": {"ours": our_epoch(likes, threads), "vaecf": vaecf_epoch(likes, threads)},
        "hidden": HIDDEN,
        "batch": BATCH,
        "lists": ours
        | {
            "implicit, 120 factors": implicit_lists(likes, 120, threads),
            "implicit, 300 factors": implicit_lists(likes, 300, threads),
        },
        "people": model.n_users_,
    }
    save("picks", found)


if __name__ == "__main__":
    main()
