"""Shapes and types of arrays, checked before a kernel runs: kernels check nothing."""

from __future__ import annotations

import numpy as np

from cfnade.exceptions import ModelError
from cfnade.kernels.memory import Array

FLOATS = (np.dtype(np.float32), np.dtype(np.float64))
MAX_LEVELS = 255


def require_array(name: str, array: Array, shape: tuple[int | None, ...], dtype: object) -> None:
    """That dtype and shape; None stands for any size."""
    if array.dtype != dtype:
        raise ModelError(f"{name} has dtype {array.dtype}; it must be {dtype}")
    fits = array.ndim == len(shape) and all(
        want is None or got == want for got, want in zip(array.shape, shape, strict=True)
    )
    if not fits:
        allowed = str(tuple("any" if size is None else size for size in shape)).replace("'", "")
        raise ModelError(f"{name} has shape {array.shape}; it must be {allowed}")


def require_table(name: str, table: Array) -> tuple[int, int, int]:
    """A contiguous (M, K, D) table of floats, 2..255 levels. Returns its shape."""
    if table.dtype not in FLOATS:
        raise ModelError(f"{name} has dtype {table.dtype}; it must be float32 or float64")
    require_array(name, table, (None, None, None), table.dtype)
    M, K, D = table.shape
    if not (M >= 1 and 2 <= K <= MAX_LEVELS and D >= 1):
        raise ModelError(
            f"{name} has shape {table.shape}; it must be (columns, levels, width) with "
            f"2..{MAX_LEVELS} levels and no empty side"
        )
    if not table.flags.c_contiguous:
        raise ModelError(f"{name} is not contiguous; give a copy that is")
    return M, K, D
