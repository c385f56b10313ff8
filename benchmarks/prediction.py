"""Predictions: cells per second, the top 10 of all Netflix titles, lists for everybody.

    python benchmarks/prediction.py [--threads 2]

Weights are random: the time does not depend on them. Cells are those of a model of the Netflix
shape (17,770 columns, K = 5, J = 50, H = 500). A request is the library's own call with a history
of 100 ratings, of that model and of one with a ridge part (20 dimensions, H = 100). Lists are the
top 20 for all users of data of the MovieLens 1M shape, at once and, beside it, one by one.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch

from cfnade.components.registry import component_axis, component_class

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.common import SEED, fastest, machine, save, unvisited
from cfnade._typing import IntArray
from cfnade.calibration.calibration import Calibration
from cfnade.components import Axis, Member
from cfnade.components.optimizers import member_network
from cfnade.components.registry import component_names
from cfnade.data.dataset import Dataset
from cfnade.data.synthetic import synthetic_like
from cfnade.fitted_model import FittedModel
from cfnade.inference.predictor import Predictor
from cfnade.inference.ranking_options import RankingOptions
from cfnade.inference.scorer import Scorer
from cfnade.models import CFNADEConfig, CFNADENetwork

COLUMNS, LEVELS, ROWS, CELLS = 17_770, 5, 2_000, 1_000_000
KNOWN, REQUESTS, BEST = 100, 1_000, 10
SHARE, LISTED, ALONE = 1.0, 20, 200


def cells_per_second(network: CFNADENetwork, threads: int) -> float:
    """Distributions of a million random cells of users with 100 known ratings each."""
    rng, fitted = np.random.default_rng(SEED), unvisited(network, 1)
    ratings = fitted.context.replace(
        users=np.repeat(np.arange(ROWS, dtype=np.int32), KNOWN),
        items=np.stack([rng.choice(COLUMNS, KNOWN, replace=False) for _ in range(ROWS)])
        .astype(np.int32)
        .ravel(),
        levels=rng.integers(0, LEVELS, ROWS * KNOWN).astype(np.uint8),
        user_ids=np.arange(ROWS),
    )
    scorer = Scorer(replace(fitted, context=ratings))
    users, items = rng.integers(0, ROWS, CELLS), rng.integers(0, COLUMNS, CELLS)
    torch.set_num_threads(threads)
    return CELLS / min(fastest(lambda: scorer.probabilities(users, items), 5))


def latencies(fitted: FittedModel) -> dict[str, float]:
    """Of Predictor.recommend for a new person's history, raw ids in and a frame out."""
    rng, times, predictor = np.random.default_rng(SEED), [], Predictor(fitted)
    for _ in range(REQUESTS):
        items = rng.choice(COLUMNS, KNOWN, replace=False).tolist()
        history = dict(zip(items, rng.integers(1, LEVELS + 1, KNOWN).tolist(), strict=True))
        start = time.perf_counter()
        users = predictor.resolve_user(history=history)
        predictor.recommend(users, RankingOptions(n=BEST)).to_frame()
        times.append(1e3 * (time.perf_counter() - start))
    warm = np.array(times[20:])
    return {"p50_ms": float(np.percentile(warm, 50)), "p99_ms": float(np.percentile(warm, 99))}


def with_ridge(plain: FittedModel) -> FittedModel:
    """A model of the same catalog as the recipes make it: a ridge part, honest for everybody."""
    return random_model("user", plain.context, plain.training_counts, hidden=(100,), ridge=20)


def random_model(
    side: str, context: Dataset, counts: Mapping[Axis, IntArray], **fields: Any
) -> FittedModel:
    """With weights of no meaning, personally calibrated."""
    components = {}
    for name in component_names(side, ridge=fields["ridge"]):
        component, axis = component_class(name), component_axis(name)
        components[name] = component(component.config_for(axis, context, fields), axis=axis)
    member, generator = Member(components), torch.Generator().manual_seed(SEED)
    with torch.no_grad():
        for parameter in member_network(member).parameters():
            parameter.normal_(0.0, 0.1, generator=generator)
        for fixed in member_network(member).buffers():
            fixed.uniform_(0.0, 0.1, generator=generator)
    calibration = Calibration(1.3, (), 0.5)
    return FittedModel((member,), side, context, dict(counts), calibration=calibration)


def recommend(predictor: Predictor, users: Any) -> pl.DataFrame:
    """Return the lists of users, raw ids in and a frame out."""
    ids, resolved = predictor.resolve_users(users)
    return predictor.recommend(resolved, RankingOptions(n=LISTED)).to_frame(ids)


def lists(side: str, hidden: int, ridge: int, threads: int) -> dict[str, Any]:
    """Seconds for everybody's list, at once and one by one: some people stand for all of these."""
    torch.set_num_threads(threads)
    data = synthetic_like("ml-1m", SEED, SHARE).ratings
    axes: tuple[Axis, ...] = ("item", "user") if side == "both" else ("item",)
    counts = {axis: np.maximum(data.level_counts(axis), 1) for axis in axes}
    predictor = Predictor(random_model(side, data, counts, hidden=(hidden,), ridge=ridge))
    people = data.user_ids
    some = people[:: max(1, len(people) // ALONE)]
    at_once = min(fastest(lambda: recommend(predictor, people), 3))
    alone = min(fastest(lambda: [recommend(predictor, [user]) for user in some], 1))
    alone *= len(people) / len(some)
    return {
        "model": f"{side}, H = {hidden}" + (f", ridge {ridge}" if ridge else ""),
        "people": len(people),
        "seconds": at_once,
        "one_by_one": alone,
        "ratio": alone / at_once,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    network = CFNADENetwork(CFNADEConfig(columns=COLUMNS, levels=LEVELS, hidden=(500,), factors=50))
    network.initialise(torch.Generator().manual_seed(SEED))
    plain = unvisited(network, 1)
    found: dict[str, Any] = {
        "machine": machine(arguments.threads),
        "cells_per_second": cells_per_second(network, arguments.threads),
        "top10": latencies(plain) | {"requests": REQUESTS, "ratings": KNOWN},
        "top10_ridge": latencies(with_ridge(plain)),
        "lists": [
            lists(*shape, arguments.threads) for shape in (("user", 100, 20), ("both", 500, 0))
        ],
    }
    print(json.dumps(found))
    save("prediction", found)


if __name__ == "__main__":
    main()
