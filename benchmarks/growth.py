"""How the time of an epoch grows: with ratings, H, K, J, layers and threads.

    python benchmarks/growth.py [--threads 2]

One quantity changes at a time, on made-up ratings; the others stay at 4,000 × 3,000, 400,000
ratings, K = 5, H = 200, one layer, all columns updated.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.common import (
    SEED,
    Case,
    alternate,
    fastest,
    machine,
    measure_speed,
    our_epoch,
    save,
)
from cfnade.data.csr import CsrRows
from cfnade.data.synthetic import synthetic


def made_up(ratings: int = 400_000, levels: int = 5) -> CsrRows:
    return synthetic(4_000, 3_000, ratings, seed=SEED, levels=levels).ratings.rows("user")


def cases() -> Iterator[tuple[str, float, Case]]:
    """(what changes, its value, the case)."""
    source, base = "synthetic", made_up()
    for ratings in (200_000, 400_000, 800_000, 1_600_000):
        # Only touched columns and factors, so that time is the ratings' alone.
        case = Case("", made_up(ratings), source, factors=50, sparse=True)
        yield "ratings", ratings, case
    for hidden in (100, 200, 400, 800):
        yield "H", hidden, Case("", base, source, hidden=(hidden,))
    for levels in (2, 5, 10, 20):
        yield "K", levels, Case("", made_up(levels=levels), source, hidden=(200,))
    for factors in (25, 50, 100, 200):
        yield "J", factors, Case("", base, source, factors=factors)
    for layers in (1, 2, 3, 4):
        yield "layers", layers, Case("", base, source, hidden=(200,) * layers)


def thread_ratios(threads: int) -> dict[str, Any]:
    """One thread against several, timed in turn: bound by computing, by memory, and the machine."""
    rows = made_up(1_600_000)
    bound_by_compute = Case("", rows, "synthetic", factors=100, sparse=True, batch=2000)
    bound_by_memory = Case("", made_up(100_000), "synthetic", hidden=(500,), batch=256)
    found: dict[str, Any] = {}
    for name, case in (("compute", bound_by_compute), ("memory", bound_by_memory)):
        works = {"one_s": our_epoch(case, 1), "all_s": our_epoch(case, threads)}
        times = {key: min(taken) for key, taken in alternate(works, 3).items()}
        found[name] = times | {"ratio": times["one_s"] / times["all_s"]}
    one, several = measure_speed(1), measure_speed(threads)
    found["machine"] = {
        "memory_ratio": several.bytes_per_second / one.bytes_per_second,
        "matmul_ratio": several.operations_per_second / one.operations_per_second,
    }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    points = []
    for what, value, case in cases():
        time = min(fastest(our_epoch(case, arguments.threads), 3))
        points.append({"what": what, "value": value, "ours_s": time})
        print(json.dumps(points[-1]), flush=True)
    ratios = thread_ratios(arguments.threads)
    print(json.dumps(ratios))
    found = {"machine": machine(arguments.threads), "points": points, "threads": ratios}
    save("growth", found)


if __name__ == "__main__":
    main()
