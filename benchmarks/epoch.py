"""Seconds per epoch: ours, the dense way and the gather way, in one run.

    python benchmarks/epoch.py [--ml-1m ml-1m.zip] [--netflix FOLDER] [--threads 2] [--only ML-1M]

Data sets that are not given are made up, with their shape; ML-10M always is. Peak memory is that of
the process while the engine runs, the data included.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.common import (
    Case,
    alternate,
    fastest,
    file_lines,
    machine,
    measure_speed,
    our_epoch,
    rival_batches,
    save,
    train_rows,
)
from benchmarks.kernel_times import profile
from benchmarks.limit import limit
from benchmarks.rivals import dense_step, gather_step
from cfnade.kernels.jit import HAS_AVX512

DENSE_LIMIT = 4e8  # bytes that one dense array of a batch may take; autograd keeps a dozen
PAPER = {"ML-1M": 3.09, "ML-10M": 134.8, "Netflix": 1057.8}


def cases(arguments: argparse.Namespace) -> Iterator[Case]:
    """The issue's cases, one after the other, so that only one data set is in memory."""
    wanted = arguments.only or ["ML-1M", "ML-10M", "Netflix"]
    if "ML-1M" in wanted:
        rows, source = train_rows(arguments.ml_1m, "ml-1m", "item")
        yield Case("ML-1M item-based, H=500, 1 layer", rows, source)
        yield Case("ML-1M item-based, H=500, 2 layers", rows, source, hidden=(500, 500))
    factored: dict[str, Any] = {"factors": 50, "sparse": True}
    if "ML-10M" in wanted:
        rows, source = train_rows(None, "ml-10m", "user")
        yield Case("ML-10M user-based, J=50, K=10", rows, source, **factored)
        name = "ML-10M user-based, J=50, K=10, elementwise Adam on all columns"
        yield Case(name, rows, source, factors=50)
    if "Netflix" in wanted:
        rows, source = train_rows(arguments.netflix, "netflix", "user")
        yield Case("Netflix user-based, J=50", rows, source, **factored)
        name = "Netflix user-based, J=50, contexts by rate"
        yield Case(name, rows, source, rate=(0.5, 1.0), **factored)


def forget_peak() -> None:
    """Let the process's peak memory start anew (Linux), so that each case has its own."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_megabytes() -> float | None:
    """The process's peak memory since then, the data included."""
    lines = file_lines("/proc/self/status")
    return next((int(x.split()[1]) / 1024 for x in lines if x.startswith("VmHWM")), None)


def beside(table: list[dict[str, Any]], spent: dict[str, float]) -> list[dict[str, Any]]:
    """What each kernel took beside what it must; last those of which the limit knows nothing."""
    known = [part | {"spent": spent[part["name"]]} for part in table]
    names = {part["name"] for part in table}
    none = {"bytes": 0.0, "operations": 0.0, "seconds": 0.0}
    others = [{"name": name, "spent": s} | none for name, s in spent.items() if name not in names]
    return known + others


def measure(case: Case, threads: int, repeats: int) -> dict[str, Any]:
    speed = measure_speed(threads)
    gc.collect()
    forget_peak()
    epoch = our_epoch(case, threads)
    times = fastest(epoch, repeats)
    memory = peak_megabytes()
    best, table = limit(case, speed, threads)
    spent = profile(epoch)
    alone = min(fastest(our_epoch(case, 1), 1)) if threads > 1 else min(times)
    result: dict[str, Any] = {
        "case": case.name,
        "data": case.source,
        "batch": case.batch,
        "ours_s": min(times),
        "ours_all_s": times,
        "one_thread_s": alone,
        "peak_mb": memory,
        "limit_s": best,
        "distance_to_limit": min(times) / best,
        "memory_gb_s": speed.bytes_per_second / 1e9,
        "matmul_gflop_s": speed.operations_per_second / 1e9,
        "kernels": beside(table, spent),
    }
    paper = next(value for name, value in PAPER.items() if case.name.startswith(name + " "))
    result |= {"paper_gpu_s": paper, "ratio_to_paper": paper / min(times)}
    torch.set_num_threads(threads)
    return result | rival_ratios(case, epoch, threads, repeats)


def rival_ratios(
    case: Case, epoch: Callable[[], None], threads: int, repeats: int
) -> dict[str, Any]:
    """Time an epoch of ours and a batch of each rival in turn; the ratio is of the fastest ones."""
    works = {"ours": epoch, "gather": rival_batches(case, gather_step, threads, repeats + 1)}
    if 4 * case.batch * case.rows.n_columns * case.rows.n_levels <= DENSE_LIMIT:
        works["dense"] = rival_batches(case, dense_step, threads, repeats + 1)
    times, n_batches = alternate(works, repeats), len(case.batches(0))
    ours, result = min(times.pop("ours")), dict[str, Any]()
    for name, taken in times.items():
        rival = min(taken) * n_batches
        result |= {name: {"s": rival, "batches_timed": repeats}, f"ratio_to_{name}": rival / ours}
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ml-1m", help="ml-1m.zip")
    parser.add_argument("--netflix", help="the folder of the Netflix prize data")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=list(PAPER))
    arguments = parser.parse_args()
    results = []
    for case in cases(arguments):
        result = measure(case, arguments.threads, arguments.repeats)
        results.append(result)
        print(json.dumps({k: v for k, v in result.items() if k != "kernels"}), flush=True)
    vectors = "AVX-512" if HAS_AVX512 else "AVX2 or less"
    save("epoch", {"machine": machine(arguments.threads), "vectors": vectors, "cases": results})


if __name__ == "__main__":
    main()
