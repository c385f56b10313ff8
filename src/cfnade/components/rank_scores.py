"""Scores of cells in a rank's own columns; a column that was not trained is the mean of those that
were, on all ranks."""

from __future__ import annotations

import numpy as np

from cfnade._typing import IntArray
from cfnade.components.base import THIN, OutputTable
from cfnade.distributed.process_group import Array, ProcessGroup
from cfnade.kernels.column_groups import Cells
from cfnade.kernels.scoring import cell_scores


def rank_scores(
    group: ProcessGroup, output: OutputTable, states: Array, cells: Cells, trained: IntArray
) -> Array:
    """trained (M,) are the columns' training ratings. Returns (n, K)."""
    table, bias, shared = output
    scores = cell_scores(states, table, bias, cells.rows, cells.columns, shared=shared)
    weights = (trained / (trained + THIN)).astype(table.dtype)
    sums = np.concatenate([np.tensordot(weights, table, 1).ravel(), weights @ bias])
    mean = group.all_reduce(sums) / max(1e-9, group.total(float(weights.sum())))
    unseen = np.flatnonzero(trained[cells.columns] == 0)
    if len(unseen):
        split, mean = table[0].size, mean.astype(table.dtype)
        one = mean[:split].reshape(1, *table.shape[1:]), mean[split:].reshape(1, -1)
        asked = cells.rows[unseen], np.zeros(len(unseen), np.int64)
        scores[unseen] = cell_scores(states, *one, *asked, shared=shared)
    return scores
