"""The training step on CPU: gradients never leave the cache, Adam moves each column at once.

A step is three passes: encode the rows' contexts, fit the targets (output table and bias move), fit
the contexts (all other parameters move). They are separate methods, so that a model made of two
engines can add both engines' scores in between.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from cfnade.distributed.process_group import SINGLE_PROCESS, ProcessGroup
from cfnade.exceptions import ModelError
from cfnade.kernels.adam import AdamParameter, AdamRule
from cfnade.kernels.buffers import Array, aligned_zeros
from cfnade.kernels.column_groups import ColumnGroups, partition_columns
from cfnade.kernels.column_passes import (
    OutputLayer,
    add_scores,
    sum_context,
    update_input_table,
    update_output_table,
    update_output_table_from_gradient,
)
from cfnade.kernels.hidden_layers import BatchRows, even_ranges, make_hidden_layers
from cfnade.kernels.network import Network, check_network, check_rules
from cfnade.kernels.sampling import GroupedBatch
from cfnade.kernels.threads import NO_WAIT, Barrier, BarrierPoint, run_parallel, thread_count
from cfnade.kernels.torch_memory import Workspace, large_zeros, unpad

TABLES = ("input_table", "output_table")
SUM_COLUMN, CONTEXT_COLUMN, TARGET_COLUMN = 40.0, 80.0, 12.0
"""What a column costs a pass beside its ratings, counted in ratings: for cutting work evenly."""


class _ThreadWork(NamedTuple):
    """A thread's part of a step."""

    number: int
    rows: tuple[int, int]
    sum: tuple[Any, ...] = ()  # arguments of the kernels
    fit: tuple[Any, ...] = ()
    move: tuple[Any, ...] = ()


