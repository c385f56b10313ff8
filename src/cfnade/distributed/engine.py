"""A training step on several processes, each of which holds some columns of the tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from cfnade.distributed.process_group import ProcessGroup
from cfnade.kernels.adam import AdamRule
from cfnade.kernels.buffers import Array, RowBuffers, unpadded
from cfnade.kernels.column_groups import ColumnGroups
from cfnade.kernels.column_passes import update_output_table
from cfnade.kernels.engine import Engine, ThreadWork
from cfnade.kernels.sampling import GroupedBatch
from cfnade.kernels.threads import NO_WAIT, even_ranges, run_parallel
from cfnade.models.config import CFNADEConfig


class DistributedEngine(Engine):
    """Train the columns of a CF-NADE that this process holds; batches have their ratings.

    Sums of rows are added over processes, each of which then does the hidden layers of its share
    of the rows.
    """

    _merges_rows = False

    def __init__(
        self,
        config: CFNADEConfig,
        arrays: Mapping[str, Array],
        rules: Mapping[str, AdamRule],
        *,
        group: ProcessGroup,
        **options: Any,
    ) -> None:
        super().__init__(config, arrays, rules, **options)
        self._group = group

    def step(self, batch: GroupedBatch, *, scale: Array | None = None, rate: float = 1.0) -> float:
        """Make a step, and return its cost over all processes."""
        self.encode(batch.context, scale)
        self.start_step(rate)
        arguments = self._target_arguments(batch.targets, 1.0 / batch.size)
        parts = [(*fit[:2], NO_WAIT, *fit[2:]) for fit in arguments]
        cost = float(sum(run_parallel(update_output_table, parts)))
        self.fit_context(batch.context)
        return self._group.total(cost)

    def encode(self, context: ColumnGroups, scale: Array | None = None) -> Array:
        """Return the state of each row, (B, D'), and keep it for the fits."""
        self._reserve(context, scale)
        run_parallel(self._prepare_and_sum, list(enumerate(self._sum_arguments(context))))
        self._sum_rows(self._in)
        work = [ThreadWork(t, rows) for t, rows in enumerate(self._row_ranges())]
        self._run_threads(
            lambda _, part: self._hidden.forward(NO_WAIT, part.rows, self._rows), work
        )
        states = unpadded(self._rows.state, self._output.memory.layout)
        self._group.all_gather_rows(torch.from_numpy(states))
        return states

    def fit_context(self, context: ColumnGroups) -> None:
        """Update the input table and the dense parameters, once the targets have been fitted."""
        self._sum_rows(self._output.memory)
        work = self._context_work(context)
        self._run_threads(
            lambda _, part: self._hidden.backward(part.number, NO_WAIT, part.rows, self._rows), work
        )
        self._group.all_gather_rows(torch.from_numpy(self._in.matrix()))
        self._group.all_reduce(self._hidden.merge_gradients())
        self._run_threads(lambda _, part: self._update(NO_WAIT, part), work)

    def _row_ranges(self) -> list[tuple[int, int]]:
        return even_ranges(*self._group.row_range(self._in.rows), self.threads)

    def _sum_rows(self, memory: RowBuffers) -> None:
        """Add the row sums of threads, then those of processes, into the first buffer."""
        run_parallel(memory.merge, even_ranges(0, memory.rows, self.threads))
        self._group.reduce_scatter_rows(torch.from_numpy(memory.matrix()))
