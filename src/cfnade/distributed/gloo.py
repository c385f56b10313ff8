"""A ProcessGroup under torch.distributed, by gloo on CPUs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from cfnade.distributed.process_group import SINGLE_PROCESS, Array, Counts, ProcessGroup
from cfnade.distributed.shared_memory import MOST, RankGoneError, SharedMemory, own_room, rooms_of
from cfnade.exceptions import TrainingError

TIMEOUT = 600.0
"""Seconds that a rank waits for the others before it gives them up."""


class RankLostError(TrainingError):
    """Another rank died, or does not answer."""


class GlooGroup(ProcessGroup):
    """All processes of the process group that is there."""

    def __init__(self) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.bytes_sent = 0
        """Bytes that this rank has sent to others."""
        self._kept: dict[str, Tensor] = {}

    def all_reduce(self, array: Array) -> Array:
        own = torch.from_numpy(array)
        if self.size == 2:  # as many bytes as an all-reduce, and half of its messages
            other, sizes = self._room("other", array.size, own), self._all_but_own(array.size)
            self._exchange(own.reshape(-1), sizes, other, sizes)
            own += other.view(own.shape)
            return array
        self._call(dist.all_reduce, own)
        self.bytes_sent += 2 * array.nbytes * (self.size - 1) // self.size
        return array

    def reduce_scatter_rows(self, rows: Tensor) -> None:
        # Gloo's own reduce-scatter is slow; adding here also fixes the order.
        (lo, hi), D = self.row_range(len(rows)), rows.shape[1]
        sent = self._room("given", (len(rows) - (hi - lo)) * D, rows).view(-1, D)
        sent[:lo], sent[lo:] = rows[:lo], rows[hi:]
        count = (hi - lo) * D
        got = self._room("got", (self.size - 1) * count, rows)
        self._exchange(sent.view(-1), self._others(len(rows), D), got, self._all_but_own(count))
        parts = list(got.view(self.size - 1, hi - lo, D))
        parts.insert(self.rank, rows[lo:hi])
        total = parts[0] + parts[1]
        for part in parts[2:]:
            total += part
        rows[lo:hi] = total

    def all_gather_rows(self, rows: Tensor) -> None:
        (lo, hi), D = self.row_range(len(rows)), rows.shape[1]
        own = rows[lo:hi].reshape(-1).repeat(self.size - 1)
        got = self._room("got", (len(rows) - (hi - lo)) * D, rows)
        to = self._all_but_own((hi - lo) * D)
        self._exchange(own, to, got, self._others(len(rows), D))
        others = got.view(-1, D)
        rows[:lo], rows[hi:] = others[:lo], others[lo:]

    def all_to_all_rows(self, rows: Array, to: Counts, since: Counts) -> Array:
        width = rows.shape[1]
        sent = torch.from_numpy(np.ascontiguousarray(rows).reshape(-1))
        got = torch.empty(sum(since) * width, dtype=sent.dtype)
        self._exchange(sent, [n * width for n in to], got, [n * width for n in since])
        return got.numpy().reshape(-1, width)

    def gather(self, own: Array) -> list[Array]:
        sizes = np.zeros(self.size, np.int64)
        sizes[self.rank] = own.size
        nothing, sizes = [0] * self.size, self.all_reduce(sizes)
        mine = self.rank == 0
        sent = torch.from_numpy(np.ascontiguousarray(own).reshape(-1))
        got = torch.empty(int(sizes.sum()) if mine else 0, dtype=sent.dtype)
        to = [own.size, *nothing[1:]]
        self._exchange(sent, to, got, sizes.tolist() if mine else nothing)
        if not mine:
            return []
        parts = np.split(got.numpy(), np.cumsum(sizes)[:-1])
        return [part.reshape(-1, *own.shape[1:]) for part in parts]

    def broadcast(self, text: str) -> str:
        data = np.frombuffer(text.encode(), np.uint8)
        size = torch.tensor([len(data)])
        self._call(dist.broadcast, size, 0)
        content = torch.zeros(int(size), dtype=torch.uint8)
        if self.rank == 0:
            content.copy_(torch.from_numpy(data.copy()))
        self._call(dist.broadcast, content, 0)
        return content.numpy().tobytes().decode()

    def barrier(self) -> None:
        self._call(dist.barrier)

    # -- pieces -------------------------------------------------------------------------------

    def _others(self, rows: int, width: int) -> list[int]:
        """How many numbers of so many rows belong to each other rank; what is here stays here."""
        shares = (self.row_range_of(number, rows) for number in range(self.size))
        sizes = [(hi - lo) * width for lo, hi in shares]
        sizes[self.rank] = 0
        return sizes

    def _all_but_own(self, count: int) -> list[int]:
        """So many numbers for each other rank."""
        return [0 if rank == self.rank else count for rank in range(self.size)]

    def _room(self, name: str, size: int, like: Tensor) -> Tensor:
        """Memory that is used again."""
        room = self._kept.get(name)
        if room is None or len(room) < size or room.dtype != like.dtype:
            room = self._kept[name] = torch.empty(size, dtype=like.dtype)
        return room[:size]

    def _exchange(self, given: Tensor, to: list[int], got: Tensor, since: list[int]) -> None:
        self._call(dist.all_to_all_single, got, given, since, to)
        self.bytes_sent += (sum(to) - to[self.rank]) * given.element_size()

    def _call(self, collective: Callable[..., Any], *given: Any) -> None:
        try:
            collective(*given)
        except RuntimeError as error:
            what = str(error).strip().splitlines()[0].rpartition(".cc:")[2].partition("] ")[2]
            how = "does not answer" if "imed out" in str(error) else "is gone"
            raise RankLostError(
                f"rank {self.rank} of {self.size}: another rank {how} "
                f"({(what or str(error)).partition('. ')[0][:160]})"
            ) from error


class SharedMemoryGroup(GlooGroup):
    """The same on one machine: what is not too large is shown in memory that all of them see."""

    def __init__(self, host: SharedMemory) -> None:
        super().__init__()
        self._host = host

    def close(self) -> None:
        self._host.close()

    def all_reduce(self, array: Array) -> Array:
        if not 0 < array.nbytes <= MOST:
            return super().all_reduce(array)
        shown = self._show(array, (0, len(array)))
        array[...] = sum(shown[1:], shown[0])
        self.bytes_sent += 2 * array.nbytes * (self.size - 1) // self.size
        return array

    def reduce_scatter_rows(self, rows: Tensor) -> None:
        if not 0 < rows.nbytes <= MOST:
            return super().reduce_scatter_rows(rows)
        (lo, hi), whole = self.row_range(len(rows)), rows.numpy()
        shown = self._show(whole, (0, lo), (hi, len(whole)))
        shown[self.rank] = whole
        whole[lo:hi] = sum((part[lo:hi] for part in shown[1:]), shown[0][lo:hi])
        self.bytes_sent += whole.nbytes - whole[lo:hi].nbytes
        return None

    def all_gather_rows(self, rows: Tensor) -> None:
        if not 0 < rows.nbytes <= MOST:
            return super().all_gather_rows(rows)
        (lo, hi), whole = self.row_range(len(rows)), rows.numpy()
        for number, part in enumerate(self._show(whole, (lo, hi))):
            if number != self.rank:
                first, last = self.row_range_of(number, len(whole))
                whole[first:last] = part[first:last]
        self.bytes_sent += (self.size - 1) * whole[lo:hi].nbytes
        return None

    def _show(self, rows: Array, *ranges: tuple[int, int]) -> list[Array]:
        try:
            return self._host.show(rows, *ranges)
        except RankGoneError as error:
            raise RankLostError(
                f"rank {self.rank} of {self.size}: another rank {error} (they share memory)"
            ) from error


def join_group(patience: float) -> GlooGroup:
    """The ranks of the process group, near ones if all of them see each other's memory."""
    own, path = own_room()
    paths: list[Any] = [None] * dist.get_world_size()
    try:
        dist.all_gather_object(paths, path)
        files = rooms_of(paths, dist.get_rank(), own) if all(paths) else []
        here = torch.tensor([int(bool(files))])
        dist.all_reduce(here, dist.ReduceOp.MIN)  # all have opened the files, or given them up
    finally:
        if path:
            Path(path).unlink()
    if int(here):
        return SharedMemoryGroup(SharedMemory(dist.get_rank(), files, patience))
    for file in {own, *files} - {-1}:
        os.close(file)
    return GlooGroup()


