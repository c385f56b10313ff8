"""The figure we watch: ML-1M item-based, H = 500, ours against the dense way, in under 50 s.

    python benchmarks/quick.py [ml-1m.zip] [--threads 2]

Prints one JSON line. Without a file the ratings are made up, with the shape of ML-1M.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.common import (
    Case,
    alternate,
    measure_speed,
    our_epoch,
    rival_batches,
    train_rows,
)
from benchmarks.limit import limit
from benchmarks.rivals import dense_step

REPEATS = 3


def measure(case: Case, threads: int) -> dict[str, Any]:
    """Time an epoch of ours and a batch of the dense way in turn; the ratio is of the fastest."""
    dense_batch = rival_batches(case, dense_step, threads, REPEATS + 1)
    works = {"ours": our_epoch(case, threads), "dense": dense_batch}
    torch.set_num_threads(threads)
    times = alternate(works, REPEATS)
    ours, dense = min(times["ours"]), min(times["dense"]) * len(case.batches(0))
    best, _ = limit(case, measure_speed(threads), threads)
    return {
        "ours_s": round(ours, 4),
        "dense_s": round(dense, 2),
        "ratio_to_dense": round(dense / ours, 1),
        "distance_to_limit": round(ours / best, 2),
        "dense_batches_timed": REPEATS,
        "threads": threads,
        "data": case.source,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="?", help="ml-1m.zip; made-up ratings if left out")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    rows, source = train_rows(arguments.data, "ml-1m", "item")
    case = Case("ML-1M item-based, H=500, 1 layer", rows, source)
    print(json.dumps(measure(case, arguments.threads)))


if __name__ == "__main__":
    main()
