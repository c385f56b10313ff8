"""Factor analysis as a model of ratings, in plain torch: the simplest that explains away.

A row is a point z ~ N(0, I) in D dimensions, and a rating of column i is r = μ_i + a_i·z + ε, the
noise ε having the variance s². Loadings a_i are known up to variances c_i. Given a context C

    Λ = I + Σ_C (a_i a_iᵀ + diag c_i) / s²          what is known, as a precision
    m = Λ⁻¹ Σ_C a_i (r_i - μ_i) / s²                what the row is like
    η = μ_i + a_i·m                                 what column i is expected to get
    ω = Σ_d λ_d (Λ⁻¹)_dd / Σ_d λ_d                  the share that is still unknown

and components/mean_link.py makes a distribution of η and ω. Nothing here is trained by gradients:
components/variational_bayes.py or components/gibbs.py fits all of it. Of several samples S, each
with its own loadings, means and noise, η and ω are the means. M columns, K levels, B rows.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from cfnade.models.batch import Context
from cfnade.models.config import FactorConfig


class FactorNetwork(nn.Module):
    """Buffers only; they are empty until an analysis or a checkpoint fills them."""

    a: Tensor
    c: Tensor
    mean: Tensor
    importance: Tensor
    noise: Tensor
    log_weights: Tensor
    variances: Tensor

    def __init__(self, config: FactorConfig) -> None:
        super().__init__()
        self.config = config
        M, K, D, S = config.columns, config.levels, config.dimensions, config.samples
        self.register_buffer("a", torch.zeros(M, S * D))
        self.register_buffer("c", torch.zeros(M, S * D))
        self.register_buffer("mean", torch.zeros(M, S))  # μ
        self.register_buffer("importance", torch.ones(S * D))  # λ
        self.register_buffer("noise", torch.ones(S))  # s²
        self.register_buffer("log_weights", torch.zeros(K))  # log w: how much a level is liked
        self.register_buffer("variances", torch.ones(2))  # v, where all and where nothing is known
        self.register_load_state_dict_pre_hook(_as_one_sample)  # type: ignore[no-untyped-call]

    def sample(self, number: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """a, c (M, D), μ (M,), λ (D,) and s² of one sample."""
        D = self.config.dimensions
        own = slice(number * D, (number + 1) * D)
        parts = self.a[:, own], self.c[:, own], self.mean[:, number], self.importance[own]
        return *parts, self.noise[number]

    def hidden(self, context: Context) -> Tensor:
        """(m of each sample, ω) of each row. Returns (B, S D + 1)."""
        context.check(columns=self.config.columns, levels=self.config.levels)
        posteriors = [self._posterior(number, context) for number in range(self.config.samples)]
        unknown = torch.stack([one for _, one in posteriors]).mean(0)
        return torch.cat([*(means for means, _ in posteriors), unknown.unsqueeze(1)], 1)

    def _posterior(self, number: int, context: Context) -> tuple[Tensor, Tensor]:
        """m (B, D) and ω (B,) of one sample."""
        loadings, uncertain, mean, importance, noise = self.sample(number)
        D, size = self.config.dimensions, context.size
        rows, columns = context.rows(), context.columns.long()
        a = loadings[columns]  # (C, D)
        told = (a.unsqueeze(2) * a.unsqueeze(1) + torch.diag_embed(uncertain[columns])) / noise
        precision = torch.eye(D).to(a).expand(size, D, D).index_add(0, rows, told)
        left = context.levels.to(a) - mean[columns]
        sums = a.new_zeros(size, D).index_add(0, rows, a * (left / noise).unsqueeze(1))
        means = torch.linalg.solve(precision, sums.unsqueeze(2)).squeeze(2)
        variances = torch.linalg.inv(precision).diagonal(dim1=1, dim2=2)  # (B, D)
        return means, (variances @ importance) / importance.sum()

    def predicted(self, hidden: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        """(η, ω) of cells (rows[t], columns[t]). Returns (T, 2)."""
        state, columns = hidden[rows.long()], columns.long()
        tastes = (state[:, :-1] * self.a[columns]).sum(1) / self.config.samples
        return torch.stack([self.mean[columns].mean(1) + tastes, state[:, -1]], 1)


def _as_one_sample(network: FactorNetwork, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """Weights that were saved when there was one sample only have no axis for it."""
    for name in ("mean", "noise"):
        key, own = prefix + name, getattr(network, name)
        if key in state and state[key].numel() == own.numel():
            state[key] = state[key].reshape(own.shape)
