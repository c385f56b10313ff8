"""Collectives among the ranks that train one model together, each with some columns of all tables.

This is the division of work among threads (kernels/buffers.py), extended to processes: every rank
takes the same rows of a batch and sums over its own columns. One sum over ranks gives the state of
a row, one returns its gradient. Tables never travel. Each rank holds the dense layers whole and
applies them to its own range of the rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from torch import Tensor

Array = npt.NDArray[Any]
Counts = Sequence[int]
T = TypeVar("T")


class ProcessGroup(ABC):
    """Collectives among `size` ranks; all ranks call the same methods in the same order."""

    rank: int
    size: int

    def row_range(self, n_rows: int, rank: int | None = None) -> tuple[int, int]:
        """Return the rows lo..hi of a batch that a rank turns into states, by default this one."""
        rank = self.rank if rank is None else rank
        return n_rows * rank // self.size, n_rows * (rank + 1) // self.size

    @abstractmethod
    def all_reduce(self, array: Array) -> Array:
        """Replace an array by its sum over ranks, the same bits on each. Returns it."""

    @abstractmethod
    def reduce_scatter_rows(self, rows: Tensor) -> None:
        """Replace this rank's range of rows (B, D) by its sum over ranks, added in rank order.

        The content of the other rows is undefined afterwards.
        """

    @abstractmethod
    def all_gather_rows(self, rows: Tensor) -> None:
        """Fill in the row ranges (B, D) of the other ranks."""

    @abstractmethod
    def all_to_all_rows(self, rows: Array, send: Counts, receive: Counts) -> Array:
        """Send send[r] rows (n, K) to each rank r in order; return the receive[r] rows of each."""

    @abstractmethod
    def gather(self, array: Array) -> list[Array]:
        """Return the arrays of all ranks, which may differ in length, on rank 0; [] elsewhere."""

    @abstractmethod
    def broadcast(self, value: T) -> T:
        """Return rank 0's value on every rank."""

    @abstractmethod
    def barrier(self) -> None:
        """Wait until all ranks are here."""

    def total(self, number: float) -> float:
        """Return a number's sum over ranks."""
        return float(self.all_reduce(np.array([number], np.float64))[0])

    def any_rank(self, condition: bool) -> bool:
        """Return whether the condition holds on any rank."""
        return self.total(float(condition)) > 0

    def first_to_report(self) -> bool:
        """Return whether no other rank called this before: of one fault one rank reports."""
        return True

    def __deepcopy__(self, memo: object) -> ProcessGroup:
        """Copies of a model are in the same group."""
        return self


class SingleProcess(ProcessGroup):
    """One process: nothing to add, nothing to wait for."""

    rank, size = 0, 1

    def all_reduce(self, array: Array) -> Array:
        return array

    def reduce_scatter_rows(self, rows: Tensor) -> None:
        pass

    def all_gather_rows(self, rows: Tensor) -> None:
        pass

    def all_to_all_rows(self, rows: Array, send: Counts, receive: Counts) -> Array:
        del send, receive
        return rows

    def gather(self, array: Array) -> list[Array]:
        return [array]

    def broadcast(self, value: T) -> T:
        return value

    def barrier(self) -> None:
        pass


SINGLE_PROCESS = SingleProcess()
