"""What the kernels of an epoch cost: their measured seconds, and the least time that they can take.

The least time of a kernel is the larger of its bytes over memory speed and its operations over
matmul rate. Bytes are those that must come from or go to memory: a table's blocks, its moments, the
ratings. Rows of a batch live in cache and cost nothing. Operations count each multiplication and
addition.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from benchmarks.common import Case, Clock, Speed, drawn_batches
from cfnade.kernels import engine, hidden_layers, sampling

FLOAT = 4
ADAM_OPERATIONS = 12  # per weight: L2, two moments, root, quotient, step
STREAMS = {False: 6, True: 4}  # weights and moments read and written; sparse: no second moment


PARTS = {
    (sampling, "split_rows"): "draw and group",
    (sampling, "write_columns"): "draw and group",
    (engine, "sum_context"): "sum contexts",
    (hidden_layers, "pack_layer"): "hidden layers, both ways",
    (hidden_layers, "hidden_forward"): "hidden layers, both ways",
    (hidden_layers, "hidden_backward"): "hidden layers, both ways",
    (engine, "update_output_table"): "fit targets",
    (engine, "update_input_table"): "fit contexts",
    (hidden_layers, "update_layer"): "fit dense weights",
}
"""Names of kernels in tables, by the module that calls a function and its name there."""

OUTSIDE = "between kernels"


# -- least seconds ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kernel:
    """Necessary work of one kernel in an epoch."""

    name: str
    bytes: float
    operations: float

    def seconds(self, speed: Speed) -> float:
        return max(
            self.bytes / speed.bytes_per_second, self.operations / speed.operations_per_second
        )


@dataclass(frozen=True)
class Work:
    """Counts of one epoch's batches."""

    ratings: int
    context: int
    targets: int
    summed_columns: int  # whose blocks the context sums read, over all batches
    target_columns: int  # that the target step visits
    context_columns: int  # that the context step visits


def count_work(case: Case, threads: int) -> Work:
    """Sample the batches of an epoch and count."""
    counts = np.zeros(6, np.int64)
    for batch in drawn_batches(case, threads):
        context, targets = len(batch.context.rows), len(batch.targets.rows)
        present = len(batch.context.present), len(batch.targets.present)
        all_columns = case.rows.n_columns
        visits = (present[1], present[0]) if case.sparse else (all_columns, all_columns)
        counts += (context + targets, context, targets, present[0], *visits)
    return Work(*(int(count) for count in counts))


def kernels(case: Case, work: Work) -> list[Kernel]:
    """Return necessary bytes and operations of every kernel, per epoch."""
    K, H, J = case.rows.n_levels, case.hidden, case.factors
    width_in, width_out = (H[0], H[-1]) if J is None else (J, J)
    block_in, block_out = K * width_in, K * width_out
    move = STREAMS[case.sparse] * FLOAT
    layers = list(pairwise(H))
    layers += [] if J is None else [(J, H[0]), (H[-1], J)]
    dense = sum(2 * a * b for a, b in layers) + 4 * sum(H)
    return [
        Kernel("draw and group", 14.0 * work.ratings, 0.0),
        Kernel(
            "sum contexts",
            FLOAT * block_in * work.summed_columns,
            width_in * work.context + block_in * work.summed_columns,
        ),
        Kernel("hidden layers, both ways", 0.0, 3.0 * dense * len(case.rows)),
        Kernel(
            "fit targets",
            move * block_out * work.target_columns,
            3 * 2 * block_out * work.targets + ADAM_OPERATIONS * block_out * work.target_columns,
        ),
        Kernel(
            "fit contexts",
            move * block_in * work.context_columns,
            width_in * work.context + ADAM_OPERATIONS * block_in * work.context_columns,
        ),
    ]


def limit(case: Case, speed: Speed, threads: int) -> tuple[float, list[dict[str, Any]]]:
    """Return the least seconds of an epoch, and the figures of each kernel."""
    parts = kernels(case, count_work(case, threads))
    table = [{**asdict(part), "seconds": part.seconds(speed)} for part in parts]
    return sum(part.seconds(speed) for part in parts), table


# -- measured seconds ------------------------------------------------------------------------------


def profile(work: Callable[[], Any], clock: Clock = time.perf_counter) -> dict[str, float]:
    """Return the seconds of `work` by kernel, as the thread measures them that hands out the work.

    A kernel begins by waiting for other threads: that counts with it. Time outside kernels has an
    entry of its own.
    """
    start = clock()
    with _timed_kernels(clock) as seconds:
        work()
    return dict(seconds) | {OUTSIDE: clock() - start - sum(seconds.values())}


@contextmanager
def _timed_kernels(clock: Clock) -> Iterator[dict[str, float]]:
    """Add the seconds of kernels that are called inside to the yielded dict."""
    seconds: dict[str, float] = defaultdict(float)
    originals = {(module, name): getattr(module, name) for module, name in PARTS}
    for (module, name), function in originals.items():
        setattr(module, name, _timed(function, seconds, PARTS[module, name], clock))
    try:
        yield seconds
    finally:
        for (module, name), function in originals.items():
            setattr(module, name, function)


def _timed(
    function: Callable[..., Any], seconds: dict[str, float], part: str, clock: Clock
) -> Callable[..., Any]:
    thread = threading.get_ident()

    def timed(*arguments: Any) -> Any:
        if threading.get_ident() != thread:
            return function(*arguments)
        start = clock()
        try:
            return function(*arguments)
        finally:
            seconds[part] += clock() - start

    return timed
