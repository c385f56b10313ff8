"""Training on several ranks, and a large job from ratings to recommendations.

    python benchmarks/distributed.py steps [--ml-1m PATH]    two ranks beside one process, on a
                                                             quiet machine: about two minutes
    python benchmarks/distributed.py scaling [--network]     1 to 3 ranks, and 4 to 64 machines
    python benchmarks/distributed.py memory WORK             what a rank of two holds
    python benchmarks/distributed.py unattended WORK         shards, one epoch, all users' lists

steps: a step is timed in turns: one process while the other waits, two processes that do not
communicate (the most that the machine gives), and two ranks, so that all meet the same machine.

scaling: a rank's processor seconds a step are fitted by a + c / R: a is what every rank does
itself, c what they share. Its bytes follow the formula of docs/how-to/scale.md. A step of R
machines then takes (a + c / R) / cores + bytes / rate + 5 · log2(2R) · delay. With --network (as
root) each rank lives in a network namespace behind a token bucket (tc tbf; netem, and so a delay,
needs another kernel), and the seconds that a lower rate costs are set beside the model's.

memory, unattended: whole commands, each process with one thread. WORK keeps the results, so that
a second run completes a stopped one.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from math import log2
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from cfnade.data.synthetic import PRESETS, synthetic, synthetic_like

CFNADE = [sys.executable, "-m", "cfnade"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
ONE_EPOCH = ["--side", "user", "--ridge", "0", "--epochs", "1", "--n-threads", "1"]
BATCH_ROWS = 512
TRAINING: dict[str, Any] = {
    "batch_rows": BATCH_ROWS,
    "optimizer": "sparse_adam",
    "context_rate": (0.5, 1.0),
}
FIELDS: dict[str, Any] = {"hidden": (500,), "context_scale": "sqrt", "target_weight": "unit"}
ML_1M, ML_10M = "ml-1m item, H = 500", "ml-10m shape, J = 50"
CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    ML_1M: ("item", FIELDS),
    ML_10M: ("user", FIELDS | {"factors": 50}),
}
RATE, DELAY, CORES = 1.25e9, 100e-6, 16
"""Of the machines that are extrapolated to: 10 GbE, and the delay of a message."""
N_PARTS = 48
"""Files of ratings for the large job."""


def write_ratings(ratings: Any, folder: Path, n_parts: int) -> None:
    """Write ratings as Parquet files, unless they exist."""
    if (folder / "_SUCCESS").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    cuts = np.linspace(0, len(ratings), n_parts + 1).astype(int)
    for part, (first, last) in enumerate(pairwise(cuts)):
        columns = {
            "user": ratings.user_ids[ratings.users[first:last]],
            "item": ratings.item_ids[ratings.items[first:last]],
            "rating": ratings.values[first:last].astype(np.float32),
        }
        pl.DataFrame(columns).write_parquet(folder / f"part-{part:02d}.parquet")
    (folder / "_SUCCESS").write_text(f"{ratings!r}\n")


def write_shards(ratings: Any, work: Path, side: Any = "both") -> Path:
    """Return the folder of the shards of some ratings, all of which are for training."""
    from cfnade.distributed.build_shards import ShardOptions, build_shards

    write_ratings(ratings, work / "ratings", 1)
    build_shards([work / "ratings"], work / "shards", ShardOptions(side=side, valid=0.0))
    return work / "shards"


# -- steps of ranks -------------------------------------------------------------------------------


def stepper_of(group: Any, shards: Any, case: str) -> tuple[Any, int]:
    """Return what trains on a rank's part of the ratings, and the number of rows."""
    from cfnade.components.registry import new_member
    from cfnade.config import TrainingConfig
    from cfnade.distributed.rank_data import load_rank_data
    from cfnade.training.steps import make_stepper

    axis, fields = CASES[case]
    config = TrainingConfig(**TRAINING)
    if group.size > 1:
        data = load_rank_data(group, shards, axis)
        ratings, parts = data.ratings, {axis: data.part}
    else:
        ratings, parts = shards.ratings("train"), None
    member = new_member((axis,), ratings, fields, config, parts)
    stepper = make_stepper(member, ratings, fields, config, device="cpu", threads=1)
    return stepper, shards.count(axis)


