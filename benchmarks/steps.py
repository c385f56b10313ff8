"""Seconds of every kernel in three steps on one thread: a profile for a machine that is not quiet.

    python benchmarks/steps.py [--as NAME] [--only ML-1M ...]

Processor seconds are counted, and of every step the fastest of some. With PYTHONPATH at another
version's sources, and another name, both stand beside each other in the table. For a processor with
AVX2 set NUMBA_CPU_NAME=znver3 and NUMBA_CPU_FEATURES to its features.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.common import RESULTS, SEED, Case, machine, measure_speed, save
from benchmarks.kernel_times import profile
from benchmarks.limit import limit
from cfnade.data.synthetic import PRESETS, synthetic
from cfnade.kernels.jit import HAS_AVX512

STEPS, REPEATS = 3, 5
FACTORED: dict[str, Any] = {"factors": 50, "sparse": True}


def case_of(name: str) -> Case:
    """As many rows of a data set's shape as three steps take."""
    users, items, ratings, scale = PRESETS[name]
    rows = STEPS * 512
    if name == "ml-1m":
        drawn = synthetic(users, rows, ratings * rows // items, seed=SEED, scale=scale)
        return Case("ML-1M item-based, H=500", drawn.ratings.rows("item"), name)
    drawn = synthetic(rows, items, ratings * rows // users, seed=SEED, scale=scale)
    title = {"ml-10m": "ML-10M user-based, J=50", "netflix": "Netflix user-based, J=50"}[name]
    return Case(title, drawn.ratings.rows("user"), name, **FACTORED)


def _step(sampler: Any, engine: Any, rows: Any, number: int) -> None:
    engine.step(sampler.sample(rows, seed=SEED, step=number))


def measure(case: Case) -> dict[str, Any]:
    sampler, engine = case.sampler(1), case.engine(1)
    spent: dict[str, float] = {}
    for number, rows in enumerate(case.batches(0)):
        step = partial(_step, sampler, engine, rows, number)
        step()
        found = [profile(step, time.thread_time) for _ in range(REPEATS)]
        for part in found[0]:
            spent[part] = spent.get(part, 0.0) + min(one[part] for one in found)
    best, _ = limit(case, measure_speed(1, time.thread_time), 1)
    total = sum(spent.values())
    return {"case": case.name, "spent": spent, "total": total, "distance": total / best}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--as", dest="name", default="now", help="what the figures are called")
    parser.add_argument("--only", nargs="+", choices=list(PRESETS), default=list(PRESETS))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    file = RESULTS / "steps.json"
    runs = json.loads(file.read_text())["runs"] if file.exists() else []
    for name in arguments.only:
        run = measure(case_of(name)) | {"as": arguments.name, "wide": HAS_AVX512}
        same = ("case", "as", "wide")
        runs = [old for old in runs if any(old[key] != run[key] for key in same)] + [run]
        print(json.dumps(run), flush=True)
    save("steps", {"machine": machine(1), "runs": runs})


if __name__ == "__main__":
    main()
