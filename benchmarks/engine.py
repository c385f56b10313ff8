"""Speed of training: seconds per epoch, and of every kernel.

    python benchmarks/engine.py epoch [--ml-1m ml-1m.zip] [--netflix FOLDER] [--only ML-1M]
    python benchmarks/engine.py steps [--as NAME] [--only ml-1m ...]
    python benchmarks/engine.py quick [ml-1m.zip]

epoch: an epoch of the engine in alternation with batches of two implementations in plain torch.
Data sets that are not given are synthetic, in their shape; ML-10M always is. Peak memory is that of
the process while the engine runs, the data included.

steps: seconds of every kernel in three steps on one thread, for a machine that is not quiet. CPU
seconds are counted, and the fastest run of every step. With PYTHONPATH at the sources of another
version, and another name, the table has both. For a processor with AVX2 set NUMBA_CPU_NAME=znver3
and NUMBA_CPU_FEATURES to its features.

quick: ML-1M, item-based, H = 500, beside the dense implementation, in under 50 s. Prints one JSON
line.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.common import (
    RESULTS,
    SEED,
    Case,
    alternate,
    fastest,
    file_lines,
    fused_epoch,
    machine,
    measure_speed,
    save,
    torch_batches,
    train_rows,
)
from benchmarks.kernel_costs import limit, profile
from benchmarks.torch_steps import dense_step, gather_step
from cfnade.data.synthetic import PRESETS, synthetic
from cfnade.kernels.jit import HAS_AVX512

DENSE_LIMIT = 4e8  # bytes that one dense array of a batch may take; autograd keeps a dozen
PAPER = {"ML-1M": 3.09, "ML-10M": 134.8, "Netflix": 1057.8}
"""Seconds of an epoch in the paper's Table 4."""
FACTORED: dict[str, Any] = {"factors": 50, "sparse": True}
STEPS, STEP_REPEATS = 3, 5


# -- epoch -----------------------------------------------------------------------------------------


def epoch_cases(arguments: argparse.Namespace) -> Iterator[Case]:
    """Yield one case after the other, so that only one data set is in memory."""
    names = arguments.only or list(PAPER)
    if "ML-1M" in names:
        rows, source = train_rows(arguments.ml_1m, "ml-1m", "item")
        yield Case("ML-1M item-based, H=500, 1 layer", rows, source)
        yield Case("ML-1M item-based, H=500, 2 layers", rows, source, hidden=(500, 500))
    if "ML-10M" in names:
        rows, source = train_rows(None, "ml-10m", "user")
        yield Case("ML-10M user-based, J=50, K=10", rows, source, **FACTORED)
        name = "ML-10M user-based, J=50, K=10, elementwise Adam on all columns"
        yield Case(name, rows, source, factors=50)
    if "Netflix" in names:
        rows, source = train_rows(arguments.netflix, "netflix", "user")
        yield Case("Netflix user-based, J=50", rows, source, **FACTORED)
        name = "Netflix user-based, J=50, contexts by rate"
        yield Case(name, rows, source, rate=(0.5, 1.0), **FACTORED)


def reset_peak() -> None:
    """Let the process's peak memory start anew (Linux), so that each case has its own."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_megabytes() -> float | None:
    """Return the process's peak memory since the reset, the data included."""
    lines = file_lines("/proc/self/status")
    return next((int(x.split()[1]) / 1024 for x in lines if x.startswith("VmHWM")), None)


def add_measured(table: list[dict[str, Any]], spent: dict[str, float]) -> list[dict[str, Any]]:
    """Return each kernel's least and measured seconds; last those without a least time."""
    limited = [part | {"spent": spent[part["name"]]} for part in table]
    names = {part["name"] for part in table}
    zero = {"bytes": 0.0, "operations": 0.0, "seconds": 0.0}
    unlimited = [
        {"name": name, "spent": s} | zero for name, s in spent.items() if name not in names
    ]
    return limited + unlimited


def measure_epoch(case: Case, threads: int, repeats: int) -> dict[str, Any]:
    """Return the figures of one case."""
    speed = measure_speed(threads)
    gc.collect()
    reset_peak()
    epoch = fused_epoch(case, threads)
    times = fastest(epoch, repeats)
    memory = peak_megabytes()
    least, table = limit(case, speed, threads)
    spent = profile(epoch)
    single = min(fastest(fused_epoch(case, 1), 1)) if threads > 1 else min(times)
    result: dict[str, Any] = {
        "case": case.name,
        "data": case.source,
        "batch": case.batch,
        "ours_s": min(times),
        "ours_all_s": times,
        "one_thread_s": single,
        "peak_mb": memory,
        "limit_s": least,
        "distance_to_limit": min(times) / least,
        "memory_gb_s": speed.bytes_per_second / 1e9,
        "matmul_gflop_s": speed.operations_per_second / 1e9,
        "kernels": add_measured(table, spent),
    }
    paper = next(value for name, value in PAPER.items() if case.name.startswith(name + " "))
    result |= {"paper_gpu_s": paper, "ratio_to_paper": paper / min(times)}
    torch.set_num_threads(threads)
    return result | torch_ratios(case, epoch, threads, repeats)


