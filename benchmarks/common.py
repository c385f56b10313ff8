"""Shared parts of the benchmarks: data, cases, speed of the machine, timing, results on disk."""

from __future__ import annotations

import gc
import json
import platform
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cfnade.components import Member
from cfnade.components.nade import NadeComponent, engine_arrays
from cfnade.data.csr import CsrRows
from cfnade.data.dataset import Ratings
from cfnade.data.load import load
from cfnade.data.scale import Scale
from cfnade.data.splits import split
from cfnade.data.synthetic import synthetic_like
from cfnade.fitted_model import FittedModel
from cfnade.kernels.adam import AdamRule
from cfnade.kernels.column_groups import ColumnGroups
from cfnade.kernels.engine import Engine
from cfnade.kernels.sampling import GroupedBatch, RowSampler
from cfnade.models import CFNADEConfig, CFNADENetwork

__all__ = ["ColumnGroups", "GroupedBatch"]  # kernel types, for benchmarks that inspect a batch

FOLDER = Path(__file__).resolve().parent
RESULTS = FOLDER / "results"
SEED = 1


@dataclass(frozen=True)
class Case:
    """A data set and how a model is trained on it."""

    name: str
    rows: CsrRows
    source: str
    hidden: tuple[int, ...] = (500,)
    factors: int | None = None
    batch: int = 512
    rate: tuple[float, float] | None = None
    sparse: bool = False

    def network(self) -> CFNADENetwork:
        """Return a network with shared weights and ordinal cost, from a fixed seed."""
        config = CFNADEConfig(
            columns=self.rows.n_columns,
            levels=self.rows.n_levels,
            hidden=self.hidden,
            factors=self.factors,
        )
        network = CFNADENetwork(config)
        network.initialise(torch.Generator().manual_seed(SEED))
        return network

    def sampler(self, threads: int) -> RowSampler:
        rows = self.rows
        return RowSampler(
            rows.offsets,
            rows.columns,
            rows.levels,
            n_columns=rows.n_columns,
            n_levels=rows.n_levels,
            rate=self.rate,
            threads=threads,
        )

    def engine(self, threads: int) -> Engine:
        network = self.network()
        arrays = engine_arrays(
            {name: t.detach().numpy() for name, t in network.state_dict().items()}
        )
        rules = {n: AdamRule(1e-3, 0.0 if n in ("bias", "c") else 1e-3) for n in arrays}
        return Engine(
            network.config,
            arrays,
            rules,
            sparse=self.sparse,
            threads=threads,
        )

    def batches(self, epoch: int) -> list[np.ndarray[Any, Any]]:
        """Return the rows of each batch of an epoch."""
        order = np.random.default_rng((SEED, epoch)).permutation(len(self.rows))
        return [order[i : i + self.batch] for i in range(0, len(order), self.batch)]


def train_rows(
    data: str | None, like: str, side: str, scale_down: float = 1.0
) -> tuple[CsrRows, str]:
    """Return the training part of a data set, or of synthetic ratings of that shape."""
    if data is None:
        ratings = synthetic_like(like, SEED, scale_down).ratings
        source = f"synthetic, shape of {like}"
        source += f", a {1 / scale_down:.2g} part" if scale_down != 1.0 else ""
    else:
        ratings, source = load(data), f"real {Path(data).name}"
    train = split(ratings, f"paper:{SEED}").train
    return train.rows("item" if side == "item" else "user"), source


Clock = Callable[[], float]


def seconds(work: Callable[[], Any], clock: Clock = time.perf_counter) -> float:
    start = clock()
    work()
    return clock() - start


def fastest(work: Callable[[], Any], repeats: int, clock: Clock = time.perf_counter) -> list[float]:
    """Return the times of `repeats` runs after a warm-up run, without garbage collection."""
    work()
    gc.collect()
    gc.disable()
    try:
        return [seconds(work, clock) for _ in range(repeats)]
    finally:
        gc.enable()


