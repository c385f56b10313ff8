"""One training step on CPUs: gradients never leave the cache, Adam updates each column at once.

A step is three passes: encode the rows' contexts, fit the targets (output table and bias move), fit
the contexts (all other parameters move). They are separate methods, too, for a member that adds the
scores of several components in between.

Arrays have the names of `CFNADENetwork`'s parameters, with `input_table` for W or A, `output_table`
for V or P, and `bias` for b.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from cfnade.distributed.process_group import SINGLE_PROCESS, ProcessGroup
from cfnade.exceptions import ModelError
from cfnade.kernels.adam import AdamParameter, AdamRule
from cfnade.kernels.buffers import Array, RowBuffers, aligned_zeros, unpadded
from cfnade.kernels.column_groups import ColumnGroups, partition_columns
from cfnade.kernels.column_passes import (
    OutputLayer,
    add_scores,
    sum_context,
    update_input_table,
    update_output_table,
    update_output_table_from_gradient,
)
from cfnade.kernels.hidden_layers import BatchRows, HiddenLayers
from cfnade.kernels.sampling import GroupedBatch
from cfnade.kernels.threads import (
    NO_WAIT,
    Barrier,
    BarrierPoint,
    even_ranges,
    run_parallel,
    thread_count,
)
from cfnade.models.config import CFNADEConfig

TABLES = ("input_table", "output_table")
SUM_COLUMN, CONTEXT_COLUMN, TARGET_COLUMN = 40.0, 80.0, 12.0
"""What a column costs a pass beside its ratings, counted in ratings: for cutting work evenly."""


class _ThreadWork(NamedTuple):
    """A thread's part of a step."""

    number: int
    rows: tuple[int, int]
    sum: tuple[Any, ...] = ()  # arguments of the kernels
    fit_targets: tuple[Any, ...] = ()
    fit_context: tuple[Any, ...] = ()