class Engine:
    """Trains a network in place. rules name every parameter of `network.named()`.

    rowwise: one second moment per column and level in both tables instead of one per weight.
    touched_only: columns without ratings in a batch stay as they are; otherwise they move as in
    torch's Adam (moments decay, the L2 term pulls), which costs a pass over all of them.
    group: who has the other columns of the tables; batches then hold the ratings of these columns.
    """

    def __init__(
        self,
        network: Network,
        rules: Mapping[str, AdamRule],
        *,
        ordinal_weight: float = 1.0,
        rowwise: bool = False,
        touched_only: bool = False,
        threads: int | None = None,
        group: ProcessGroup = SINGLE_PROCESS,
    ) -> None:
        check_network(network)
        check_rules(network, rules)
        if not 0.0 <= ordinal_weight <= 1.0:
            raise ModelError(f"ordinal_weight (={ordinal_weight}) must lie in 0..1")
        self.network, self.rules = network.detached(), dict(rules)
        self.ordinal_weight = ordinal_weight
        self.rowwise, self.touched_only = rowwise, touched_only
        self.threads, self.group = thread_count(threads), group
        self.steps = 0
        self.moments = {name: self._moments(name) for name in network.named()}
        self._in = Workspace(network.input_table, self.threads)
        self._out = Workspace(network.output_table, self.threads)
        self._hidden = make_hidden_layers(self.network, self.threads, group)
        nothing = aligned_zeros(self._in.flat.dtype, 0)
        self._rows = BatchRows(self._in, self._out, nothing, nothing)
        self._everything = np.arange(len(network.bias), dtype=np.int32)
        self._flat = {
            name: [part.view(-1).numpy() for part in (tensor, *self.moments[name])]
            for name, tensor in self.network.named().items()
        }
        self._numbers = {name: rule.numbers(1) for name, rule in rules.items()}

    def _moments(self, name: str) -> tuple[Tensor, Tensor]:
        tensor = self.network.named()[name]
        shape = tensor.shape[:2] if self.rowwise and name in TABLES else tensor.shape
        return large_zeros(tensor.shape, tensor.dtype), large_zeros(shape, tensor.dtype)

    # -- a whole step -----------------------------------------------------------------------

    def step(self, batch: GroupedBatch, *, scale: Array | None = None, rate: float = 1.0) -> float:
        """One update. Returns the batch's cost: Σ weight·cost over its targets / its rows.

        scale (B,) multiplies each row's summed context; rate multiplies all learning rates.
        """
        if batch.size == 0:
            raise ModelError("the batch has 0 rows; a step needs at least one")
        if self.group.size > 1:
            self.encode(batch.context, scale)
            self.start_step(rate)
            cost = self.fit_targets(batch.targets, 1.0 / batch.size)
            self.fit_context(batch.context)
            return self.group.total(cost)
        self._receive(batch.context, scale)
        self.start_step(rate)
        sums, moves = self._sums(batch.context), self._moves(batch.context)
        fits = self._fits(batch.targets, self._how(batch.targets, 1.0 / batch.size))
        parts = zip(range(self.threads), self._row_ranges(), sums, fits, moves, strict=True)
        return float(sum(self._together(self._step, [_ThreadWork(*part) for part in parts])))

    def _step(self, gates: Barrier, share: _ThreadWork) -> float:
        """A thread waits for the others four times, each time inside the next kernel."""
        first, second, third, fourth = (gates.point(share.number, n) for n in range(1, 5))
        self._encode(first, share)
        cost = update_output_table(*share.fit[:2], second, *share.fit[2:])
        self._back(third, fourth, share)
        return float(cost)

    def _together(
        self, work: Callable[[Barrier, _ThreadWork], Any], shares: Sequence[_ThreadWork]
    ) -> list[Any]:
        """Each thread does its share of the work, and stands at the same gates."""
        gates = Barrier(self.threads)

        def part(share: _ThreadWork) -> Any:
            with gates.release_on_error(share.number):
                return work(gates, share)

        with self._hidden.alone():
            return run_parallel(part, [(share,) for share in shares])

    def start_step(self, rate: float = 1.0) -> None:
        """Count a step: what is fitted from here on moves by its rules at that count."""
        self.steps += 1
        self._numbers = {n: rule.numbers(self.steps, rate) for n, rule in self.rules.items()}

    # -- pass 1: contexts to states ----------------------------------------------------------

    def encode(self, context: ColumnGroups, scale: Array | None = None) -> Tensor:
        """The state of each row from its context, kept for the fits. Returns (B, D')."""
        self._receive(context, scale)
        parts = zip(range(self.threads), self._row_ranges(), self._sums(context), strict=True)
        shares = [_ThreadWork(*part) for part in parts]
        if self.group.size == 1:
            self._together(
                lambda gates, share: self._encode(gates.point(share.number, 1), share), shares
            )
        else:
            run_parallel(sum_context, [share.sum for share in shares])
            self._add_up_ranks(self._in)
            self._together(
                lambda _, share: self._hidden.forward(
                    share.number, NO_WAIT, share.rows, self._rows
                ),
                shares,
            )
        states = unpad(self._rows.state, self._out.shape)
        self.group.all_gather_rows(states)
        return states

    def _receive(self, context: ColumnGroups, scale: Array | None) -> None:
        """Make room for a batch."""
        kind, state = self._in.flat.dtype, self._rows.state
        for memory in (self._in, self._out, self._hidden):
            memory.reserve(context.n_rows)
        if len(state) != self._out.size:
            state = aligned_zeros(kind, self._out.size)
        factors = np.empty(0, kind) if scale is None else scale.astype(kind)
        self._rows = BatchRows(self._in, self._out, state, factors)

    def _sums(self, context: ColumnGroups) -> list[tuple[Any, ...]]:
        memory, which = self._in, context.present
        fixed = (which, context.arrays, memory.flat, memory.shape, self.network.shared)
        cuts = enumerate(self._ranges(context, which, SUM_COLUMN))
        return [(*cut, *fixed, memory.part(t), memory.scratch[t]) for t, cut in cuts]

    def _encode(self, gate: BarrierPoint, share: _ThreadWork) -> None:
        self._hidden.begin(share.number)
        sum_context(*share.sum)
        self._hidden.forward(share.number, gate, share.rows, self._rows)

    # -- pass 2: targets ---------------------------------------------------------------------

    def fit_targets(self, targets: ColumnGroups, factor: float) -> float:
        """Move output table and bias down factor · Σ weight·cost. Returns that cost."""
        fits = self._fits(targets, self._how(targets, factor))
        return float(
            sum(run_parallel(update_output_table, [(*fit[:2], NO_WAIT, *fit[2:]) for fit in fits]))
        )

    def _how(self, targets: ColumnGroups, factor: float) -> tuple[Any, ...]:
        return targets.weights, *self._output(), self.ordinal_weight, factor

    def add_scores(self, targets: ColumnGroups, out: Array) -> None:
        """Add the scores of grouped cells to out (T, K), at the place of each cell as given."""
        memory, which = self._out, targets.present
        tables = memory.flat, self._flat["bias"][0]
        output = OutputLayer(self._rows.state, *tables, memory.shape, self.network.shared)
        fixed = (which, targets.arrays, targets.order, output, out.reshape(-1))
        cuts = enumerate(self._ranges(targets, which, TARGET_COLUMN))
        run_parallel(add_scores, [(*cut, *fixed, memory.scratch[t]) for t, cut in cuts])

    def fit_scores(self, targets: ColumnGroups, slopes: Array) -> None:
        """As `fit_targets`, from the gradient of the scores (T, K), cells in the order given."""
        how = (targets.order, slopes.reshape(-1), *self._output())
        run_parallel(update_output_table_from_gradient, self._fits(targets, how))

    def _fits(self, targets: ColumnGroups, how: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        memory, which = self._out, self._which(targets)
        fixed = (which, targets.arrays, *how)
        cuts = enumerate(self._ranges(targets, which, TARGET_COLUMN))
        return [(*cut, *fixed, memory.part(t), memory.scratch[t]) for t, cut in cuts]

    def _output(self) -> tuple[Any, ...]:
        """What scores are made of, as the fits read it: states, table and bias with their rules."""
        updates = self._update("output_table"), self._update("bias")
        return self._rows.state, updates, self._out.shape, self.network.shared

    # -- pass 3: contexts --------------------------------------------------------------------

    def fit_context(self, context: ColumnGroups) -> None:
        """Move the input table and the dense parameters, once the targets have been fitted."""
        parts = zip(self._row_ranges(), self._moves(context), strict=True)
        shares = [_ThreadWork(t, rows, move=move) for t, (rows, move) in enumerate(parts)]
        if self.group.size == 1:
            self._together(
                lambda gates, share: self._back(
                    gates.point(share.number, 0), gates.point(share.number, 1), share
                ),
                shares,
            )
            return
        self._add_up_ranks(self._out)
        self._together(
            lambda _, share: self._hidden.backward(share.number, NO_WAIT, share.rows, self._rows),
            shares,
        )
        self.group.all_gather_rows(self._in.matrix())
        self._hidden.add_up_ranks()
        self._together(lambda _, share: self._move(NO_WAIT, share), shares)

    def _moves(self, context: ColumnGroups) -> list[tuple[Any, ...]]:
        memory, which = self._in, self._which(context)
        fixed = (which, context.arrays, memory.part(0), memory.shape, self.network.shared)
        update = self._update("input_table")
        cuts = enumerate(self._ranges(context, which, CONTEXT_COLUMN))
        return [(*cut, *fixed, update, memory.scratch[t]) for t, cut in cuts]

    def _back(self, before: BarrierPoint, between: BarrierPoint, share: _ThreadWork) -> None:
        self._hidden.backward(share.number, before, share.rows, self._rows)
        self._move(between, share)

    def _move(self, gate: BarrierPoint, share: _ThreadWork) -> None:
        update_input_table(*share.move[:2], gate, *share.move[2:])
        self._hidden.move(share.number, self._update)

    # -- shared pieces -----------------------------------------------------------------------

    def _which(self, grouped: ColumnGroups) -> Array:
        return grouped.present if self.touched_only else self._everything

    def _ranges(self, grouped: ColumnGroups, which: Array, fixed: float) -> list[tuple[int, int]]:
        return partition_columns(which, grouped.starts, fixed, self.threads)

    def _add_up_ranks(self, memory: Workspace) -> None:
        """Add what threads found of rows, then what ranks did, into the first buffer."""
        with self._hidden.alone():
            run_parallel(memory.merge, even_ranges(0, memory.rows, self.threads))
        self.group.reduce_scatter_rows(memory.matrix())

    def _row_ranges(self) -> list[tuple[int, int]]:
        return even_ranges(*self.group.row_range(self._in.rows), self.threads)

    def _update(self, name: str) -> AdamParameter:
        """A parameter, flat, with its moments and its rule at this step."""
        table, moment, square = self._flat[name]
        together = self.rowwise and name in TABLES
        return AdamParameter(table, moment, square, self._numbers[name], together)
