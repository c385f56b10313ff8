"""Distributions and expected values of given cells; one row at a time is in request.py."""

from __future__ import annotations

import torch
from torch import Tensor

from cfnade.kernels.autograd import cell_scores
from cfnade.kernels.checks import require_tensor


def probabilities(
    state: Tensor,
    table: Tensor,
    bias: Tensor,
    rows: Tensor,
    columns: Tensor,
    *,
    shared: bool,
    threads: int | None = None,
) -> Tensor:
    """The distribution over levels of the given cells. Returns (T, K)."""
    with torch.no_grad():
        scores = cell_scores(state, table, bias, rows, columns, shared=shared, threads=threads)
        return scores.softmax(1)


def expected_values(
    state: Tensor,
    table: Tensor,
    bias: Tensor,
    rows: Tensor,
    columns: Tensor,
    values: Tensor,
    *,
    shared: bool,
    threads: int | None = None,
) -> Tensor:
    """The expected value of the given cells; values (K,) says what a level is worth. (T,)."""
    chances = probabilities(state, table, bias, rows, columns, shared=shared, threads=threads)
    require_tensor("values", values, (chances.shape[1],), values.dtype)
    return chances @ values.to(chances.dtype)
