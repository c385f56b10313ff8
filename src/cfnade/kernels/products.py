"""Matrix products of many rows, by torch: unlike numpy's, each of our threads can have its own.

Whoever answers one person needs none of it, and so imports it late.
"""

from __future__ import annotations

import numpy as np
import torch

from cfnade.kernels.memory import Array


def product(rows: Array, others: Array) -> Array:
    """rows @ others.T, for (B, D) and (M, D). Returns (B, M)."""
    return np.asarray((torch.from_numpy(rows) @ torch.from_numpy(others).T).numpy())


def add_product(total: Array, rows: Array, others: Array, share: float) -> None:
    """total += share · rows @ others.T, for (B, M), (B, D) and (M, D)."""
    torch.from_numpy(total).addmm_(torch.from_numpy(rows), torch.from_numpy(others).T, alpha=share)


def level_products(states: Array, table: Array, bias: Array, *, shared: bool) -> Array:
    """Scores of every column for each state (B, S), level by level. Returns (B, K, M)."""
    weights, first = torch.from_numpy(table), torch.from_numpy(bias)
    M, K = first.shape
    state, out = torch.from_numpy(states), first.new_empty(len(states), K, M)
    for k in range(K):
        torch.addmm(first[:, k], state, weights[:, k].T, out=out[:, k])
        if shared and k:
            out[:, k] += out[:, k - 1]
    return np.asarray(out.numpy())
