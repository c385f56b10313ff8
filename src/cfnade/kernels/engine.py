"""The training step on CPU: gradients never leave the cache, Adam moves each column at once.

A step is three passes: encode the rows' contexts, fit the targets (output table and bias move), fit
the contexts (all other parameters move). They are separate methods, so that a model made of two
engines can add both engines' scores in between.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cfnade.errors import ModelError
from cfnade.group import ALONE, Group
from cfnade.kernels.adam import Rule, Update
from cfnade.kernels.drawing import DrawnBatch
from cfnade.kernels.grouping import Grouped, partition
from cfnade.kernels.memory import Array, buffer, padded
from cfnade.kernels.network import Network, Trace, backward, check_network, check_rules, forward
from cfnade.kernels.passes import (
    Output,
    add_scores,
    context_step,
    flat_step,
    score_step,
    sum_context,
    target_step,
)
from cfnade.kernels.threads import one_torch_thread, run, thread_count
from cfnade.kernels.torch_memory import Workspace, large_zeros, unpad

TABLES = ("input_table", "output_table")
SUM_COLUMN, CONTEXT_COLUMN, TARGET_COLUMN = 40.0, 80.0, 12.0
"""What a column costs a pass beside its ratings, counted in ratings: for cutting work evenly."""


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
        rules: Mapping[str, Rule],
        *,
        ordinal_weight: float = 1.0,
        rowwise: bool = False,
        touched_only: bool = False,
        threads: int | None = None,
        group: Group = ALONE,
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
        self._state: Array = buffer(self._in.flat.dtype, 0)  # (B · pitch,)
        self._states = unpad(self._state, self._out.shape)  # (B, D'), the same memory
        self._scale: Tensor | None = None  # (B, 1)
        self._everything = np.arange(len(network.bias), dtype=np.int32)
        self._dense, self._grads = self._gradients()
        self._grad_views = [self._views(part) for part in self._dense]
        self._flat = {
            name: [part.view(-1).numpy() for part in (tensor, *self.moments[name])]
            for name, tensor in self.network.named().items()
        }
        self._traces: list[Trace] = []
        self._numbers = {name: rule.numbers(1) for name, rule in rules.items()}

    def _moments(self, name: str) -> tuple[Tensor, Tensor]:
        tensor = self.network.named()[name]
        shape = tensor.shape[:2] if self.rowwise and name in TABLES else tensor.shape
        return large_zeros(tensor.shape, tensor.dtype), large_zeros(shape, tensor.dtype)

    def _gradients(self) -> tuple[Array, dict[str, slice]]:
        """For all dense parameters together, each padded, a gradient per thread; where each is."""
        dense = {n: p for n, p in self.network.named().items() if n not in (*TABLES, "bias")}
        sizes = [padded(p.numel()) for p in dense.values()]
        ends = np.cumsum([0, *sizes]).tolist()
        places = dict(zip(dense, map(slice, ends[:-1], ends[1:]), strict=True))
        grads = buffer(self._in.flat.dtype, self.threads * ends[-1])
        return grads.reshape(self.threads, -1), places

    def _views(self, part: Array) -> dict[str, Tensor]:
        """A thread's own gradients of the dense parameters, in their shapes."""
        shapes = {name: self.network.named()[name].shape for name in self._grads}
        return {
            name: torch.from_numpy(part[self._grads[name]][: shape.numel()]).view(shape)
            for name, shape in shapes.items()
        }

    # -- a whole step -----------------------------------------------------------------------

    def step(self, batch: DrawnBatch, *, scale: Array | None = None, rate: float = 1.0) -> float:
        """One update. Returns the batch's cost: Σ weight·cost over its targets / its rows.

        scale (B,) multiplies each row's summed context; rate multiplies all learning rates.
        """
        if batch.size == 0:
            raise ModelError("the batch has 0 rows; a step needs at least one")
        self.encode(batch.context, scale)
        self.begin(rate)
        cost = self.fit_targets(batch.targets, 1.0 / batch.size)
        self.fit_context(batch.context)
        return self.group.total(cost)

    def begin(self, rate: float = 1.0) -> None:
        """Count a step: what is fitted from here on moves by its rules at that count."""
        self.steps += 1
        self._numbers = {n: rule.numbers(self.steps, rate) for n, rule in self.rules.items()}

    # -- pass 1: contexts to states ----------------------------------------------------------

    def encode(self, context: Grouped, scale: Array | None = None) -> Tensor:
        """The state of each row from its context, kept for the fits. Returns (B, D')."""
        kind = self._in.flat.dtype
        self._in.reserve(context.size)
        self._out.reserve(context.size)
        if len(self._state) != self._out.size:
            self._state = buffer(kind, self._out.size)
            self._states = unpad(self._state, self._out.shape)
        self._scale = None if scale is None else torch.from_numpy(scale.astype(kind)).unsqueeze(1)
        memory, which = self._in, context.touched
        fixed = (which, context.arrays, memory.flat, memory.shape, self.network.shared)
        cuts = enumerate(self._ranges(context, which, SUM_COLUMN))
        run(sum_context, [(*cut, *fixed, memory.part(t), memory.scratch[t]) for t, cut in cuts])
        self._add_up_ranks(memory)
        with one_torch_thread():
            self._traces = run(self._encode_rows, self._row_ranges())
        self.group.gather(self._states)
        return self._states

    def _encode_rows(self, lo: int, hi: int) -> Trace:
        sums = self._added_up(self._in, lo, hi)
        if self._scale is not None:
            sums *= self._scale[lo:hi]
        return forward(self.network, sums, self._states[lo:hi])

    # -- pass 2: targets ---------------------------------------------------------------------

    def fit_targets(self, targets: Grouped, factor: float) -> float:
        """Move output table and bias down factor · Σ weight·cost. Returns that cost."""
        fixed = (*self._output(), self.ordinal_weight, factor)
        costs = self._fit(target_step, targets, (targets.weights, *fixed))
        return float(sum(costs))

    def add_scores(self, targets: Grouped, out: Array) -> None:
        """Add the scores of grouped cells to out (T, K), at the place of each cell as given."""
        memory, which = self._out, targets.touched
        tables = memory.flat, self._flat["bias"][0]
        output = Output(self._state, *tables, memory.shape, self.network.shared)
        fixed = (which, targets.arrays, targets.order, output, out.reshape(-1))
        cuts = enumerate(self._ranges(targets, which, TARGET_COLUMN))
        run(add_scores, [(*cut, *fixed, memory.scratch[t]) for t, cut in cuts])

    def fit_scores(self, targets: Grouped, slopes: Array) -> None:
        """As `fit_targets`, from the gradient of the scores (T, K), cells in the order given."""
        self._fit(score_step, targets, (targets.order, slopes.reshape(-1), *self._output()))

    def _fit(self, step: Any, targets: Grouped, how: tuple[Any, ...]) -> list[Any]:
        memory, which = self._out, self._which(targets)
        fixed = (which, targets.arrays, *how)
        cuts = enumerate(self._ranges(targets, which, TARGET_COLUMN))
        return run(step, [(*cut, *fixed, memory.part(t), memory.scratch[t]) for t, cut in cuts])

    def _output(self) -> tuple[Any, ...]:
        """What scores are made of, as the fits read it: states, table and bias with their rules."""
        updates = self._update("output_table"), self._update("bias")
        return self._state, updates, self._out.shape, self.network.shared

    # -- pass 3: contexts --------------------------------------------------------------------

    def fit_context(self, context: Grouped) -> None:
        """Move the input table and the dense parameters, once the targets have been fitted."""
        self._add_up_ranks(self._out)
        with one_torch_thread():
            run(self._back_rows, [(t, *cut) for t, cut in enumerate(self._row_ranges())])
        memory, which = self._in, self._which(context)
        self.group.gather(memory.matrix())
        fixed = (which, context.arrays, memory.part(0), memory.shape, self.network.shared)
        update = self._update("input_table")
        cuts = enumerate(self._ranges(context, which, CONTEXT_COLUMN))
        run(context_step, [(*cut, *fixed, update, memory.scratch[t]) for t, cut in cuts])
        grads = self._dense[0]
        for others in self._dense[1:]:
            grads += others
        self.group.sum_(grads)
        for name, place in self._grads.items():
            update = self._update(name)
            flat_step(0, len(update.table), update, grads[place])

    def _back_rows(self, thread: int, lo: int, hi: int) -> None:
        d_state, grads = self._added_up(self._out, lo, hi), self._grad_views[thread]
        d_sums = backward(self.network, self._traces[thread], d_state, grads)
        if self._scale is not None:
            d_sums *= self._scale[lo:hi]
        # The sums themselves are no longer needed: their gradient takes their place.
        self._in.matrix()[lo:hi] = d_sums

    # -- shared pieces -----------------------------------------------------------------------

    def _which(self, grouped: Grouped) -> Array:
        return grouped.touched if self.touched_only else self._everything

    def _ranges(self, grouped: Grouped, which: Array, fixed: float) -> list[tuple[int, int]]:
        return partition(which, grouped.starts, fixed, self.threads)

    def _add_up_ranks(self, memory: Workspace) -> None:
        """Add what threads found of rows, then what ranks did, into the first buffer."""
        if self.group.size > 1:
            with one_torch_thread():
                run(memory.merge, _cut(0, memory.rows, self.threads))
            self.group.scatter_sum(memory.matrix())

    def _added_up(self, memory: Workspace, lo: int, hi: int) -> Tensor:
        """Rows lo..hi of all threads and ranks. Without ranks each thread adds those that it
        goes on with, while they are in its cache. Returns (n, D) of the first buffer."""
        return memory.merge(lo, hi) if self.group.size == 1 else memory.matrix()[lo:hi]

    def _row_ranges(self) -> list[tuple[int, int]]:
        return _cut(*self.group.share(self._in.rows), self.threads)

    def _update(self, name: str) -> Update:
        """A parameter, flat, with its moments and its rule at this step."""
        table, moment, square = self._flat[name]
        together = self.rowwise and name in TABLES
        return Update(table, moment, square, self._numbers[name], together)


def _cut(lo: int, hi: int, parts: int) -> list[tuple[int, int]]:
    """Ranges of about equal size."""
    return list(pairwise(lo + (hi - lo) * part // parts for part in range(parts + 1)))
