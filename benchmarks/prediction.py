"""Speed of predictions and top-n lists.

    python benchmarks/prediction.py ratings [--threads 2]
    python benchmarks/prediction.py implicit ml-1m.zip [--model FOLDER] [--joint FOLDER]
    python benchmarks/prediction.py all-users [480189] [--threads 2]

ratings: probabilities of known pairs, the top 10 of all Netflix titles for a new user, and lists of
all users. Weights are random: the time does not depend on them. Pairs are those of a model of the
Netflix shape (17,770 columns, K = 5, J = 50, H = 500). A request is the library's own call with a
history of 100 ratings, of that model and of one with a ridge component (20 dimensions, H = 100).
Lists are the top 20 of all users of data of the MovieLens 1M shape, in one call and one by one.

implicit: an epoch of the set NADE in alternation with Cornac's VAECF, and lists of all users beside
implicit's ALS (needs cfnade[compare]). --model is a model of MovieLens 1M that
CFNADE(side='user', learn_interactions=True) saved; one is trained if it is omitted. --joint is one
with side='both'.

all-users: the top 20 of all users of an interaction model of Netflix's size with random weights,
and the memory that it takes.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import cfnade
from benchmarks.common import SEED, fastest, machine, model_without_users, save, seconds
from cfnade._typing import IntArray
from cfnade.calibration.calibration import Calibration
from cfnade.components import Axis, Member
from cfnade.components.optimizers import member_network
from cfnade.components.registry import component_axis, component_class, component_names
from cfnade.data.dataset import Dataset, Interactions
from cfnade.data.synthetic import synthetic_like
from cfnade.fitted_model import FittedModel, count_training_ratings
from cfnade.implicit import Ease, InteractionModel, InteractionRows, Popularity, SetNade
from cfnade.implicit.base import FitCache
from cfnade.implicit.low_rank import RidgeConfig
from cfnade.implicit.set_nade_training import SetNadeSettings, training_loop
from cfnade.inference.predictor import Predictor
from cfnade.inference.ranking_options import RankBy, RankingOptions
from cfnade.inference.scorer import Scorer
from cfnade.models import CFNADEConfig, CFNADENetwork
from cfnade.models.config import SetNADEConfig
from cfnade.models.set_nade import SetNADENetwork
from cfnade_baselines.run_fit import peak_mb

COLUMNS, LEVELS, ROWS, PAIRS = 17_770, 5, 2_000, 1_000_000
HISTORY, REQUESTS, TOP_REQUEST, TOP_ALL = 100, 1_000, 10, 20
SCALE_DOWN, N_SINGLE = 1.0, 200
HIDDEN, BATCH, EPOCHS, REPEATS = 300, 500, 3, 5
INTERACTIONS_PER_USER = 117
"""Of Netflix: ratings of 4 and 5."""
RANK_BY: tuple[RankBy, ...] = ("prediction", "interaction")


# -- ratings ---------------------------------------------------------------------------------------


def pairs_per_second(network: CFNADENetwork, threads: int) -> float:
    """Return the speed of distributions for random pairs of users with 100 ratings each."""
    rng, fitted = np.random.default_rng(SEED), model_without_users(network, 1)
    ratings = fitted.context.replace(
        users=np.repeat(np.arange(ROWS, dtype=np.int32), HISTORY),
        items=np.stack([rng.choice(COLUMNS, HISTORY, replace=False) for _ in range(ROWS)])
        .astype(np.int32)
        .ravel(),
        levels=rng.integers(0, LEVELS, ROWS * HISTORY).astype(np.uint8),
        user_ids=np.arange(ROWS),
    )
    scorer = Scorer(replace(fitted, context=ratings))
    users, items = rng.integers(0, ROWS, PAIRS), rng.integers(0, COLUMNS, PAIRS)
    torch.set_num_threads(threads)
    return PAIRS / min(fastest(lambda: scorer.probabilities(users, items), 5))


def latencies(fitted: FittedModel) -> dict[str, float]:
    """Time Predictor.recommend for histories of new users, raw ids in and a frame out."""
    rng, times, predictor = np.random.default_rng(SEED), [], Predictor(fitted)
    for _ in range(REQUESTS):
        items = rng.choice(COLUMNS, HISTORY, replace=False).tolist()
        history = dict(zip(items, rng.integers(1, LEVELS + 1, HISTORY).tolist(), strict=True))
        start = time.perf_counter()
        users = predictor.resolve_user(history=history)
        predictor.recommend(users, RankingOptions(n=TOP_REQUEST)).to_frame()
        times.append(1e3 * (time.perf_counter() - start))
    warm = np.array(times[20:])
    return {"p50_ms": float(np.percentile(warm, 50)), "p99_ms": float(np.percentile(warm, 99))}


def with_ridge(nade: FittedModel) -> FittedModel:
    """Return a model of the same catalog as recipes train it, with a ridge component."""
    return random_model("user", nade.context, nade.training_counts, hidden=(100,), ridge=20)


def random_model(
    side: str, context: Dataset, counts: Mapping[Axis, IntArray], **fields: Any
) -> FittedModel:
    """Return a model with random weights and per-user calibration."""
    components = {}
    for name in component_names(side, ridge=fields["ridge"]):
        component, axis = component_class(name), component_axis(name)
        components[name] = component(component.config_for(axis, context, fields), axis=axis)
    member, generator = Member(components), torch.Generator().manual_seed(SEED)
    with torch.no_grad():
        for parameter in member_network(member).parameters():
            parameter.normal_(0.0, 0.1, generator=generator)
        for buffer in member_network(member).buffers():
            buffer.uniform_(0.0, 0.1, generator=generator)
    calibration = Calibration(1.3, (), 0.5)
    return FittedModel((member,), side, context, dict(counts), calibration=calibration)


def recommend(predictor: Predictor, users: Any) -> pl.DataFrame:
    """Return the lists of users, raw ids in and a frame out."""
    ids, resolved = predictor.resolve_users(users)
    return predictor.recommend(resolved, RankingOptions(n=TOP_ALL)).to_frame(ids)


def lists(side: str, hidden: int, ridge: int, threads: int) -> dict[str, Any]:
    """Time the lists of all users in one call and, extrapolated from a sample, one by one."""
    torch.set_num_threads(threads)
    data = synthetic_like("ml-1m", SEED, SCALE_DOWN).ratings
    axes: tuple[Axis, ...] = ("item", "user") if side == "both" else ("item",)
    counts = {axis: np.maximum(data.level_counts(axis), 1) for axis in axes}
    predictor = Predictor(random_model(side, data, counts, hidden=(hidden,), ridge=ridge))
    users = data.user_ids
    sample = users[:: max(1, len(users) // N_SINGLE)]
    batched = min(fastest(lambda: recommend(predictor, users), 3))
    single = min(fastest(lambda: [recommend(predictor, [user]) for user in sample], 1))
    single *= len(users) / len(sample)
    return {
        "model": f"{side}, H = {hidden}" + (f", ridge {ridge}" if ridge else ""),
        "people": len(users),
        "seconds": batched,
        "one_by_one": single,
        "ratio": single / batched,
    }


def run_ratings(arguments: argparse.Namespace) -> None:
    network = CFNADENetwork(CFNADEConfig(columns=COLUMNS, levels=LEVELS, hidden=(500,), factors=50))
    network.initialise(torch.Generator().manual_seed(SEED))
    nade = model_without_users(network, 1)
    figures: dict[str, Any] = {
        "machine": machine(arguments.threads),
        "cells_per_second": pairs_per_second(network, arguments.threads),
        "top10": latencies(nade) | {"requests": REQUESTS, "ratings": HISTORY},
        "top10_ridge": latencies(with_ridge(nade)),
        "lists": [
            lists(*shape, arguments.threads) for shape in (("user", 100, 20), ("both", 500, 0))
        ],
    }
    print(json.dumps(figures))
    save("prediction", figures)


# -- implicit feedback -----------------------------------------------------------------------------


def set_nade_epoch(likes: Dataset, threads: int) -> float:
    """Return the seconds of an epoch, the fastest of a few."""
    torch.set_num_threads(threads)
    settings = SetNadeSettings(hidden=HIDDEN, batch=BATCH)
    loop = training_loop(InteractionRows.from_ratings(likes), settings)
    return min(seconds(partial(loop.run, number + 1)) for number in range(EPOCHS))


def vaecf_epoch(likes: Dataset, threads: int) -> float:
    """Return those of Cornac's variational autoencoder with the same hidden units and batch."""
    from cornac.data import Dataset
    from cornac.models import VAECF

    torch.set_num_threads(threads)
    rows = zip(likes.users.tolist(), likes.items.tolist(), np.ones(len(likes)), strict=True)
    data = Dataset.from_uir(list(rows))
    sizes: dict[str, Any] = {"k": HIDDEN, "autoencoder_structure": [HIDDEN], "batch_size": BATCH}

    def fit(epochs: int) -> float:
        model = VAECF(n_epochs=epochs, likelihood="mult", seed=1, verbose=False, **sizes)
        return seconds(lambda: model.fit(data))

    return (fit(1 + EPOCHS) - fit(1)) / EPOCHS


