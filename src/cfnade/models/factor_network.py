"""Factor analysis as a model of ratings, in plain torch: the simplest that explains away.

A row is a point z ~ N(0, I) in D dimensions, and a rating of column i is r = μ_i + a_i·z + ε, the
noise ε having the variance s². Loadings a_i are known up to variances c_i. Given a context C

    Λ = I + Σ_C (a_i a_iᵀ + diag c_i) / s²          what is known, as a precision
    m = Λ⁻¹ Σ_C a_i (r_i - μ_i) / s²                what the row is like
    η = μ_i + a_i·m                                 what column i is expected to get
    ω = Σ_d λ_d (Λ⁻¹)_dd / Σ_d λ_d                  the share that is still unknown

and mean_link.py makes a distribution of η and ω. Nothing here is trained by gradients: all of it is
filled by variational Bayes (sides/factors.py). M columns, K levels, B rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import torch
from torch import Tensor, nn

from cfnade.errors import ModelError
from cfnade.models.batch import Context
from cfnade.models.mean_link import MeanLink
from cfnade.options import check_fields, whole


@dataclass(frozen=True, kw_only=True)
class FactorConfig:
    """The sizes of a factor analysis."""

    columns: Annotated[int, whole(1)]
    levels: Annotated[int, whole(2)]
    dimensions: Annotated[int, whole(1)]
    """D."""

    def __post_init__(self) -> None:
        check_fields(self, ModelError)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> FactorConfig:
        try:
            return cls(**values)
        except TypeError as error:
            raise ModelError(f"{dict(values)} are not the fields of a factor analysis") from error


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
        M, K, D = config.columns, config.levels, config.dimensions
        self.register_buffer("a", torch.zeros(M, D))
        self.register_buffer("c", torch.zeros(M, D))
        self.register_buffer("mean", torch.zeros(M))  # μ
        self.register_buffer("importance", torch.ones(D))  # λ
        self.register_buffer("noise", torch.ones(()))  # s²
        self.register_buffer("log_weights", torch.zeros(K))  # log w: how much a level is liked
        self.register_buffer("variances", torch.ones(2))  # v, where all and where nothing is known

    def hidden(self, context: Context) -> Tensor:
        """(m, ω) of each row. Returns (B, D + 1)."""
        context.check(columns=self.config.columns, levels=self.config.levels)
        D, size = self.config.dimensions, context.size
        rows, columns = context.rows(), context.columns.long()
        a = self.a[columns]  # (C, D)
        told = (a.unsqueeze(2) * a.unsqueeze(1) + torch.diag_embed(self.c[columns])) / self.noise
        precision = torch.eye(D).to(a).expand(size, D, D).index_add(0, rows, told)
        left = context.levels.to(a) - self.mean[columns]
        sums = a.new_zeros(size, D).index_add(0, rows, a * (left / self.noise).unsqueeze(1))
        means = torch.linalg.solve(precision, sums.unsqueeze(2)).squeeze(2)
        variances = torch.linalg.inv(precision).diagonal(dim1=1, dim2=2)  # (B, D)
        unknown = (variances @ self.importance) / self.importance.sum()
        return torch.cat([means, unknown.unsqueeze(1)], 1)

    def predicted(self, hidden: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        """(η, ω) of cells (rows[t], columns[t]). Returns (T, 2)."""
        state, columns = hidden[rows.long()], columns.long()
        means = self.mean[columns] + (state[:, :-1] * self.a[columns]).sum(1)
        return torch.stack([means, state[:, -1]], 1)

    def link(self) -> MeanLink:
        """From (η, ω) to scores, for the weights and variances as they are."""
        noise, spread = self.variances.tolist()
        return MeanLink(self.log_weights.cpu().numpy(), noise, spread)
