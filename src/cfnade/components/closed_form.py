"""Rating components that are fitted at once; gradients do not move them."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np

from cfnade.components.base import Array, Axis, RatingComponent, Reading
from cfnade.components.readings import RowReading, reading_of
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

    @abstractmethod
    def row_reading(self, rows: CsrRows) -> RowReading:
        """Return its scores of these rows."""

    def reading(self, context: Dataset) -> Reading:
        return reading_of(self.axis, self.row_reading(context.rows(self.axis)), context)

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
        return self.row_reading(rows).cells(targets.rows, targets.columns)


def rows_of_batch(batch: GroupedBatch) -> RaggedRows:
    """Return the contexts of a batch row by row."""
    context = batch.context
    order = np.argsort(context.rows, kind="stable")
    columns = np.repeat(np.arange(context.n_columns, dtype=np.int32), np.diff(context.starts))
    offsets = offsets_from_counts(np.bincount(context.rows, minlength=batch.size))
    return RaggedRows(offsets, columns[order], context.levels[order])