def time_steps(stepper: Any, n_rows: int, first: int, count: int) -> list[tuple[float, float]]:
    """Return the seconds of each step: elapsed, and of this process's processor."""
    times = []
    for step in range(first, first + count):
        rows = np.random.default_rng(step).permutation(n_rows)[:BATCH_ROWS]
        start, used = time.perf_counter(), time.process_time()
        stepper.step(stepper.sampler.sample(rows, step), rate=1.0)
        times.append((time.perf_counter() - start, time.process_time() - used))
    return times


def run_rank(folder: str, case: str, rounds: int, count: int) -> None:
    """Run one rank; rank 0 prints the times. With rounds, in turns with a single process."""
    import torch

    from cfnade.distributed.gloo import process_group
    from cfnade.distributed.process_group import SINGLE_PROCESS
    from cfnade.distributed.shards import ShardedRatings

    torch.set_num_threads(1)
    with process_group() as group:
        shards = ShardedRatings.open(folder)
        stepper, n_rows = stepper_of(group, shards, case)
        time_steps(stepper, n_rows, 0, 3)
        single = None
        if rounds:
            single = stepper_of(SINGLE_PROCESS, shards, case)[0]
            time_steps(single, n_rows, 0, 3)
        times: dict[str, list[tuple[float, float]]] = {"one": [], "apart": [], "ranks": []}
        n_bytes = 0
        for turn in range(max(1, rounds)):
            first = 10 + turn * count
            if single is not None:
                if group.rank == 0:
                    times["one"] += time_steps(single, n_rows, first, count)
                group.barrier()
                times["apart"] += time_steps(single, n_rows, first, count)
            group.barrier()
            before = getattr(group, "bytes_sent", 0)
            times["ranks"] += time_steps(stepper, n_rows, first, count)
            n_bytes += getattr(group, "bytes_sent", 0) - before
        elapsed, used = np.array(times["ranks"]).T
        processor = group.total(float(np.median(used))) / group.size
        if group.rank == 0:
            wall = {"wall": float(np.median(elapsed)), "least_wall": float(elapsed.min())}
            result = {"ranks": group.size, "bytes": n_bytes / len(elapsed), "times": times}
            print(json.dumps(result | wall | {"processor": processor}))


