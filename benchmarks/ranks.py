"""Two ranks of one thread beside one process of one thread: seconds and bytes a step.

    python benchmarks/ranks.py --ml-1m PATH     on a quiet machine: about two minutes

A step is timed in turns: some of one process while the other waits, some of two processes that do
not talk (the most that the machine gives), then as many of two ranks, so that all meet the same
machine. rank_memory.py has what they hold. The formula is 2·B·(D+D')·4·(R-1)/R bytes, of rows B
and widths of tables D and D'; beside it go the gradients of dense layers, the counts of B rows and
a number for the cost.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

SHAPES: dict[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {
    "ml-1m item, H = 500": (
        "item",
        {"hidden": (500,), "context_scale": "sqrt", "target_weight": "unit"},
        {"batch_rows": 512, "optimizer": "sparse_adam", "context_rate": (0.5, 1.0)},
    ),
    "ml-10m shape, J = 50": (
        "user",
        {"hidden": (500,), "factors": 50, "context_scale": "sqrt", "target_weight": "unit"},
        {"batch_rows": 512, "optimizer": "sparse_adam", "context_rate": (0.5, 1.0)},
    ),
}


def part_of(group: Any, ratings: Any, axis: Any) -> Any:
    """What a rank owns of ratings that are in memory: as shards give it, without the disk."""
    from cfnade.components.base import other_axis
    from cfnade.data.csr import CsrRows, row_offsets
    from cfnade.distributed.partition import ColumnPartition
    from cfnade.distributed.rank_data import RankData, RankRatings, placeholder_ids
    from cfnade.distributed.shards import owner_of
    from cfnade.kernels.sampling import PartialRows

    rows = ratings.rows(axis)
    every = np.arange(rows.n_columns, dtype=np.int32)
    columns = every[owner_of(group.size, every) == group.rank]
    local = np.full(rows.n_columns, -1, np.int32)
    local[columns] = np.arange(len(columns), dtype=np.int32)
    numbers = np.repeat(np.arange(len(rows), dtype=np.int32), rows.counts())
    places = (np.arange(rows.n_ratings) - rows.offsets[numbers]).astype(np.int32)
    mine = local[rows.columns] >= 0
    sides = {axis: numbers[mine], other_axis(axis): local[rows.columns[mine]]}
    levels = rows.levels[mine]
    ids = placeholder_ids(ratings.n_users), placeholder_ids(ratings.n_items)
    offsets = row_offsets(numbers[mine], len(rows))
    own_rows = CsrRows(offsets, sides[other_axis(axis)], levels, len(columns), rows.n_levels)
    counts = rows.counts().astype(np.int32)
    own = RankRatings(
        *(sides["user"], sides["item"], levels, ratings.scale, *ids),
        grouped={axis: own_rows},
        row_counts={axis: counts},
    )
    totals = group.all_reduce(np.bincount(levels, minlength=rows.n_levels).astype(np.int64))
    whole, owner = PartialRows(places[mine], counts), partial(owner_of, group.size)
    part = ColumnPartition(group, columns, rows.n_columns, totals, whole, owner)
    return RankData(axis, own, part, None, counts)  # type: ignore[arg-type]


def stepper_on(group: Any, ratings: Any, name: str) -> tuple[Any, int]:
    from cfnade.components.new_member import new_member
    from cfnade.config import TrainingConfig
    from cfnade.training.steps import make_stepper

    axis, fields, settings = SHAPES[name]
    how = TrainingConfig(**settings)
    part: Any = None
    own = ratings
    if group.size > 1:
        owned = part_of(group, ratings, axis)
        part, own = {axis: owned.part}, owned.ratings
    member = new_member((axis,), own, fields, how, part)
    return make_stepper(member, own, fields, how, device="cpu", threads=1), len(ratings.rows(axis))


def steps(stepper: Any, rows: int, first: int, count: int) -> list[tuple[float, float]]:
    """Seconds of each step: on the clock, and of this process's processor."""
    found = []
    for step in range(first, first + count):
        chosen = np.random.default_rng(step).permutation(rows)[:512]
        began, used = time.perf_counter(), time.process_time()
        stepper.step(stepper.sampler.sample(chosen, step), rate=1.0)
        found.append((time.perf_counter() - began, time.process_time() - used))
    return found


