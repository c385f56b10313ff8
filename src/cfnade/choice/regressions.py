"""The regressions that the linear path is made of, solved by torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from cfnade.choice.choice_side import ScoreArray, Tables
from cfnade.choice.linear import LinearConfig
from cfnade.kernels.cooccurrence import neighbour_systems

EXACT = 8_000
"""Up to so many items the inverse is made in double precision; it costs twice the memory."""

_AT_ONCE = 256  # regressions that are solved together


def dense_weights(counts: ScoreArray, config: LinearConfig) -> ScoreArray:
    """B from XᵀX (M, M), which is used up."""
    exact = torch.float64 if len(counts) <= EXACT else torch.float32
    gram = torch.from_numpy(counts).to(exact)
    gram.diagonal().mul_(1 + config.doubt).add_(config.penalty)
    torch.linalg.cholesky(gram, out=gram)
    inverse = torch.cholesky_inverse(gram).T  # the same matrix; torch gives it by columns
    weights = inverse.div_(-inverse.diagonal().clone()).float()
    weights.fill_diagonal_(0.0)
    return np.ascontiguousarray(weights.numpy())  # as rows are read


def sparse_weights(columns: Any, counts: Any, config: LinearConfig) -> Tables:
    """Each item's regression on its neighbours, from the largest parts of XᵀX (M, most + 1)."""
    M, n = config.columns, config.neighbours
    of, weights = np.full((M, n), -1, np.int32), np.zeros((M, n), np.float32)
    for first in range(0, M, _AT_ONCE):
        items = np.arange(first, min(first + _AT_ONCE, M))
        of[items], grams, targets = neighbour_systems(
            items, columns, counts, n, config.penalty, config.doubt
        )
        weights[items] = _solved(torch.from_numpy(grams), torch.from_numpy(targets)).numpy()
    weights[of < 0] = 0.0
    return {"of": of, "B": weights}


def _solved(grams: Tensor, targets: Tensor) -> Tensor:
    """grams (b, n, n) x = targets (b, n). Counts that were not kept may leave a gram indefinite:
    its diagonal is then raised until it is not."""
    while True:
        factors, failed = torch.linalg.cholesky_ex(grams)
        bad = failed.nonzero().flatten()
        if not len(bad):
            return torch.cholesky_solve(targets.unsqueeze(2), factors).squeeze(2)
        grams.diagonal(dim1=1, dim2=2)[bad] *= 1.5
