"""Small shards, and ranks that are threads of this process: the same calls, no network."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
from torch import Tensor

from cfnade.data.dataset import Dataset
from cfnade.data.load import LoadOptions
from cfnade.data.synthetic import synthetic
from cfnade.distributed.build_shards import ShardOptions, build_shards
from cfnade.distributed.process_group import SINGLE_PROCESS, Array, Counts, ProcessGroup
from cfnade.distributed.shards import ShardedRatings

Result = TypeVar("Result")


def write_csv(ratings: Dataset, path: Path, *, rated: bool = True) -> Path:
    lines = zip(ratings.users, ratings.items, ratings.values, strict=True)
    text = "".join(
        f"{user},{item}" + (f",{value:g}\n" if rated else "\n") for user, item, value in lines
    )
    path.write_text(("user,item,rating\n" if rated else "user,item\n") + text)
    return path


def small_shards(
    folder: Path, users: int = 60, items: int = 40, ratings: int = 900, *, rated: bool = True
) -> ShardedRatings:
    pytest.importorskip("duckdb", reason="needs cfnade[shard]")
    made = synthetic(users, items, ratings, seed=3).ratings
    folder.mkdir(parents=True, exist_ok=True)
    file, how = write_csv(made, folder / "ratings.csv", rated=rated), ShardOptions(valid=0.1)
    reading = LoadOptions() if rated else LoadOptions(implicit=True)
    return build_shards([file], folder / "shards", how, reading, n_workers=1)


class _Table:
    """Where the threads of a group meet."""

    def __init__(self, size: int) -> None:
        self.slots: list[Any] = [None] * size
        self.barrier = threading.Barrier(size, timeout=60)


class Threads(ProcessGroup):
    """One of `size` threads."""

    def __init__(self, rank: int, size: int, table: _Table) -> None:
        self.rank, self.size, self._table = rank, size, table

    def _all(self, own: Any) -> list[Any]:
        self._table.slots[self.rank] = own
        self._table.barrier.wait()
        found = list(self._table.slots)
        self._table.barrier.wait()
        return found

    def all_reduce(self, array: Array) -> Array:
        array[:] = np.sum(self._all(array.copy()), 0, dtype=array.dtype)
        return array

    def reduce_scatter_rows(self, rows: Tensor) -> None:
        lo, hi = self.row_range(len(rows))
        parts = self._all(rows.clone())
        total = parts[0][lo:hi]
        for part in parts[1:]:
            total = total + part[lo:hi]
        rows.fill_(float("nan"))  # undefined apart from the range
        rows[lo:hi] = total

    def all_gather_rows(self, rows: Tensor) -> None:
        lo, hi = self.row_range(len(rows))
        own = [(lo, hi, rows[lo:hi].clone())]
        for ((lo, hi, part),) in self._all(own):
            rows[lo:hi] = part

    def all_to_all_rows(self, rows: Array, to: Counts, since: Counts) -> Array:
        ends = np.cumsum([0, *to])
        sent = [rows[a:b].copy() for a, b in pairwise(ends)]
        got = [parts[self.rank] for parts in self._all(sent)]
        assert [len(part) for part in got] == list(since)
        return np.concatenate(got)

    def gather(self, own: Array) -> list[Array]:
        found = self._all(own.copy())
        return found if self.rank == 0 else []

    def broadcast(self, value: Result) -> Result:
        first: Result = self._all(value)[0]
        return first

    def barrier(self) -> None:
        self._all(None)


def on_ranks(size: int, work: Callable[[ProcessGroup], Result]) -> list[Result]:
    """Return work(group) of each of so many ranks."""
    if size == 1:
        return [work(SINGLE_PROCESS)]
    table = _Table(size)

    def run_rank(rank: int) -> Result:
        try:
            return work(Threads(rank, size, table))
        except BaseException:
            table.barrier.abort()
            raise

    with ThreadPoolExecutor(size) as pool:
        futures = [pool.submit(run_rank, rank) for rank in range(size)]
    errors = [error for future in futures if (error := future.exception()) is not None]
    errors.sort(key=lambda error: isinstance(error, threading.BrokenBarrierError))
    if errors:
        raise errors[0]
    return [future.result() for future in futures]
