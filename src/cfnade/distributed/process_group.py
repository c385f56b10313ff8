"""Processes that train one model together, each with some of the columns of all tables.

It is the division of work among threads (kernels/buffers.py), stretched over processes: every one
takes the same rows of a batch and adds up what its own columns say of them. One sum over ranks
gives what is known of a row, one brings the gradient of its state back. Tables never travel. A rank
holds the dense layers whole and works them for its own share of the rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from torch import Tensor

Array = npt.NDArray[Any]
Counts = Sequence[int]


class ProcessGroup(ABC):
    """`size` ranks, of which this process is number `rank`. All must call the same in one order."""

    rank: int
    size: int

    def row_range(self, rows: int) -> tuple[int, int]:
        """The rows lo..hi of a batch that this rank turns into states."""
        return self.row_range_of(self.rank, rows)

    def row_range_of(self, rank: int, rows: int) -> tuple[int, int]:
        """The same of any rank."""
        return rows * rank // self.size, rows * (rank + 1) // self.size

    @abstractmethod
    def all_reduce(self, array: Array) -> Array:
        """Replace an array by its sum over ranks, the same bits on each. Returns it."""

    @abstractmethod
    def reduce_scatter_rows(self, rows: Tensor) -> None:
        """Replace this rank's share of rows (B, D) by its sum over ranks, added in their order.

        The other rows are left with no meaning.
        """

    @abstractmethod
    def all_gather_rows(self, rows: Tensor) -> None:
        """Give all ranks every rank's share of rows (B, D)."""

    @abstractmethod
    def all_to_all_rows(self, rows: Array, to: Counts, since: Counts) -> Array:
        """Send to[r] rows (n, K) to each rank r, one after the other, and get since[r] of its."""

    @abstractmethod
    def gather(self, own: Array) -> list[Array]:
        """Arrays of all ranks that differ in length alone, on rank 0; nothing on the others."""

    @abstractmethod
    def broadcast(self, text: str) -> str:
        """What rank 0 says."""

    @abstractmethod
    def barrier(self) -> None:
        """Go on once all are here."""

    def total(self, number: float) -> float:
        """A number's sum over ranks."""
        return float(self.all_reduce(np.array([number], np.float64))[0])

    def any_rank(self, said: bool) -> bool:
        """Whether anybody says so."""
        return self.total(float(said)) > 0

    def __deepcopy__(self, memo: object) -> ProcessGroup:
        """Copies of a model are in the same group."""
        return self


class SingleProcess(ProcessGroup):
    """One process: there is nothing to add, and nobody to wait for."""

    rank, size = 0, 1

    def all_reduce(self, array: Array) -> Array:
        return array

    def reduce_scatter_rows(self, rows: Tensor) -> None:
        pass

    def all_gather_rows(self, rows: Tensor) -> None:
        pass

    def all_to_all_rows(self, rows: Array, to: Counts, since: Counts) -> Array:
        del to, since
        return rows

    def gather(self, own: Array) -> list[Array]:
        return [own]

    def broadcast(self, text: str) -> str:
        return text

    def barrier(self) -> None:
        pass


SINGLE_PROCESS = SingleProcess()