def work(name: str, file: str, rounds: int, count: int) -> None:
    """One process of the comparison: both stand for one process too, rank 0 first."""
    import torch

    from cfnade.data.dataset import Dataset
    from cfnade.distributed.gloo import GlooGroup, process_group
    from cfnade.distributed.process_group import SINGLE_PROCESS

    torch.set_num_threads(1)
    with process_group() as group:
        assert isinstance(group, GlooGroup)
        ratings = Dataset.open(Path(file))
        shared, rows = stepper_on(group, ratings, name)
        alone = stepper_on(SINGLE_PROCESS, ratings, name)[0]
        steps(shared, rows, 0, 3)
        steps(alone, rows, 0, 3)
        times: dict[str, list[tuple[float, float]]] = {"one": [], "apart": [], "ranks": []}
        sent = 0
        for turn in range(rounds):
            first = 10 + turn * count
            if group.rank == 0:
                times["one"] += steps(alone, rows, first, count)
            group.barrier()
            times["apart"] += steps(alone, rows, first, count)
            group.barrier()
            before = group.bytes_sent
            times["ranks"] += steps(shared, rows, first, count)
            sent += group.bytes_sent - before
        if group.rank == 0:
            bytes_a_step = sent / len(times["ranks"])
            print(json.dumps({"times": times, "bytes": bytes_a_step, "ranks": group.size}))


def started(ranks: int, *arguments: str) -> dict[str, Any]:
    """What rank 0 of so many processes prints."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    known = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    if ranks > 1:
        known |= {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    running = [
        subprocess.Popen(
            [sys.executable, __file__, *arguments],
            env=known | ({"RANK": str(rank)} if ranks > 1 else {}),
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    said = [process.communicate()[0] for process in running]
    found: dict[str, Any] = json.loads(said[0].strip().splitlines()[-1])
    return found


def formula(name: str, ranks: int, rows: int = 512) -> float:
    _, fields, _ = SHAPES[name]
    widths = 2 * (fields.get("factors") or fields["hidden"][0])
    return float(2 * rows * widths * 4 * (ranks - 1) / ranks)


def beside(name: str, ranks: int, rows: int = 512) -> float:
    """Gradients of dense layers, counts and cost, each summed over ranks."""
    _, fields, _ = SHAPES[name]
    H, J = fields["hidden"][0], fields.get("factors") or 0
    dense = sum(-(-n // 16) * 16 for n in (H, H * J, H * J) if n)
    return float(2 * (ranks - 1) / ranks * (4 * dense + 8 * rows + 8))


def compare(name: str, file: Path, rounds: int, count: int) -> dict[str, Any]:
    found = started(2, "--work", name, str(file), str(rounds), str(count))
    times = (1e3 * np.array(found["times"][kind]).T for kind in ("one", "apart", "ranks"))
    (one, one_cpu), (apart, _), (two, two_cpu) = times
    result = {
        "one_ms": float(np.median(one)),
        "most": float(2 * np.median(one) / np.median(apart)),
        "ranks_ms": float(np.median(two)),
        "ratio": float(np.median(one) / np.median(two)),
        "ratio_of_best": float(one.min() / two.min()),
        "ratio_of_cpu": float(np.median(one_cpu) / np.median(two_cpu)),
        "bytes": found["bytes"],
        "formula": formula(name, 2),
        "beside": beside(name, 2),
    }
    print(f"{name}: " + ", ".join(f"{key} {value:,.2f}" for key, value in result.items()))
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description="Ranks beside one process.")
    parser.add_argument("--ml-1m", help="ml-1m.zip")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--work", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        work(given.work[0], given.work[1], int(given.work[2]), int(given.work[3]))
        return
    from cfnade.data.synthetic import synthetic_like

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "ratings"
        if given.ml_1m:
            from cfnade import load

            load(given.ml_1m).save(file)
            compare("ml-1m item, H = 500", file, given.rounds, given.steps)
        synthetic_like("ml-10m", 1).ratings.save(file)
        compare("ml-10m shape, J = 50", file, given.rounds, given.steps)


if __name__ == "__main__":
    main()
