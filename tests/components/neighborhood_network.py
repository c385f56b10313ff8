"""What is left near by: a sparse Gaussian correction, in plain torch.

A factor analysis of few dimensions (factor_network.py) explains what is common to many columns.
What it leaves of a row's rating of column j, that rating left out of its own prediction, is

    e_j = r_j - μ_j - a_j·m_{-j}

and goes together where columns are alike in something that nothing else shares: parts of a series,
say. Such residuals of columns i and j have the covariance R_ij, which is 0 for nearly all pairs,
and the variance v_j. So what is expected to be left of column i, given a context C, is

    w = (R_CC + diag v)⁻¹ e_C        c_i = Σ_{j ∈ C} R_ij w_j

and it is said as a score that rises or falls with the level k, s_k = k·(g·c_i + h): the mean moves
by g·c_i + h times the variance of what the other sides say. The gain g and the shift h, for sides
whose means are a little too high, are found by validation; until then they are 0.
M columns, K levels, P pairs of columns, each in both orders.
"""

from __future__ import annotations

import torch
from tests.components.factor_network import FactorNetwork
from torch import Tensor, nn

from cfnade.models.batch import Context
from cfnade.models.config import NeighborhoodConfig


class NeighborhoodNetwork(nn.Module):
    """Buffers only; they are empty until they are filled from ratings or a checkpoint."""

    starts: Tensor
    others: Tensor
    covariances: Tensor
    variances: Tensor
    gain: Tensor
    shift: Tensor

    def __init__(self, config: NeighborhoodConfig) -> None:
        super().__init__()
        self.config = config
        M = config.columns
        self.factors = FactorNetwork(config.factors)
        self.register_buffer("starts", torch.zeros(M + 1, dtype=torch.int32))
        self.register_buffer("others", torch.zeros(config.pairs, dtype=torch.int32))
        self.register_buffer("covariances", torch.zeros(config.pairs))  # R, column by column
        self.register_buffer("variances", torch.ones(M))  # v
        self.register_buffer("gain", torch.zeros(()))  # g
        self.register_buffer("shift", torch.zeros(()))  # h

    def residuals(self, context: Context) -> Tensor:
        """e of every known rating, in the context's order. Returns (C,)."""
        rows, left = context.rows(), []
        for place in range(context.columns.numel()):
            kept = rows == rows[place]
            kept[place] = False
            columns, levels = context.columns[kept], context.levels[kept]
            rest = Context(torch.tensor([0, columns.numel()]), columns, levels)
            hidden = self.factors.hidden(rest)
            cell = torch.zeros(1, dtype=torch.int64), context.columns[place : place + 1]
            left.append(context.levels[place] - self.factors.predicted(hidden, *cell)[0, 0])
        return torch.stack(left) if left else self.variances.new_zeros(0)

    def dense(self) -> Tensor:
        """R as a table. Returns (M, M)."""
        M = self.config.columns
        table = self.covariances.new_zeros(M, M)
        table[torch.arange(M).repeat_interleave(self.starts.long().diff()), self.others.long()] = (
            self.covariances
        )
        return table

    def corrections(self, context: Context, rows: Tensor, columns: Tensor) -> Tensor:
        """c of cells (rows[t], columns[t]). Returns (T,)."""
        residuals, table = self.residuals(context), self.dense()
        out = self.variances.new_zeros(len(rows))
        for t in range(len(rows)):
            part = slice(*context.offsets[rows[t] : rows[t] + 2].tolist())
            others = context.columns[part].long()
            if len(others):
                matrix = table[others][:, others] + self.variances[others].diag()
                weights = torch.linalg.solve(matrix, residuals[part].to(table))
                out[t] = table[columns[t], others] @ weights
        return out

    def scores(self, context: Context, rows: Tensor, columns: Tensor) -> Tensor:
        """Scores of cells. Returns (T, K)."""
        k = torch.arange(self.config.levels).to(self.variances)
        if not self.gain:
            return (self.shift * k).expand(len(rows), -1)
        slopes = self.gain * self.corrections(context, rows, columns) + self.shift
        return slopes.unsqueeze(1) * k