def torch_ratios(
    case: Case, epoch: Callable[[], None], threads: int, repeats: int
) -> dict[str, Any]:
    """Time epochs and batches in plain torch in turn; ratios are of the fastest ones."""
    works = {"ours": epoch, "gather": torch_batches(case, gather_step, threads, repeats + 1)}
    if 4 * case.batch * case.rows.n_columns * case.rows.n_levels <= DENSE_LIMIT:
        works["dense"] = torch_batches(case, dense_step, threads, repeats + 1)
    times, n_batches = alternate(works, repeats), len(case.batches(0))
    fused, result = min(times.pop("ours")), dict[str, Any]()
    for name, seconds in times.items():
        total = min(seconds) * n_batches
        result |= {name: {"s": total, "batches_timed": repeats}, f"ratio_to_{name}": total / fused}
    return result


def run_epoch(arguments: argparse.Namespace) -> None:
    results = []
    for case in epoch_cases(arguments):
        result = measure_epoch(case, arguments.threads, arguments.repeats)
        results.append(result)
        print(json.dumps({k: v for k, v in result.items() if k != "kernels"}), flush=True)
    vectors = "AVX-512" if HAS_AVX512 else "AVX2 or less"
    save("epoch", {"machine": machine(arguments.threads), "vectors": vectors, "cases": results})


# -- steps -----------------------------------------------------------------------------------------


def steps_case(name: str) -> Case:
    """Return as many synthetic rows of a data set's shape as three steps take."""
    users, items, ratings, scale = PRESETS[name]
    rows = STEPS * 512
    if name == "ml-1m":
        made = synthetic(users, rows, ratings * rows // items, seed=SEED, scale=scale)
        return Case("ML-1M item-based, H=500", made.ratings.rows("item"), name)
    made = synthetic(rows, items, ratings * rows // users, seed=SEED, scale=scale)
    title = {"ml-10m": "ML-10M user-based, J=50", "netflix": "Netflix user-based, J=50"}[name]
    return Case(title, made.ratings.rows("user"), name, **FACTORED)


def _step(sampler: Any, engine: Any, rows: Any, number: int) -> None:
    engine.step(sampler.sample(rows, seed=SEED, step=number))


def measure_steps(case: Case) -> dict[str, Any]:
    """Return the CPU seconds of each kernel, summed over steps."""
    sampler, engine = case.sampler(1), case.engine(1)
    spent: dict[str, float] = {}
    for number, rows in enumerate(case.batches(0)):
        step = partial(_step, sampler, engine, rows, number)
        step()
        runs = [profile(step, time.thread_time) for _ in range(STEP_REPEATS)]
        for part in runs[0]:
            spent[part] = spent.get(part, 0.0) + min(run[part] for run in runs)
    least, _ = limit(case, measure_speed(1, time.thread_time), 1)
    total = sum(spent.values())
    return {"case": case.name, "spent": spent, "total": total, "distance": total / least}


def run_steps(arguments: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    file = RESULTS / "steps.json"
    runs = json.loads(file.read_text())["runs"] if file.exists() else []
    for name in arguments.only:
        run = measure_steps(steps_case(name)) | {"as": arguments.label, "wide": HAS_AVX512}
        key = ("case", "as", "wide")
        runs = [old for old in runs if any(old[field] != run[field] for field in key)] + [run]
        print(json.dumps(run), flush=True)
    save("steps", {"machine": machine(1), "runs": runs})


# -- quick -----------------------------------------------------------------------------------------


def run_quick(arguments: argparse.Namespace) -> None:
    """Time an epoch and a dense batch in turn; the ratio is of the fastest."""
    threads, repeats = arguments.threads, 3
    rows, source = train_rows(arguments.data, "ml-1m", "item")
    case = Case("ML-1M item-based, H=500, 1 layer", rows, source)
    dense_batch = torch_batches(case, dense_step, threads, repeats + 1)
    works = {"ours": fused_epoch(case, threads), "dense": dense_batch}
    torch.set_num_threads(threads)
    times = alternate(works, repeats)
    fused, dense = min(times["ours"]), min(times["dense"]) * len(case.batches(0))
    least, _ = limit(case, measure_speed(threads), threads)
    figures = {
        "ours_s": round(fused, 4),
        "dense_s": round(dense, 2),
        "ratio_to_dense": round(dense / fused, 1),
        "distance_to_limit": round(fused / least, 2),
        "dense_batches_timed": repeats,
        "threads": threads,
        "data": case.source,
    }
    print(json.dumps(figures))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    epoch = commands.add_parser("epoch", help="seconds per epoch, beside plain torch")
    epoch.add_argument("--ml-1m", help="ml-1m.zip")
    epoch.add_argument("--netflix", help="folder of the Netflix prize data")
    epoch.add_argument("--threads", type=int, default=torch.get_num_threads())
    epoch.add_argument("--repeats", type=int, default=3)
    epoch.add_argument("--only", nargs="+", choices=list(PAPER))
    epoch.set_defaults(run=run_epoch)
    steps = commands.add_parser("steps", help="CPU seconds of every kernel in three steps")
    steps.add_argument("--as", dest="label", default="now", help="name of the figures")
    steps.add_argument("--only", nargs="+", choices=list(PRESETS), default=list(PRESETS))
    steps.set_defaults(run=run_steps)
    quick = commands.add_parser("quick", help="one line for ML-1M")
    quick.add_argument("data", nargs="?", help="ml-1m.zip; synthetic ratings if omitted")
    quick.add_argument("--threads", type=int, default=torch.get_num_threads())
    quick.set_defaults(run=run_quick)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
