"""The ridge part: an exact Bayesian fold-in beside a CF-NADE, in plain torch.

A sum of embeddings cannot explain away: how much a rating says depends on which others are known. A
posterior can. A row is a point z in D dimensions with the prior N(0, diag(β)⁻¹); a rating of column
i at level r says that u_i·z is near some value, and less so if little is known of the column (q_i).
For a context C

    Λ = diag(β) + Σ_C (u_i u_iᵀ + diag q_i)        what is known, as a precision
    m = Λ⁻¹ Σ_C E_{i,r_i}                          what the row is like
    E_{i,r} = u_i e_{i,r} + Σ_{j≤r} W_{i,j}        what a rating says; with W = 0 exactly Bayes'
    ω = Σ_d λ_d (Λ⁻¹)_dd / Σ_d λ_d                 the share that is still unknown; no gradient
    γ = τ² / (σ² + (τ² - σ²) ω)                    how much sharper than the prior a prediction is

and level k of column i scores, as in Eq. 10,

    s_k = Σ_{j≤k} [ b_{i,j} + V_{i,j}·(γ m, ω) ]

All of it is trained by the paper's orderless cost (Eq. 19). u and e are kept as where they started
plus what was added, so that weight decay pulls them to their start. M columns, K levels, B rows.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from cfnade.models.batch import Context
from cfnade.models.config import RidgeConfig
from cfnade.models.table_ops import cell_scores, context_sum


class RidgeNetwork(nn.Module):
    """Parameters are zero until a start or a checkpoint fills them; buffers are not trained."""

    u_start: Tensor
    e_start: Tensor
    q: Tensor
    importance: Tensor
    start_noise: Tensor

    def __init__(self, config: RidgeConfig) -> None:
        super().__init__()
        self.config = config
        M, K, D = config.columns, config.levels, config.ridge
        self.u_added = nn.Parameter(torch.zeros(M, D))
        self.e_added = nn.Parameter(torch.zeros(M, K))
        self.W = nn.Parameter(torch.zeros(M, K, D))
        self.V = nn.Parameter(torch.zeros(M, K, D + 1))
        self.b = nn.Parameter(torch.zeros(M, K))
        self.log_prior = nn.Parameter(torch.zeros(D))  # log β
        self.register_buffer("u_start", torch.zeros(M, D))
        self.register_buffer("e_start", torch.zeros(M, K))
        self.register_buffer("q", torch.zeros(M, D))
        self.register_buffer("importance", torch.ones(D))  # λ
        # s² of the factor analysis that u_start, e_start and q come from.
        self.register_buffer("start_noise", torch.tensor(config.noise))

    @property
    def u(self) -> Tensor:
        """What a rating of each column is about. (M, D)."""
        return self.u_start + self.u_added

    @property
    def e(self) -> Tensor:
        """How far along u a rating at each level says that the row is. (M, K)."""
        return self.e_start + self.e_added

    def posterior(self, context: Context) -> tuple[Tensor, Tensor]:
        """Λ (B, D, D) and m (B, D) of each row."""
        context.check(columns=self.config.columns, levels=self.config.levels)
        D, size = self.config.ridge, context.size
        rows, columns, levels = context.rows(), context.columns.long(), context.levels.long()
        u, q = self.u[columns], self.q[columns]  # (C, D)
        told = u.unsqueeze(2) * u.unsqueeze(1) + torch.diag_embed(q)  # (C, D, D)
        precision = torch.diag(self.log_prior.exp()).expand(size, D, D)
        precision = precision.index_add(0, rows, told)
        evidence = self.e[columns, levels].unsqueeze(1) * u  # (C, D)
        sums = context_sum(self.W, context, shared=True).index_add(0, rows, evidence)  # (B, D)
        return precision, torch.linalg.solve(precision, sums.unsqueeze(2)).squeeze(2)

    def hidden(self, context: Context) -> Tensor:
        """(γ m, ω) of each row. Returns (B, D + 1)."""
        precision, mean = self.posterior(context)
        with torch.no_grad():
            variances = torch.linalg.inv(precision).diagonal(dim1=1, dim2=2)  # (B, D)
            unknown = (variances @ self.importance) / self.importance.sum()  # (B,)
        return torch.cat([self.config.gain(unknown).unsqueeze(1) * mean, unknown.unsqueeze(1)], 1)

    def scores(self, hidden: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        """Scores of all levels for cells (rows[t], columns[t]). Returns (T, K)."""
        return cell_scores(hidden, self.V, self.b, rows, columns, shared=True)
