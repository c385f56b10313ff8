"""The least time an epoch can take: for every kernel the larger of its bytes and its operations.

Bytes are those that must come from or go to memory: a table's blocks, its moments, the ratings.
Rows of a batch live in cache and cost nothing. Operations count each multiplication and addition.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from benchmarks.common import Case, Speed, drawn_batches

FLOAT = 4
ADAM_OPERATIONS = 12  # per weight: L2, two moments, root, quotient, step
STREAMS = {False: 6, True: 4}  # weights and moments read and written; sparse: no second moment


@dataclass(frozen=True)
class Kernel:
    """What one kernel must do in an epoch."""

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
    known: int
    wanted: int
    summed: int  # columns whose block the context sums read, over all batches
    fitted: int  # columns that the target step visits
    pulled: int  # columns that the context step visits


def count_work(case: Case, threads: int) -> Work:
    """Draw an epoch and count."""
    counts = np.zeros(6, np.int64)
    for batch in drawn_batches(case, threads):
        known, wanted = len(batch.context.rows), len(batch.targets.rows)
        touched = len(batch.context.present), len(batch.targets.present)
        everything = case.rows.n_columns
        visits = (touched[1], touched[0]) if case.sparse else (everything, everything)
        counts += (known + wanted, known, wanted, touched[0], *visits)
    return Work(*(int(count) for count in counts))


def kernels(case: Case, work: Work) -> list[Kernel]:
    """Necessary bytes and operations of every kernel, per epoch."""
    K, H, J = case.rows.n_levels, case.hidden, case.factors
    wide_in, wide_out = (H[0], H[-1]) if J is None else (J, J)
    block_in, block_out = K * wide_in, K * wide_out
    move = STREAMS[case.sparse] * FLOAT
    layers = list(pairwise(H))
    layers += [] if J is None else [(J, H[0]), (H[-1], J)]
    dense = sum(2 * a * b for a, b in layers) + 4 * sum(H)
    return [
        Kernel("draw and group", 14.0 * work.ratings, 0.0),
        Kernel(
            "sum contexts",
            FLOAT * block_in * work.summed,
            wide_in * work.known + block_in * work.summed,
        ),
        Kernel("hidden layers, both ways", 0.0, 3.0 * dense * len(case.rows)),
        Kernel(
            "fit targets",
            move * block_out * work.fitted,
            3 * 2 * block_out * work.wanted + ADAM_OPERATIONS * block_out * work.fitted,
        ),
        Kernel(
            "fit contexts",
            move * block_in * work.pulled,
            wide_in * work.known + ADAM_OPERATIONS * block_in * work.pulled,
        ),
    ]


def limit(case: Case, speed: Speed, threads: int) -> tuple[float, list[dict[str, Any]]]:
    """Seconds per epoch at best, and how they come about."""
    parts = kernels(case, count_work(case, threads))
    table = [{**asdict(part), "seconds": part.seconds(speed)} for part in parts]
    return sum(part.seconds(speed) for part in parts), table