class Engine:
    """Train a CF-NADE's arrays in place.

    Args:
        config: The model's config.
        arrays: Its contiguous, writable arrays.
        rules: A rule for each of them.
        rowwise: Whether a table has one second moment per column and level, not one per weight.
        touched_only: Whether columns without ratings in a batch stay as they are. Otherwise they
            move as in torch's Adam (moments decay, the L2 term pulls), in a pass over all of them.
        threads: Number of threads; None is torch's number.
        group: The processes that hold the tables' other columns; batches then hold the ratings of
            the own columns.
    """

    def __init__(
        self,
        config: CFNADEConfig,
        arrays: Mapping[str, Array],
        rules: Mapping[str, AdamRule],
        *,
        rowwise: bool = False,
        touched_only: bool = False,
        threads: int | None = None,
        group: ProcessGroup = SINGLE_PROCESS,
    ) -> None:
        if differ := set(arrays) ^ set(rules):
            raise ModelError(
                f"rules must name exactly the arrays {sorted(arrays)}; these differ: "
                f"{sorted(differ)}"
            )
        self.config, self.arrays, self.rules = config, dict(arrays), dict(rules)
        self.rowwise, self.touched_only = rowwise, touched_only
        self.threads, self.group = thread_count(threads), group
        self.steps = 0
        self.moments = {name: self._zero_moments(name) for name in arrays}
        self._in = RowBuffers(arrays["input_table"], self.threads)
        self._out = RowBuffers(arrays["output_table"], self.threads)
        self._hidden = HiddenLayers(arrays, config.activation, self.threads, group)
        empty = aligned_zeros(self._in.flat.dtype, 0)
        self._rows = BatchRows(self._in, self._out, empty, empty)
        self._all_columns = np.arange(len(arrays["bias"]), dtype=np.int32)
        self._flat = {
            name: [part.reshape(-1) for part in (array, *self.moments[name])]
            for name, array in self.arrays.items()
        }
        self._adam_steps = {name: rule.at_step(1) for name, rule in rules.items()}

    def _zero_moments(self, name: str) -> tuple[Array, Array]:
        """First and second moments; NumPy asks for huge pages where there are any."""
        array = self.arrays[name]
        second = array.shape[:2] if self.rowwise and name in TABLES else array.shape
        return np.zeros(array.shape, array.dtype), np.zeros(second, array.dtype)

    # -- a whole step -----------------------------------------------------------------------

    def step(self, batch: GroupedBatch, *, scale: Array | None = None, rate: float = 1.0) -> float:
        """Encode, fit targets and fit context with one hand-over to the threads.

        Args:
            batch: Context and targets of some rows.
            scale: Factors of the rows' summed contexts, (B,); None is 1.
            rate: Factor of all learning rates.

        Returns:
            The batch's cost: Σ weight·cost over its targets / its rows.
        """
        if batch.size == 0:
            raise ModelError("the batch has 0 rows; a step needs at least one")
        if self.group.size > 1:
            self.encode(batch.context, scale)
            self.start_step(rate)
            cost = self.fit_targets(batch.targets, 1.0 / batch.size)
            self.fit_context(batch.context)
            return self.group.total(cost)
        self._reserve(batch.context, scale)
        self.start_step(rate)
        fits = self._fit_arguments(batch.targets, self._cost_options(batch.targets, 1 / batch.size))
        sums, moves = self._sum_arguments(batch.context), self._move_arguments(batch.context)
        parts = zip(range(self.threads), self._row_ranges(), sums, fits, moves, strict=True)
        return float(sum(self._run_threads(self._step, [_ThreadWork(*part) for part in parts])))

    def _step(self, barrier: Barrier, work: _ThreadWork) -> float:
        """A thread waits for the others four times, each time inside the next kernel."""
        first, second, third, fourth = (barrier.point(work.number, n) for n in range(1, 5))
        self._encode(first, work)
        cost = update_output_table(*work.fit_targets[:2], second, *work.fit_targets[2:])
        self._fit_context(third, fourth, work)
        return float(cost)

    def _run_threads(
        self, function: Callable[[Barrier, _ThreadWork], Any], parts: Sequence[_ThreadWork]
    ) -> list[Any]:
        """Call the function for each thread's work, with one barrier for all."""
        barrier = Barrier(self.threads)

        def run_part(work: _ThreadWork) -> Any:
            with barrier.release_on_error(work.number):
                return function(barrier, work)

        return run_parallel(run_part, [(work,) for work in parts])

    def start_step(self, rate: float = 1.0) -> None:
        """Count a step: what is fitted from here on moves by its rules at that count."""
        self.steps += 1
        self._adam_steps = {n: rule.at_step(self.steps, rate) for n, rule in self.rules.items()}

    # -- pass 1: contexts to states ----------------------------------------------------------

    def encode(self, context: ColumnGroups, scale: Array | None = None) -> Array:
        """The state of each row from its context, kept for the fits. Returns (B, D')."""
        self._reserve(context, scale)
        sums = self._sum_arguments(context)
        parts = zip(range(self.threads), self._row_ranges(), sums, strict=True)
        work = [_ThreadWork(*part) for part in parts]
        if self.group.size == 1:
            self._run_threads(
                lambda barrier, one: self._encode(barrier.point(one.number, 1), one), work
            )
        else:
            run_parallel(self._prepare_and_sum, list(enumerate(sums)))
            self._sum_over_processes(self._in)
            self._run_threads(
                lambda _, one: self._hidden.forward(NO_WAIT, one.rows, self._rows), work
            )
        states = unpadded(self._rows.state, self._out.layout)
        self._gather_rows(states)
        return states

    def _prepare_and_sum(self, thread: int, arguments: tuple[Any, ...]) -> None:
        self._hidden.prepare(thread)
        sum_context(*arguments)

    def _reserve(self, context: ColumnGroups, scale: Array | None) -> None:
        """Make room for a batch."""
        dtype, state = self._in.flat.dtype, self._rows.state
        for memory in (self._in, self._out, self._hidden):
            memory.reserve(context.n_rows)
        if len(state) != self._out.size:
            state = aligned_zeros(dtype, self._out.size)
        factors = np.empty(0, dtype) if scale is None else scale.astype(dtype)
        self._rows = BatchRows(self._in, self._out, state, factors)

    def _sum_arguments(self, context: ColumnGroups) -> list[tuple[Any, ...]]:
        memory, columns = self._in, context.present
        fixed = (columns, context.arrays, memory.flat, memory.layout, self.config.shared)
        cuts = enumerate(self._column_ranges(context, columns, SUM_COLUMN))
        return [(*cut, *fixed, memory.part(t), memory.scratch[t]) for t, cut in cuts]

    def _encode(self, point: BarrierPoint, work: _ThreadWork) -> None:
        self._prepare_and_sum(work.number, work.sum)
        self._hidden.forward(point, work.rows, self._rows)

    # -- pass 2: targets ---------------------------------------------------------------------

    def fit_targets(self, targets: ColumnGroups, factor: float) -> float:
        """Update output table and bias by factor · Σ weight·cost. Returns that cost."""
        fits = self._fit_arguments(targets, self._cost_options(targets, factor))
        parts = [(*fit[:2], NO_WAIT, *fit[2:]) for fit in fits]
        return float(sum(run_parallel(update_output_table, parts)))

    def _cost_options(self, targets: ColumnGroups, factor: float) -> tuple[Any, ...]:
        ordinal = float(self.config.ordinal_weight)
        return targets.weights, *self._output_layer(), ordinal, factor

    def add_scores(self, targets: ColumnGroups, out: Array) -> None:
        """Add the scores of grouped cells to out (T, K), at the place of each cell as given."""
        memory, columns = self._out, targets.present
        tables = memory.flat, self._flat["bias"][0]
        output = OutputLayer(self._rows.state, *tables, memory.layout, self.config.shared)
        fixed = (columns, targets.arrays, targets.order, output, out.reshape(-1))
        cuts = enumerate(self._column_ranges(targets, columns, TARGET_COLUMN))
        run_parallel(add_scores, [(*cut, *fixed, memory.scratch[t]) for t, cut in cuts])

    def fit_scores(self, targets: ColumnGroups, gradient: Array) -> None:
        """As `fit_targets`, from the gradient of the scores (T, K), cells in the order given."""
        options = (targets.order, gradient.reshape(-1), *self._output_layer())
        run_parallel(update_output_table_from_gradient, self._fit_arguments(targets, options))

    def _fit_arguments(
        self, targets: ColumnGroups, options: tuple[Any, ...]
    ) -> list[tuple[Any, ...]]:
        memory, columns = self._out, self._updated_columns(targets)
        fixed = (columns, targets.arrays, *options)
        cuts = enumerate(self._column_ranges(targets, columns, TARGET_COLUMN))
        return [(*cut, *fixed, memory.part(t), memory.scratch[t]) for t, cut in cuts]

    def _output_layer(self) -> tuple[Any, ...]:
        """What the fits read: states, table and bias with their moments, layout, sharing."""
        parameters = self._parameter("output_table"), self._parameter("bias")
        return self._rows.state, parameters, self._out.layout, self.config.shared

    # -- pass 3: contexts --------------------------------------------------------------------

    def fit_context(self, context: ColumnGroups) -> None:
        """Update the input table and the dense parameters, once the targets have been fitted."""
        moves = self._move_arguments(context)
        parts = zip(self._row_ranges(), moves, strict=True)
        work = [_ThreadWork(t, rows, fit_context=move) for t, (rows, move) in enumerate(parts)]
        if self.group.size == 1:
            self._run_threads(
                lambda barrier, one: self._fit_context(
                    barrier.point(one.number, 0), barrier.point(one.number, 1), one
                ),
                work,
            )
            return
        self._sum_over_processes(self._out)
        self._run_threads(
            lambda _, one: self._hidden.backward(one.number, NO_WAIT, one.rows, self._rows), work
        )
        self._gather_rows(self._in.matrix())
        self._hidden.sum_over_processes()
        self._run_threads(lambda _, one: self._update(NO_WAIT, one), work)

    def _move_arguments(self, context: ColumnGroups) -> list[tuple[Any, ...]]:
        memory, columns = self._in, self._updated_columns(context)
        fixed = (columns, context.arrays, memory.part(0), memory.layout, self.config.shared)
        parameter = self._parameter("input_table")
        cuts = enumerate(self._column_ranges(context, columns, CONTEXT_COLUMN))
        return [(*cut, *fixed, parameter, memory.scratch[t]) for t, cut in cuts]

    def _fit_context(self, before: BarrierPoint, after: BarrierPoint, work: _ThreadWork) -> None:
        self._hidden.backward(work.number, before, work.rows, self._rows)
        self._update(after, work)

    def _update(self, point: BarrierPoint, work: _ThreadWork) -> None:
        update_input_table(*work.fit_context[:2], point, *work.fit_context[2:])
        self._hidden.update(work.number, self._parameter)

    # -- shared pieces -----------------------------------------------------------------------

    def _updated_columns(self, groups: ColumnGroups) -> Array:
        return groups.present if self.touched_only else self._all_columns

    def _column_ranges(
        self, groups: ColumnGroups, columns: Array, fixed: float
    ) -> list[tuple[int, int]]:
        return partition_columns(columns, groups.starts, fixed, self.threads)

    def _row_ranges(self) -> list[tuple[int, int]]:
        return even_ranges(*self.group.row_range(self._in.rows), self.threads)

    def _parameter(self, name: str) -> AdamParameter:
        """A parameter, flat, with its moments and its rule at this step."""
        table, moment, square = self._flat[name]
        is_rowwise = self.rowwise and name in TABLES
        return AdamParameter(table, moment, square, self._adam_steps[name], is_rowwise)

    def _sum_over_processes(self, memory: RowBuffers) -> None:
        """Add the row sums of threads, then those of processes, into the first buffer."""
        import torch

        run_parallel(memory.merge, even_ranges(0, memory.rows, self.threads))
        self.group.reduce_scatter_rows(torch.from_numpy(memory.matrix()))

    def _gather_rows(self, rows: Array) -> None:
        if self.group.size > 1:
            import torch

            self.group.all_gather_rows(torch.from_numpy(rows))