def start_ranks(
    n_ranks: int,
    shards: Path,
    case: str,
    rounds: int,
    count: int,
    namespaces: Sequence[str] = (),
) -> dict[str, Any]:
    """Return what rank 0 of so many processes prints, each in a network namespace if given."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    command = [sys.executable, __file__, "rank", str(shards), case, str(rounds), str(count)]
    processes = []
    for rank in range(n_ranks):
        environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        prefix: list[str] = []
        if namespaces:
            environment["GLOO_SOCKET_IFNAME"] = f"v{rank}"
            prefix = ["ip", "netns", "exec", namespaces[rank]]
        if n_ranks > 1:
            environment |= {"RANK": str(rank), "WORLD_SIZE": str(n_ranks), "MASTER_PORT": port}
            environment["MASTER_ADDR"] = "10.99.0.1" if namespaces else "127.0.0.1"
        processes.append(
            subprocess.Popen(
                [*prefix, *command], env=environment, stdout=subprocess.PIPE, text=True
            )
        )
    outputs = [process.communicate(timeout=900)[0] for process in processes]
    if any(process.returncode for process in processes):
        sys.exit(f"{n_ranks} ranks failed")
    result: dict[str, Any] = json.loads(outputs[0].splitlines()[-1])
    return result


def table_bytes(case: str, n_ranks: int) -> float:
    """Return the bytes that a rank sends for its tables in a step: 2·B·(D + D')·4·(R-1)/R."""
    fields = CASES[case][1]
    width = fields.get("factors") or fields["hidden"][0]
    return float(2 * BATCH_ROWS * 2 * width * 4 * (n_ranks - 1) / n_ranks)


def dense_bytes(case: str, n_ranks: int) -> float:
    """Return the bytes of the gradients of dense layers, of counts and of the cost."""
    fields = CASES[case][1]
    H, J = fields["hidden"][0], fields.get("factors") or 0
    padded = sum(-(-n // 16) * 16 for n in (H, H * J, H * J) if n)
    return float(2 * (n_ranks - 1) / n_ranks * (4 * padded + 8 * BATCH_ROWS + 8))


def compare_steps(ml_1m: str | None, rounds: int, count: int) -> None:
    """Compare two ranks with one process, with real ratings if their file is given."""
    cases = {ML_10M: synthetic_like("ml-10m", 1).ratings}
    if ml_1m:
        from cfnade import load

        cases = {ML_1M: load(ml_1m)} | cases
    for case, ratings in cases.items():
        with tempfile.TemporaryDirectory() as folder:
            shards = write_shards(ratings, Path(folder), CASES[case][0])
            result = start_ranks(2, shards, case, rounds, count)
        kinds = ("one", "apart", "ranks")
        times = (1e3 * np.array(result["times"][kind]).T for kind in kinds)
        (one, one_cpu), (apart, _), (two, two_cpu) = times
        figures = {
            "one_ms": float(np.median(one)),
            "most": float(2 * np.median(one) / np.median(apart)),
            "ranks_ms": float(np.median(two)),
            "ratio": float(np.median(one) / np.median(two)),
            "ratio_of_best": float(one.min() / two.min()),
            "ratio_of_cpu": float(np.median(one_cpu) / np.median(two_cpu)),
            "bytes": result["bytes"],
            "table_bytes": table_bytes(case, 2),
            "dense_bytes": dense_bytes(case, 2),
        }
        print(f"{case}: " + ", ".join(f"{key} {value:,.2f}" for key, value in figures.items()))


# -- the cost model -------------------------------------------------------------------------------


def fit_processor_time(results: Sequence[dict[str, Any]]) -> tuple[float, float]:
    """Return a and c of a + c / R by least squares."""
    inverse = 1 / np.array([result["ranks"] for result in results])
    features = np.stack([np.ones(len(inverse)), inverse], axis=1)
    processor = np.array([result["processor"] for result in results])
    a, c = np.linalg.lstsq(features, processor, rcond=None)[0]
    return float(a), float(c)


def step_seconds(a: float, c: float, n_bytes: float, n_ranks: int) -> tuple[float, float]:
    """Return the seconds of work and of the network for a step on so many machines."""
    network = n_bytes / RATE + 5 * log2(2 * n_ranks) * DELAY if n_ranks > 1 else 0.0
    return (a + c / n_ranks) / CORES, network


def measure_scaling(count: int, through_networks: bool, n_users: int | None) -> None:
    """Measure steps on 1, 2 and 3 ranks, fit the cost model and extrapolate."""
    with tempfile.TemporaryDirectory() as folder:
        scale_down = PRESETS["ml-1m"][0] / n_users if n_users else 1.0
        ratings = synthetic_like("ml-1m", 1, max(1.0, scale_down)).ratings
        shards = write_shards(ratings, Path(folder), "item")
        results = [start_ranks(n_ranks, shards, ML_1M, 0, count) for n_ranks in (1, 2, 3)]
        print("ranks  processor ms  wall ms (median, least)  bytes a step  tables' formula")
        for result in results:
            times = [1e3 * result[name] for name in ("processor", "wall", "least_wall")]
            row = "{:5d} {:13.1f} {:12.1f} {:9.1f} {:13,.0f} {:16,.0f}"
            tables = table_bytes(ML_1M, result["ranks"])
            print(row.format(result["ranks"], *times, result["bytes"], tables))
        a, c = fit_processor_time(results)
        print(f"a rank's processor seconds a step: {1e3 * a:.1f} + {1e3 * c:.1f} / R ms")
        dense = (results[-1]["bytes"] - table_bytes(ML_1M, 3)) / (2 / 3)  # grows as (R-1)/R too
        print(f"machines of {CORES} cores, {8 * RATE / 1e9:.0f} Gbit/s, {1e6 * DELAY:.0f} µs:")
        for n_ranks in (1, 4, 16, 64):
            n_bytes = table_bytes(ML_1M, n_ranks) + dense * (n_ranks - 1) / n_ranks
            work, network = step_seconds(a, c, n_bytes, n_ranks)
            gain = sum(step_seconds(a, c, 0.0, 1)) / (work + network)
            row = "{:5d}: work {:.2f} + network {:.2f} ms a step, {:.1f}x one machine"
            print(row.format(n_ranks, 1e3 * work, 1e3 * network, gain))
        if through_networks:
            measure_networks(shards, count)


def measure_networks(shards: Path, count: int) -> None:
    """Compare the time that a slower network costs with the cost model."""
    rates, results = (1000, 200, 100), []
    for megabits in rates:
        with limited_network(2, megabits) as namespaces:
            results.append(start_ranks(2, shards, ML_1M, 0, count, namespaces))
    print("two ranks through a network of so many megabits: wall ms; more than the first, by model")
    for megabits, result in zip(rates, results, strict=True):
        more = 1e3 * (result["wall"] - results[0]["wall"])
        model = 1e3 * 8 * result["bytes"] * (1 / megabits - 1 / rates[0]) / 1e6
        print(f"{megabits:5d} {1e3 * result['wall']:8.1f} {more:8.1f} {model:8.1f}")


@contextmanager
def limited_network(n_ranks: int, megabits: int) -> Iterator[list[str]]:
    """Yield network namespaces on one bridge, each sending at most so many megabits a second."""
    number = os.getpid()
    bridge, namespaces = f"cfn{number}"[:14], [f"cfn-{number}-{rank}" for rank in range(n_ranks)]
    try:
        _run(f"ip link add {bridge} type bridge")
        _run(f"ip link set {bridge} up")
        for rank, name in enumerate(namespaces):
            outer, inner = f"o{rank}-{number}"[:14], f"v{rank}"
            _run(f"ip netns add {name}")
            _run(f"ip link add {outer} type veth peer name {inner} netns {name}")
            _run(f"ip link set {outer} master {bridge} up")
            _run(f"ip -n {name} addr add 10.99.0.{rank + 1}/24 dev {inner}")
            _run(f"ip -n {name} link set {inner} up")
            _run(f"ip -n {name} link set lo up")
            bucket = f"tbf rate {megabits}mbit burst 64k latency 400ms"
            _run(f"ip netns exec {name} tc qdisc add dev {inner} root {bucket}")
        yield namespaces
    finally:
        for command in (*(f"ip netns del {name}" for name in namespaces), f"ip link del {bridge}"):
            with suppress(subprocess.CalledProcessError):
                _run(command)


def _run(command: str) -> None:
    subprocess.run(command.split(), check=True, capture_output=True)


# -- whole commands -------------------------------------------------------------------------------


def measure_command(command: Sequence[str]) -> dict[str, float]:
    """Run a command; return its minutes, and the peak memory of its largest process."""
    start = time.perf_counter()
    child = subprocess.Popen(command, env=os.environ | {"OMP_NUM_THREADS": "1"})
    _, status, used = os.wait4(child.pid, 0)  # of it and of all processes that it started
    if status:
        sys.exit(f"failed: {' '.join(command)}")
    return {
        "minutes": round((time.perf_counter() - start) / 60, 2),
        "processor_minutes": round((used.ru_utime + used.ru_stime) / 60, 2),
        "peak_gb_of_largest_process": round(used.ru_maxrss / 2**20, 2),
        "load": round(os.getloadavg()[0], 1),
    }


def measure_memory(work: Path, n_columns: int, hidden: str, factors: str) -> None:
    """Compare the peaks of one process and of two ranks, for one epoch of a wide table."""
    work = work / str(n_columns)
    shards, model = work / "shards", work / "model"
    if not shards.exists():
        write_shards(synthetic(20_000, n_columns, 4 * n_columns, seed=1).ratings, work, "user")
    options = [str(shards), *ONE_EPOCH, "--no-learn-interactions", "--overwrite"]
    options += ["--hidden", hidden, "--factors", factors]
    ranks = [*TORCHRUN, "--nproc-per-node", "2", "-m", "cfnade", "train-distributed"]
    peaks = []
    for command in ([*CFNADE, "train"], ranks):
        result = measure_command([*command, *options, "--out", str(model)])
        print(result, flush=True)
        peaks.append(result["peak_gb_of_largest_process"])
        shutil.rmtree(model)
    print(f"{n_columns:,} columns, J = {factors}: {peaks[1] / peaks[0]:.2f} of one process a rank")


def run_unattended(work: Path, n_ratings: int, n_ranks: int) -> None:
    """Shard ratings of the shape of Netflix, train one epoch, and recommend to all users."""
    ratings, notes = work / "ratings", work / "notes.json"
    if not (ratings / "_SUCCESS").exists():
        scale_down = max(1.0, PRESETS["netflix"][2] / n_ratings)
        write_ratings(synthetic_like("netflix", 1, scale_down).ratings, ratings, N_PARTS)
    shards, model, lists = (str(work / name) for name in ("shards", "model", "lists"))
    workers = ["--workers", str(n_ranks)]  # of one thread each, as the ranks are
    torchrun = [*TORCHRUN, "--nproc-per-node", str(n_ranks), "-m", "cfnade", "train-distributed"]
    size = [*ONE_EPOCH, "--hidden", "500", "--factors", "50"]
    commands = {
        "shard": [*CFNADE, "data", "shard", str(ratings), "--out", shards, *workers],
        "train": [*torchrun, shards, *size, "--out", model],
        "lists": [*CFNADE, "batch", "recommend", model, "--out", lists, *workers],
    }
    results = json.loads(notes.read_text()) if notes.exists() else {}
    for name, command in commands.items():
        if name not in results:
            results[name] = measure_command(command)
            notes.write_text(json.dumps(results, indent=1) + "\n")
        print(name, results[name], flush=True)
    print((Path(lists) / "_SUCCESS").read_text())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    tasks = parser.add_subparsers(dest="task", required=True)
    steps = tasks.add_parser("steps")
    steps.add_argument("--ml-1m", help="ml-1m.zip")
    steps.add_argument("--rounds", type=int, default=4)
    steps.add_argument("--steps", type=int, default=10)
    scaling = tasks.add_parser("scaling")
    scaling.add_argument("--steps", type=int, default=20)
    scaling.add_argument("--users", type=int, help="fewer than MovieLens 1M has")
    scaling.add_argument("--network", action="store_true")
    memory = tasks.add_parser("memory")
    memory.add_argument("work", type=Path)
    memory.add_argument("--columns", type=int, default=1_000_000)
    memory.add_argument("--hidden", default="500")
    memory.add_argument("--factors", default="50")
    unattended = tasks.add_parser("unattended")
    unattended.add_argument("work", type=Path)
    unattended.add_argument("--ratings", type=int, default=100_480_507)
    unattended.add_argument("--ranks", type=int, default=2)
    rank = tasks.add_parser("rank")  # one process of steps and scaling
    rank.add_argument("arguments", nargs=4)
    options = parser.parse_args()
    if options.task == "rank":
        shards, case, rounds, count = options.arguments
        run_rank(shards, case, int(rounds), int(count))
    elif options.task == "steps":
        compare_steps(options.ml_1m, options.rounds, options.steps)
    elif options.task == "scaling":
        measure_scaling(options.steps, options.network, options.users)
    elif options.task == "memory":
        measure_memory(options.work.absolute(), options.columns, options.hidden, options.factors)
    else:
        run_unattended(options.work.absolute(), options.ratings, options.ranks)


if __name__ == "__main__":
    main()