def alternate(
    works: Mapping[str, Callable[[], Any]], repeats: int, clock: Clock = time.perf_counter
) -> dict[str, list[float]]:
    """Return the times of `repeats` runs of each, in turn, after a warm-up run of each.

    Ratios of times that are measured in turn do not depend on how busy the machine was.
    """
    for work in works.values():
        work()
    gc.collect()
    gc.disable()
    try:
        times: dict[str, list[float]] = {name: [] for name in works}
        for _ in range(repeats):
            for name, work in works.items():
                times[name].append(seconds(work, clock))
        return times
    finally:
        gc.enable()


@dataclass(frozen=True)
class Speed:
    """Peak speed of the machine with a number of threads."""

    bytes_per_second: float
    operations_per_second: float


def measure_speed(threads: int, clock: Clock = time.perf_counter) -> Speed:
    """Measure memory by a += b on 2 × 240 MB (two reads, a write), matmul by 1500³ in float32."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    a, b = torch.ones(60_000_000), torch.ones(60_000_000)
    memory = 12 * a.numel() / min(fastest(lambda: a.add_(b), 5, clock))
    x = torch.ones(1500, 1500)
    rate = 2 * 1500**3 / min(fastest(lambda: x @ x, 5, clock))
    torch.set_num_threads(before)
    return Speed(memory, rate)


def fused_epoch(case: Case, threads: int) -> Callable[[], None]:
    """Return a function that trains an epoch, sampling included; every call continues."""
    sampler, engine = case.sampler(threads), case.engine(threads)
    epoch = 0

    def run() -> None:
        nonlocal epoch
        batches, first = case.batches(epoch), epoch * 100_000
        for n in range(0, len(batches), threads):  # as many at once as training draws
            for batch in sampler.sample_many(batches[n : n + threads], seed=SEED, step=first + n):
                engine.step(batch)
        epoch += 1

    return run


def drawn_batches(case: Case, threads: int, count: int | None = None) -> Iterator[GroupedBatch]:
    """Yield the batches of an epoch, or its first ones."""
    sampler = case.sampler(threads)
    for step, rows in enumerate(case.batches(0)[:count]):
        yield sampler.sample(rows, seed=SEED, step=step)


def torch_batches(case: Case, make: Any, threads: int, count: int) -> Callable[[], None]:
    """Return a function that trains a network in torch on the next of `count` batches."""
    step, batches = make(case), cycle(list(drawn_batches(case, threads, count)))
    return lambda: step(next(batches))


def machine(threads: int) -> dict[str, Any]:
    """Return machine, versions and date, to judge a figure later."""
    names = [
        x.split(":")[1].strip() for x in file_lines("/proc/cpuinfo") if x.startswith("model name")
    ]
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=FOLDER
    ).stdout.strip()
    return {
        "cpu": names[0] if names else platform.processor(),
        "cores": len(names) or None,
        "threads": threads,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit or None,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "load": file_lines("/proc/loadavg")[0].split()[0] if file_lines("/proc/loadavg") else None,
    }


def file_lines(path: str) -> list[str]:
    """Return the lines of a text file; none if there is no such file."""
    file = Path(path)
    return file.read_text().splitlines() if file.exists() else []


def save(name: str, result: dict[str, Any]) -> None:
    """Write results/<name>.json and renew the tables in README.md."""
    from benchmarks.report import write_readme

    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    write_readme()


def model_without_users(network: CFNADENetwork, n_ratings: int) -> FittedModel:
    """Return a user-based model without users; items have `n_ratings` of each level, and titles."""
    empty, columns, levels = np.empty(0, np.int32), network.config.columns, network.config.levels
    catalog = Ratings(
        users=empty,
        items=empty,
        levels=np.empty(0, np.uint8),
        scale=Scale(tuple(float(value) for value in range(1, levels + 1))),
        user_ids=np.empty(0, np.int64),
        item_ids=np.arange(columns),
        titles=np.array([f"Title {n:05d} (2000)" for n in range(columns)], object),
    )
    counts = np.full((columns, levels), n_ratings, np.int64)
    arrays = {name: tensor.numpy() for name, tensor in network.state_dict().items()}
    member = Member({"user": NadeComponent(network.config, arrays)})
    return FittedModel((member,), "user", catalog, {"item": counts})
