"""A ProcessGroup over torch.distributed with gloo, and how to join the one of this start."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from cfnade.distributed.process_group import SINGLE_PROCESS, Array, Counts, ProcessGroup
from cfnade.exceptions import TrainingError

TIMEOUT = 600.0
"""Seconds that a rank waits for the others before it gives them up."""

T = TypeVar("T")


class RankLostError(TrainingError):
    """Another rank died or does not answer."""


class GlooGroup(ProcessGroup):
    """All processes of the process group that torch.distributed has.

    Args:
        timeout: Seconds after which torch gives up a collective.
        store: Keys that all ranks share; None: every rank reports its errors.
    """

    def __init__(self, timeout: float, store: Store | None = None) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.bytes_sent = 0
        """Bytes that this rank sent to others."""
        self._timeout, self._store = timeout, store
        self._buffers: dict[str, Tensor] = {}

    def all_reduce(self, array: Array) -> Array:
        tensor = torch.from_numpy(array)
        if self.size == 2:  # as many bytes as an all-reduce, and half of its messages
            received = self._buffer("received", array.size, tensor)
            sizes = self._equal_sizes(array.size)
            self._exchange(tensor.reshape(-1), sizes, received, sizes)
            tensor += received.view(tensor.shape)
            return array
        self._call(dist.all_reduce, tensor)
        self.bytes_sent += 2 * array.nbytes * (self.size - 1) // self.size
        return array

    def reduce_scatter_rows(self, rows: Tensor) -> None:
        # Gloo's own reduce-scatter is slow; adding here also fixes the order.
        (lo, hi), D = self.row_range(len(rows)), rows.shape[1]
        sent = self._buffer("sent", (len(rows) - (hi - lo)) * D, rows).view(-1, D)
        sent[:lo], sent[lo:] = rows[:lo], rows[hi:]
        count = (hi - lo) * D
        received = self._buffer("received", (self.size - 1) * count, rows)
        self._exchange(sent.view(-1), self._sizes(len(rows), D), received, self._equal_sizes(count))
        parts = list(received.view(self.size - 1, hi - lo, D))
        parts.insert(self.rank, rows[lo:hi])
        total = parts[0] + parts[1]
        for part in parts[2:]:
            total += part
        rows[lo:hi] = total

    def all_gather_rows(self, rows: Tensor) -> None:
        (lo, hi), D = self.row_range(len(rows)), rows.shape[1]
        sent = rows[lo:hi].reshape(-1).repeat(self.size - 1)
        received = self._buffer("received", (len(rows) - (hi - lo)) * D, rows)
        self._exchange(sent, self._equal_sizes((hi - lo) * D), received, self._sizes(len(rows), D))
        parts = received.view(-1, D)
        rows[:lo], rows[hi:] = parts[:lo], parts[lo:]

    def all_to_all_rows(self, rows: Array, send: Counts, receive: Counts) -> Array:
        width = rows.shape[1]
        sent = torch.from_numpy(np.ascontiguousarray(rows).reshape(-1))
        received = torch.empty(sum(receive) * width, dtype=sent.dtype)
        self._exchange(sent, [n * width for n in send], received, [n * width for n in receive])
        return received.numpy().reshape(-1, width)

    def gather(self, array: Array) -> list[Array]:
        parts: list[Any] | None = [None] * self.size if self.rank == 0 else None
        self._call(dist.gather_object, array, parts)
        self.bytes_sent += array.nbytes if self.rank else 0
        return parts or []

    def broadcast(self, value: T) -> T:
        values: list[Any] = [value]
        self._call(dist.broadcast_object_list, values)
        result: T = values[0]
        return result

    def barrier(self) -> None:
        self._call(dist.barrier)

    def first_to_report(self) -> bool:
        try:
            return self._store is None or self._store.add("cfnade/reported", 1) == 1
        except (RuntimeError, ValueError):  # the rank that had the store is gone
            return True

    # -- pieces -------------------------------------------------------------------------------

    def _sizes(self, n_rows: int, width: int) -> list[int]:
        """Return how many numbers of so many rows belong to each other rank; 0 for this one."""
        ranges = (self.row_range(n_rows, rank) for rank in range(self.size))
        sizes = [(hi - lo) * width for lo, hi in ranges]
        sizes[self.rank] = 0
        return sizes

    def _equal_sizes(self, count: int) -> list[int]:
        """Return so many numbers for each other rank."""
        return [0 if rank == self.rank else count for rank in range(self.size)]

    def _buffer(self, name: str, size: int, like: Tensor) -> Tensor:
        """Return memory that is used again."""
        buffer = self._buffers.get(name)
        if buffer is None or len(buffer) < size or buffer.dtype != like.dtype:
            buffer = self._buffers[name] = torch.empty(size, dtype=like.dtype)
        return buffer[:size]

    def _exchange(self, sent: Tensor, send: Counts, received: Tensor, receive: Counts) -> None:
        self._call(dist.all_to_all_single, received, sent, list(receive), list(send))
        self.bytes_sent += (sum(send) - send[self.rank]) * sent.element_size()

    def _call(self, collective: Callable[..., Any], *arguments: Any) -> None:
        began = time.monotonic()
        try:
            collective(*arguments)
        except RuntimeError as error:
            waited = time.monotonic() - began
            fault = "does not answer" if waited > 0.9 * self._timeout else "is gone"
            raise RankLostError(
                f"rank {self.rank} of {self.size}: another rank {fault} (after {waited:.0f} s)"
            ) from error


@contextmanager
def process_group(timeout: float = TIMEOUT) -> Iterator[ProcessGroup]:
    """Join the ranks that torchrun, Ray or Spark started; SINGLE_PROCESS if there are none.

    A process group that exists already, as under Ray, is used and left as it is.
    """
    if dist.is_initialized():
        yield GlooGroup(timeout) if dist.get_world_size() > 1 else SINGLE_PROCESS
    elif "RANK" not in os.environ:
        yield SINGLE_PROCESS
    else:
        store = _join(timedelta(seconds=timeout))
        try:
            yield GlooGroup(timeout, store) if dist.get_world_size() > 1 else SINGLE_PROCESS
        finally:
            dist.destroy_process_group()


def _join(timeout: timedelta) -> Store:
    """Find the other ranks of this start: torchrun's store still has the addresses of the last."""
    start = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    try:
        store, rank, size = next(rendezvous("env://", timeout=timeout))
        store.set_timeout(timeout)
        prefixed = PrefixStore(f"start {start}", store)
        dist.init_process_group("gloo", store=prefixed, rank=rank, world_size=size, timeout=timeout)
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[0][:160]
        raise RankLostError(
            f"rank {os.environ['RANK']} of {os.environ.get('WORLD_SIZE', '?')}: cannot reach the "
            f"others ({reason})"
        ) from error
    return prefixed
