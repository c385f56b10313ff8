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

from cfnade.exceptions import ModelError
from cfnade.kernels.adam import AdamRule, AdamState
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
from cfnade.kernels.threads import Barrier, BarrierPoint, even_ranges, run_parallel, thread_count
from cfnade.models.config import CFNADEConfig

SUM_COLUMN, CONTEXT_COLUMN, TARGET_COLUMN = 40.0, 80.0, 12.0
"""Cost of a column in each pass besides its ratings, in ratings: work is divided evenly by it."""

KernelArguments = tuple[Any, ...]


class OutputPass:
    """Scores of rows' states against an output table and its bias, and the updates of both.

    Args:
        parameters: Holds table (M, K, D) and bias (M, K).
        table: Name of the table.
        bias: Name of the bias.
        shared: Whether scores are cumulated over levels (Eq. 10).
        sparse: Whether columns without targets stay as they are.
        threads: Number of threads.
    """

    def __init__(
        self,
        parameters: AdamState,
        table: str,
        bias: str,
        *,
        shared: bool,
        sparse: bool,
        threads: int,
    ) -> None:
        self._parameters, self._names = parameters, (table, bias)
        self._shared, self._sparse = shared, sparse
        self._bias = parameters.arrays[bias].reshape(-1)
        self.memory = RowBuffers(parameters.arrays[table], threads)

    def add_scores(self, states: Array, targets: ColumnGroups, out: Array) -> None:
        """Add the scores of grouped cells to out (T, K), at the place of each cell as given."""
        memory = self.memory
        output = OutputLayer(states, memory.flat, self._bias, memory.layout, self._shared)
        fixed = (targets.present, targets.arrays, targets.order, output, out.reshape(-1))
        cuts = partition_columns(targets.present, targets.starts, TARGET_COLUMN, memory.threads)
        parts = [(*cut, *fixed, scratch) for cut, scratch in zip(cuts, memory.scratch, strict=True)]
        run_parallel(add_scores, parts)

    def fit_scores(self, states: Array, targets: ColumnGroups, gradient: Array) -> None:
        """Update table and bias, given the gradient of the scores (T, K) in the order given.

        The gradients of the states are in the threads' buffers of `memory`.
        """
        options = targets.order, gradient.reshape(-1), states
        parts = self.update_arguments(targets, options, ())
        run_parallel(update_output_table_from_gradient, parts)

    def update_arguments(
        self, targets: ColumnGroups, first: KernelArguments, last: KernelArguments
    ) -> list[KernelArguments]:
        """Return each thread's arguments of an update: the given ones around the parameters."""
        memory, columns = self.memory, _updated_columns(targets, sparse=self._sparse)
        updates = tuple(self._parameters.parameter(name) for name in self._names)
        fixed = (columns, targets.arrays, *first, updates, memory.layout, self._shared, *last)
        cuts = partition_columns(columns, targets.starts, TARGET_COLUMN, memory.threads)
        return [(*cut, *fixed, memory.part(t), memory.scratch[t]) for t, cut in enumerate(cuts)]


class ThreadWork(NamedTuple):
    """A thread's part of a step."""

    number: int
    rows: tuple[int, int]
    sum: KernelArguments = ()
    fit_targets: KernelArguments = ()
    fit_context: KernelArguments = ()