def lists_seconds(model: cfnade.CFNADE, rank: RankBy, threads: int) -> float:
    """Return the seconds of the top lists of every user."""
    torch.set_num_threads(threads)
    users = model.fitted_.context.user_ids
    model.recommend(users[:50], n=TOP_ALL, rank_by=rank)
    return _fastest(lambda: model.recommend(users, n=TOP_ALL, rank_by=rank))


def _fastest(work: Callable[[], Any]) -> float:
    return min(seconds(work) for _ in range(REPEATS))


def als_lists_seconds(likes: Dataset, factors: int, threads: int) -> float:
    """Return those of implicit's ALS, trained for one sweep."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from implicit.als import AlternatingLeastSquares
    from scipy.sparse import csr_matrix

    ones = np.ones(len(likes), np.float32)
    matrix = csr_matrix((ones, (likes.users, likes.items)), shape=(likes.n_users, likes.n_items))
    als = AlternatingLeastSquares(factors=factors, iterations=1, num_threads=threads)
    als.fit(matrix, show_progress=False)
    all_users = np.arange(likes.n_users)
    return _fastest(lambda: als.recommend(all_users, matrix, N=TOP_ALL))


def run_implicit(arguments: argparse.Namespace) -> None:
    threads, likes = arguments.threads, cfnade.load(arguments.data, min_rating=4)
    if arguments.model:
        model = cfnade.CFNADE.load(arguments.model)
    else:
        model = cfnade.CFNADE(side="user", learn_interactions=True, n_threads=threads)
        model.fit(arguments.data)
    models = {"user-based": model}
    if arguments.joint:
        models["joint"] = cfnade.CFNADE.load(arguments.joint)
    lists = {
        f"{name}, {rank_by}": lists_seconds(fitted, rank_by, threads)
        for name, fitted in models.items()
        for rank_by in RANK_BY
    }
    lists |= {f"implicit, {n} factors": als_lists_seconds(likes, n, threads) for n in (120, 300)}
    epoch = {"ours": set_nade_epoch(likes, threads), "vaecf": vaecf_epoch(likes, threads)}
    figures = {"machine": machine(threads), "epoch": epoch, "hidden": HIDDEN, "batch": BATCH}
    save("picks", figures | {"lists": lists, "people": model.n_users_})


# -- all users -------------------------------------------------------------------------------------


def all_users_lists(n_users: int, threads: int) -> dict[str, Any]:
    """Return the seconds and megabytes of the lists of `n_users` users, of 17,770 items."""
    torch.set_num_threads(threads)
    rng = np.random.default_rng(1)
    popularity = 1 / np.arange(20, COLUMNS + 20)
    counts = rng.geometric(1 / INTERACTIONS_PER_USER, n_users).clip(1, 2000)
    users = np.repeat(np.arange(n_users, dtype=np.int32), counts)
    edges = np.cumsum(popularity / popularity.sum())
    items = np.searchsorted(edges, rng.random(len(users))).clip(0, COLUMNS - 1).astype(np.int32)
    pairs = np.unique(users.astype(np.int64) * COLUMNS + items)
    users, items = (part.astype(np.int32) for part in np.divmod(pairs, COLUMNS))
    context = Interactions(
        users,
        items,
        np.arange(n_users),
        np.arange(COLUMNS),
    )
    network = SetNADENetwork(
        SetNADEConfig(columns=COLUMNS, levels=1, hidden=500, mean_count=INTERACTIONS_PER_USER)
    )
    with torch.no_grad():
        for tensor in network.parameters():
            tensor.uniform_(-0.05, 0.05)
    table = torch.rand(COLUMNS, COLUMNS) * 0.01
    ease = Ease(RidgeConfig(columns=COLUMNS, penalty=1.0), {"B": table.numpy()})
    rows = InteractionRows.from_ratings(context)
    baseline = Popularity.fit(rows, {}, seed=0, cache=FitCache())
    components = {"set-nade": SetNade.of_network(network), "ease": ease, "popularity": baseline}
    weights = {"set-nade": 0.3, "ease": 0.7, "popularity": 0.0}
    model = InteractionModel(components, weights)
    training_counts = count_training_ratings(("user",), context)
    fitted = FittedModel((), "picks", context, training_counts, interaction_model=model)
    predictor, options = Predictor(fitted), RankingOptions(n=TOP_ALL)
    predictor.recommend(predictor.scorer.stored_users(np.arange(6)), options)
    all_users = predictor.scorer.stored_users(np.arange(context.n_users))
    took = seconds(lambda: predictor.recommend(all_users, options).to_frame(context.user_ids))
    return {"people": n_users, "picks": len(users), "seconds": took, "peak_mb": peak_mb()}


def run_all_users(arguments: argparse.Namespace) -> None:
    figures = all_users_lists(arguments.users, arguments.threads)
    save("picks_everybody", {"machine": machine(arguments.threads), **figures})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    ratings = commands.add_parser("ratings", help="models of ratings")
    implicit = commands.add_parser("implicit", help="models of interactions, beside libraries")
    implicit.add_argument("data")
    implicit.add_argument("--model", help="a saved user-based model")
    implicit.add_argument("--joint", help="a saved joint model")
    all_users = commands.add_parser("all-users", help="lists of all users of Netflix's size")
    all_users.add_argument("users", type=int, nargs="?", default=480_189)
    for command, run in (
        (ratings, run_ratings),
        (implicit, run_implicit),
        (all_users, run_all_users),
    ):
        command.add_argument("--threads", type=int, default=torch.get_num_threads())
        command.set_defaults(run=run)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
