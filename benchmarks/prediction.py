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
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.common import SEED, fastest, machine, save, unvisited
from cfnade.kernels.predict import expected_values
from cfnade.models import CFNADE
from cfnade.predictor import Predictor

COLUMNS, LEVELS, ROWS, CELLS = 17_770, 5, 2_000, 1_000_000
KNOWN, REQUESTS, BEST = 100, 1_000, 10


def cells_per_second(model: CFNADE, values: Tensor, threads: int) -> float:
    """Expected values of a million random cells of rows whose states are known."""
    generator = torch.Generator().manual_seed(SEED)
    state = torch.randn(ROWS, model.output_table.shape[2], generator=generator)
    rows = torch.randint(ROWS, (CELLS,), generator=generator)
    columns = torch.randint(COLUMNS, (CELLS,), generator=generator)
    table, bias = model.output_table.detach(), model.b.detach()

    def work() -> None:
        expected_values(state, table, bias, rows, columns, values, shared=True, threads=threads)

    return CELLS / min(fastest(work, 5))


def latencies(model: CFNADE) -> dict[str, float]:
    """Of Predictor.recommend for a new person's history, raw ids in and a frame out."""
    rng, times, predictor = np.random.default_rng(SEED), [], Predictor(unvisited(model, 1))
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
    model = CFNADE(columns=COLUMNS, levels=LEVELS, hidden=(500,), factors=50)
    model.initialise(torch.Generator().manual_seed(SEED))
    values = torch.arange(1.0, LEVELS + 1)
    found: dict[str, Any] = {
        "machine": machine(arguments.threads),
        "cells_per_second": cells_per_second(model, values, arguments.threads),
        "top10": latencies(model) | {"requests": REQUESTS, "ratings": KNOWN},
    }
    print(json.dumps(found))
    save("prediction", found)


if __name__ == "__main__":
    main()
