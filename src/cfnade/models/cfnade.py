"""CF-NADE: predict each rating of a row from the ratings known before it.

Zheng, Tang, Ding and Zhou, "A Neural Autoregressive Approach to Collaborative Filtering",
ICML 2016. Equation numbers are that paper's, its symbols are explained in docs/concepts/model.md.
B rows of a batch, T targets, M columns, K levels (0..K-1 here, 1..K there), H hidden units,
J factors, D the width of a table: H for full weights, J for factored ones.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn

from cfnade.models.batch import Context, ModelBatch, require_indices, require_shape
from cfnade.models.config import CFNADEConfig, require
from cfnade.models.initialization import (
    OwnedColumns,
    glorot_,
    level_steps,
    smoothed_log_frequencies,
)
from cfnade.models.losses import hybrid_cost
from cfnade.models.table_ops import cell_scores, context_sum

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "relu": torch.relu,
}


class CFNADENetwork(nn.Module):
    """One network for all rows. Parameters are 0 until `initialise` or a checkpoint fills them."""

    W: nn.Parameter
    V: nn.Parameter
    A: nn.Parameter
    B: nn.Parameter
    P: nn.Parameter
    Q: nn.Parameter

    def __init__(self, config: CFNADEConfig) -> None:
        super().__init__()
        self.config = config
        self._g = _ACTIVATIONS[config.activation]
        M, K, J, sizes = config.columns, config.levels, config.factors, config.hidden
        if J is None:
            self.W = _zeros(M, K, sizes[0])
            self.V = _zeros(M, K, sizes[-1])
        else:
            self.A, self.B = _zeros(M, K, J), _zeros(sizes[0], J)  # Eq. 11: W^k = B A^k
            self.P, self.Q = _zeros(M, K, J), _zeros(J, sizes[-1])  # Eq. 12: V^k = P^k Q
        self.b = _zeros(M, K)
        self.c = _zeros(sizes[0])
        pairs = list(pairwise(sizes))
        self.deep_W = nn.ParameterList(_zeros(out, inner) for inner, out in pairs)
        self.deep_c = nn.ParameterList(_zeros(out) for _, out in pairs)

    # -- Eq. 2, 8, 9, 11, 20: what is known of a row ------------------------------------------

    @property
    def input_table(self) -> Tensor:
        """What a known rating adds: W, or A if factored. (M, K, D)."""
        return self.W if self.config.factors is None else self.A

    def hidden(self, context: Context) -> Tensor:
        """Summarise each row's context. Returns (B, H) of the last layer.

        An empty context gives g(c), the model's opinion of a row it has never met.
        """
        context.check(columns=self.config.columns, levels=self.config.levels)
        sums = context_sum(self.input_table, context, shared=self.config.shared)  # (B, D)
        return self.hidden_from_sums(sums, context.counts())

    def hidden_from_sums(self, sums: Tensor, counts: Tensor) -> Tensor:
        """The same from summed embeddings (B, D) of `counts` (B,) ratings each. Returns (B, H)."""
        if self.config.mean_context is not None:
            # √(n̄/n): a sum of n independent terms grows with √n. No ratings, no sum to scale.
            ratio = self.config.mean_context / counts.clamp(min=1).to(sums.dtype)
            sums = sums * ratio.sqrt().unsqueeze(1)
        if self.config.factors is not None:
            sums = sums @ self.B.T  # Eq. 11 after the sum: B Σ A = Σ B A. (B, H)
        h = self._g(self.c + sums)  # Eq. 2, 9. (B, H)
        for W, c in zip(self.deep_W, self.deep_c, strict=True):
            h = self._g(c + h @ W.T)  # Eq. 20. (B, H_l)
        return h

    # -- Eq. 4, 7, 10, 12: scores before the softmax ------------------------------------------

    @property
    def output_table(self) -> Tensor:
        """What the state is compared with: V, or P if factored. (M, K, D)."""
        return self.V if self.config.factors is None else self.P

    def output_state(self, hidden: Tensor) -> Tensor:
        """h, or Q h if factored (Eq. 12): what meets the output table. Returns (B, D)."""
        return hidden if self.config.factors is None else hidden @ self.Q.T

    def scores(self, hidden: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        """Scores of all levels for cells (rows[t], columns[t]), given hidden (B, H). (T, K)."""
        require_shape("hidden", hidden, (hidden.shape[0], self.config.hidden[-1]))
        require_indices("rows", rows, hidden.shape[0], "rows")
        require_indices("columns", columns, self.config.columns, "columns")
        require_shape("columns", columns, tuple(rows.shape))
        state, shared = self.output_state(hidden), self.config.shared
        return cell_scores(state, self.output_table, self.b, rows, columns, shared=shared)

    # -- Eq. 18, 19, 21: the cost ------------------------------------------------------------

    def cost(self, batch: ModelBatch) -> Tensor:
        """Eq. 19 and 21: the mean over the batch's rows of each row's weighted sum of costs.

        As in the authors' code the mean is over rows, not targets: a long row counts for more.
        """
        batch.check(columns=self.config.columns, levels=self.config.levels)
        require(batch.context.size > 0, "the batch has 0 rows; a cost needs at least one")
        targets = batch.targets
        scores = self.scores(self.hidden(batch.context), targets.rows, targets.columns)  # (T, K)
        costs = hybrid_cost(scores, targets.levels, self.config.ordinal_weight)  # (T,)
        return (targets.weights.to(costs.dtype) * costs).sum() / batch.context.size

    # -- parameters --------------------------------------------------------------------------

    def biases(self) -> list[nn.Parameter]:
        return [self.b, self.c, *self.deep_c]

    def initialise(self, generator: torch.Generator, owned: OwnedColumns | None = None) -> None:
        """Draw weights, clear biases: uniform in ±√(6 / fans), fans counting columns, not levels.

        W, V use M + H as in the authors' code; the paper gives no rule for factors, so each factor
        gets its own two sides: A, P use M + J and B, Q use J + H. M are all columns, even if only
        those that are `owned` are here.
        """
        M, J, sizes = self.config.columns, self.config.factors, self.config.hidden
        M = M if owned is None else owned.n_columns
        if J is None:
            glorot_(self.W, M, sizes[0], generator, owned)
            glorot_(self.V, M, sizes[-1], generator, owned)
        else:
            glorot_(self.A, M, J, generator, owned)
            glorot_(self.B, J, sizes[0], generator)
            glorot_(self.P, M, J, generator, owned)
            glorot_(self.Q, J, sizes[-1], generator)
        for W in self.deep_W:
            glorot_(W, W.shape[1], W.shape[0], generator)
        for bias in self.biases():
            nn.init.zeros_(bias)

    def initialise_biases(
        self, counts: Tensor, *, smoothing: float, total: Tensor | None = None
    ) -> None:
        """Set b so that a row with h = 0 is predicted by its columns' smoothed frequencies.

        counts (M, K) are the training ratings of each column at each level, total (K,) of all.
        """
        require_shape("counts", counts, (self.config.columns, self.config.levels))
        scores = smoothed_log_frequencies(counts, smoothing, total)  # (M, K)
        with torch.no_grad():
            self.b.copy_(level_steps(scores) if self.config.shared else scores)


def _zeros(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.zeros(*shape))
