"""Rating components that are fitted at once; gradients do not move them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cfnade.components.base import Array, Axis, Pairs, RatingComponent
from cfnade.config import TrainingConfig
from cfnade.data.csr import CsrRows, offsets_from_counts
from cfnade.data.dataset import Dataset
from cfnade.kernels.posterior import RaggedRows

if TYPE_CHECKING:
    from torch import Tensor

    from cfnade.components.base import Trainer
    from cfnade.components.batches import Batch
    from cfnade.kernels.sampling import GroupedBatch


class ClosedFormComponent(RatingComponent):
    """Beside trained components its scores are added to theirs."""

    axis: Axis
    closed_form = True

    def trainer(
        self, ratings: Dataset, settings: TrainingConfig, *, share: float, threads: int
    ) -> Trainer:
        from cfnade.components.optimizers import FixedTrainer

        del ratings, settings, share, threads
        return FixedTrainer(self)

    def torch_scores(self, network: Any, batch: Batch) -> Tensor:
        import torch

        del network
        return torch.from_numpy(self.batch_scores(batch))

    def batch_scores(self, batch: Batch) -> Array:
        """Return scores of a batch's targets, (T, K)."""
        drawn = batch.batches[self.axis]
        ragged, targets = rows_of_batch(drawn), drawn.target_cells()
        rows = CsrRows(*ragged, drawn.context.n_columns, self.config.levels)
        row, column = targets.rows.astype(np.int64), targets.columns.astype(np.int64)
        return self.scorer(rows).score_pairs(Pairs(rows, row, column, row, np.full(len(row), -1)))


def rows_of_batch(batch: GroupedBatch) -> RaggedRows:
    """Return the contexts of a batch row by row."""
    context = batch.context
    order = np.argsort(context.rows, kind="stable")
    columns = np.repeat(np.arange(context.n_columns, dtype=np.int32), np.diff(context.starts))
    offsets = offsets_from_counts(np.bincount(context.rows, minlength=batch.size))
    return RaggedRows(offsets, columns[order], context.levels[order])