@contextmanager
def process_group(seconds: float = TIMEOUT) -> Iterator[ProcessGroup]:
    """The ranks that torchrun, Spark or Ray started, or this process alone.

    Where a process group is there already, as under Ray, it is used and left.
    """
    if not dist.is_initialized() and "RANK" not in os.environ:
        yield SINGLE_PROCESS
        return
    ours = not dist.is_initialized()
    if ours:
        _meet(timedelta(seconds=seconds))
    group = join_group(seconds) if dist.get_world_size() > 1 else SINGLE_PROCESS
    try:
        yield group
    finally:
        if isinstance(group, SharedMemoryGroup):
            group.close()
        if ours:
            dist.destroy_process_group()


def _meet(patience: timedelta) -> None:
    """Find the other ranks of this start: torchrun's store still has the addresses of the last."""
    start = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    try:
        store, rank, size = next(rendezvous("env://", timeout=patience))
        store.set_timeout(patience)
        own = PrefixStore(f"start {start}", store)
        dist.init_process_group("gloo", store=own, rank=rank, world_size=size, timeout=patience)
    except RuntimeError as error:
        what = str(error).strip().splitlines()[0][:160]
        raise RankLostError(
            f"rank {os.environ['RANK']} of {os.environ.get('WORLD_SIZE', '?')}: cannot reach the "
            f"others ({what})"
        ) from error


def first_to_report(group: ProcessGroup) -> bool:
    """Whether no other rank has asked this before, since they were started."""
    if group.size == 1:
        return True
    try:
        store = dist.distributed_c10d._get_default_store()
        return int(store.add("cfnade/said", 1)) == 1
    except (RuntimeError, ValueError):  # it went with the rank that had it
        return True