class Engine:
    """Train a CF-NADE's arrays in place.

    Args:
        config: The model's config.
        arrays: Its contiguous, writable arrays.
        rules: A rule for each of them.
        sparse: Whether a table has one second moment per column and level, and columns without
            ratings in a batch stay as they are. Otherwise they move as in torch's Adam (moments
            decay, the L2 term pulls), in a pass over all of them.
        threads: Number of threads; None is torch's number.
    """

    _merges_rows = True
    """Whether the threads' row sums are still to be added up when the hidden layers read them."""

    def __init__(
        self,
        config: CFNADEConfig,
        arrays: Mapping[str, Array],
        rules: Mapping[str, AdamRule],
        *,
        sparse: bool = False,
        threads: int | None = None,
    ) -> None:
        self.config, self.sparse, self.threads = config, sparse, thread_count(threads)
        rowwise = ("input_table", "output_table") if sparse else ()
        self.parameters = AdamState(arrays, rules, rowwise)
        self._in = RowBuffers(arrays["input_table"], self.threads)
        shared = config.shared
        self._output = OutputPass(
            self.parameters,
            "output_table",
            "bias",
            shared=shared,
            sparse=sparse,
            threads=self.threads,
        )
        self._hidden = HiddenLayers(
            arrays, config.activation, self.threads, merges_rows=self._merges_rows
        )
        empty = aligned_zeros(self._in.flat.dtype, 0)
        self._rows = BatchRows(self._in, self._output.memory, empty, empty)

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
        self._reserve(batch.context, scale)
        self.start_step(rate)
        fits = self._target_arguments(batch.targets, 1 / batch.size)
        sums, moves = self._sum_arguments(batch.context), self._move_arguments(batch.context)
        parts = zip(range(self.threads), self._row_ranges(), sums, fits, moves, strict=True)
        return float(sum(self._run_threads(self._step, [ThreadWork(*part) for part in parts])))

    def _step(self, barrier: Barrier, work: ThreadWork) -> float:
        """A thread waits for the others four times, each time inside the next kernel."""
        first, second, third, fourth = (barrier.point(work.number, n) for n in range(1, 5))
        self._encode(first, work)
        cost = update_output_table(*work.fit_targets[:2], second, *work.fit_targets[2:])
        self._fit_context(third, fourth, work)
        return float(cost)

    def _run_threads(
        self, function: Callable[[Barrier, ThreadWork], Any], parts: Sequence[ThreadWork]
    ) -> list[Any]:
        """Call the function for each thread's work, with one barrier for all."""
        barrier = Barrier(self.threads)

        def run_part(work: ThreadWork) -> Any:
            with barrier.release_on_error(work.number):
                return function(barrier, work)

        return run_parallel(run_part, [(work,) for work in parts])

    def start_step(self, rate: float = 1.0) -> None:
        """Count a step: what is fitted from here on moves by its rules at that count."""
        self.parameters.start_step(rate)

    # -- pass 1: contexts to states ----------------------------------------------------------

    def encode(self, context: ColumnGroups, scale: Array | None = None) -> Array:
        """Return the state of each row from its context, (B, D'), and keep it for the fits."""
        self._reserve(context, scale)
        parts = zip(self._row_ranges(), self._sum_arguments(context), strict=True)
        work = [ThreadWork(t, rows, sum=arguments) for t, (rows, arguments) in enumerate(parts)]
        self._run_threads(
            lambda barrier, part: self._encode(barrier.point(part.number, 1), part), work
        )
        return unpadded(self._rows.state, self._output.memory.layout)

    def _encode(self, point: BarrierPoint, work: ThreadWork) -> None:
        self._prepare_and_sum(work.number, work.sum)
        self._hidden.forward(point, work.rows, self._rows)

    def _prepare_and_sum(self, thread: int, arguments: KernelArguments) -> None:
        self._hidden.prepare(thread)
        sum_context(*arguments)

    def _reserve(self, context: ColumnGroups, scale: Array | None) -> None:
        """Make room for a batch."""
        dtype, state, output = self._in.flat.dtype, self._rows.state, self._output.memory
        for memory in (self._in, output, self._hidden):
            memory.reserve(context.n_rows)
        if len(state) != output.size:
            state = aligned_zeros(dtype, output.size)
        factors = np.empty(0, dtype) if scale is None else scale.astype(dtype)
        self._rows = BatchRows(self._in, output, state, factors)

    def _sum_arguments(self, context: ColumnGroups) -> list[KernelArguments]:
        memory, columns = self._in, context.present
        fixed = (columns, context.arrays, memory.flat, memory.layout, self.config.shared)
        cuts = partition_columns(columns, context.starts, SUM_COLUMN, self.threads)
        return [(*cut, *fixed, memory.part(t), memory.scratch[t]) for t, cut in enumerate(cuts)]

    # -- pass 2: targets ---------------------------------------------------------------------

    def add_scores(self, targets: ColumnGroups, out: Array) -> None:
        """Add the scores of grouped cells to out (T, K), at the place of each cell as given."""
        self._output.add_scores(self._rows.state, targets, out)

    def fit_scores(self, targets: ColumnGroups, gradient: Array) -> None:
        """Update output table and bias by the gradient of the scores (T, K), in the order given."""
        self._output.fit_scores(self._rows.state, targets, gradient)

    def _target_arguments(self, targets: ColumnGroups, factor: float) -> list[KernelArguments]:
        ordinal = float(self.config.ordinal_weight)
        options = targets.weights, self._rows.state
        return self._output.update_arguments(targets, options, (ordinal, factor))

    # -- pass 3: contexts --------------------------------------------------------------------

    def fit_context(self, context: ColumnGroups) -> None:
        """Update the input table and the dense parameters, once the targets have been fitted."""
        self._run_threads(
            lambda barrier, part: self._fit_context(
                barrier.point(part.number, 0), barrier.point(part.number, 1), part
            ),
            self._context_work(context),
        )

    def _context_work(self, context: ColumnGroups) -> list[ThreadWork]:
        parts = zip(self._row_ranges(), self._move_arguments(context), strict=True)
        return [ThreadWork(t, rows, fit_context=move) for t, (rows, move) in enumerate(parts)]

    def _move_arguments(self, context: ColumnGroups) -> list[KernelArguments]:
        memory, columns = self._in, _updated_columns(context, sparse=self.sparse)
        fixed = (columns, context.arrays, memory.part(0), memory.layout, self.config.shared)
        parameter = self.parameters.parameter("input_table")
        cuts = partition_columns(columns, context.starts, CONTEXT_COLUMN, self.threads)
        return [(*cut, *fixed, parameter, memory.scratch[t]) for t, cut in enumerate(cuts)]

    def _fit_context(self, before: BarrierPoint, after: BarrierPoint, work: ThreadWork) -> None:
        self._hidden.backward(work.number, before, work.rows, self._rows)
        self._update(after, work)

    def _update(self, point: BarrierPoint, work: ThreadWork) -> None:
        update_input_table(*work.fit_context[:2], point, *work.fit_context[2:])
        self._hidden.update(work.number, self.parameters.parameter)

    def _row_ranges(self) -> list[tuple[int, int]]:
        """Return each thread's rows of the hidden layers."""
        return even_ranges(0, self._in.rows, self.threads)


def _updated_columns(groups: ColumnGroups, *, sparse: bool) -> Array:
    return groups.present if sparse else np.arange(groups.n_columns, dtype=np.int32)
