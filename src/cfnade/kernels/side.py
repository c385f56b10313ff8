"""One table's working memory: scratch for the kernels and a buffer of rows for every thread."""

from __future__ import annotations

import torch
from torch import Tensor

from cfnade.kernels.layout import Array, Shape, buffer, scratch_of, shape_of


class Side:
    """The table flat, its shape as the kernels want it, and room for rows of its width."""

    def __init__(self, table: Tensor, threads: int) -> None:
        _, K, D = table.shape
        self.shape = shape_of(K, D)
        self.flat: Array = table.detach().view(-1).numpy()
        self.scratch = [scratch_of(self.flat.dtype, self.shape) for _ in range(threads)]
        self.threads = threads
        self.rows = 0
        self._memory: Array = buffer(self.flat.dtype, 0)

    def reserve(self, rows: int) -> None:
        """Make room for a buffer of `rows` rows per thread."""
        self.rows = rows
        if len(self._memory) < self.threads * self.size:
            self._memory = buffer(self.flat.dtype, self.threads * self.size)

    @property
    def size(self) -> int:
        """Numbers in one buffer."""
        return self.rows * self.shape.pitch

    @property
    def joined(self) -> Array:
        """All buffers, one after the other."""
        return self._memory[: self.threads * self.size]

    def part(self, thread: int) -> Array:
        """One thread's buffer."""
        return self._memory[thread * self.size : (thread + 1) * self.size]

    def matrix(self) -> Tensor:
        """The first buffer without padding. Returns (rows, D)."""
        return unpad(self.part(0), self.shape)


def unpad(rows: Array, shape: Shape) -> Tensor:
    """A view of padded rows without the padding. Returns (rows, D)."""
    return torch.from_numpy(rows).view(-1, shape.pitch)[:, : shape.width]
