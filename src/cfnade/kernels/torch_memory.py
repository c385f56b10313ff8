"""The same memory as torch sees it: training has its dense layers there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from cfnade.kernels.buffers import Array, BlockLayout, RowBuffers, unpadded


class Workspace(RowBuffers[Tensor]):
    """A table, flat, and what each thread needs to work on it."""

    def __init__(self, table: Tensor, threads: int) -> None:
        super().__init__(table.detach().numpy(), threads, unpad)


def unpad(rows: Array, shape: BlockLayout) -> Tensor:
    """A view of padded rows without the padding. Returns (rows, D)."""
    return torch.from_numpy(unpadded(rows, shape))


def large_zeros(shape: Sequence[int], kind: torch.dtype) -> Tensor:
    """Zeros by numpy, which asks for large pages where there are any; torch does not."""
    dtype = torch.empty(0, dtype=kind).numpy().dtype
    return torch.from_numpy(np.zeros(tuple(shape), dtype))
