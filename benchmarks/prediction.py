"""Predictions: cells per second, and the top 10 of all Netflix titles for a new user.

    python benchmarks/prediction.py [--threads 2]

The model has the Netflix shape (17,770 columns, K = 5, J = 50, H = 500) and random weights: the
time does not depend on them. A request is the library's own call with a history of 100 ratings.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.common import SEED, fastest, machine, save, unvisited
from cfnade.models import CFNADENetwork
from cfnade.predictor import Predictor
from cfnade.scorer import Scorer

COLUMNS, LEVELS, ROWS, CELLS = 17_770, 5, 2_000, 1_000_000
KNOWN, REQUESTS, BEST = 100, 1_000, 10


def cells_per_second(network: CFNADENetwork, threads: int) -> float:
    """Distributions of a million random cells of users with 100 known ratings each."""
    rng, fitted = np.random.default_rng(SEED), unvisited(network, 1)
    ratings = replace(
        fitted.context,
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


def latencies(network: CFNADENetwork) -> dict[str, float]:
    """Of Predictor.recommend for a new person's history, raw ids in and a frame out."""
    rng, times, predictor = np.random.default_rng(SEED), [], Predictor(unvisited(network, 1))
    for _ in range(REQUESTS):
        items = rng.choice(COLUMNS, KNOWN, replace=False).tolist()
        history = dict(zip(items, rng.integers(1, LEVELS + 1, KNOWN).tolist(), strict=True))
        start = time.perf_counter()
        predictor.recommend(history=history, n=BEST)
        times.append(1e3 * (time.perf_counter() - start))
    warm = np.array(times[20:])
    return {"p50_ms": float(np.percentile(warm, 50)), "p99_ms": float(np.percentile(warm, 99))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    network = CFNADENetwork(columns=COLUMNS, levels=LEVELS, hidden=(500,), factors=50)
    network.initialise(torch.Generator().manual_seed(SEED))
    found: dict[str, Any] = {
        "machine": machine(arguments.threads),
        "cells_per_second": cells_per_second(network, arguments.threads),
        "top10": latencies(network) | {"requests": REQUESTS, "ratings": KNOWN},
    }
    print(json.dumps(found))
    save("prediction", found)


if __name__ == "__main__":
    main()
