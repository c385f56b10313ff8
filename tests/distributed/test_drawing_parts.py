"""What ranks draw of their own columns is together what one process draws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.distributed.thread_group import on_ranks

from cfnade.distributed.process_group import ProcessGroup
from cfnade.kernels.buffers import Array
from cfnade.kernels.column_groups import ColumnGroups
from cfnade.kernels.sampling import GroupedBatch, PartialRows, RowSampler

COUNTS, COLUMNS = [0, 1, 2, 17, 30, 0, 5, 40], 40
HOW: list[dict[str, Any]] = [
    {"rate": None, "weights": "paper"},
    {"rate": (0.1, 1.0), "weights": "paper"},
    {"rate": (0.5, 1.0), "small": 0.5, "weights": "unit"},
]


def whole_rows() -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(0)
    offsets = np.concatenate([[0], np.cumsum(COUNTS)]).astype(np.int64)
    columns = [np.sort(rng.choice(COLUMNS, count, replace=False)) for count in COUNTS]
    flat = np.concatenate(columns).astype(np.int32)
    return offsets, flat, rng.integers(0, 5, len(flat)).astype(np.uint8)


def sampler_of(group: ProcessGroup, owners: Array, threads: int, how: dict[str, Any]) -> RowSampler:
    """Of the ratings in the columns of one rank, which keep their numbers here."""
    offsets, columns, levels = whole_rows()
    rows = np.repeat(np.arange(len(COUNTS)), COUNTS)
    places = np.arange(len(rows)) - offsets[rows]
    mine = owners[columns] == group.rank
    own = np.concatenate([[0], np.cumsum(np.bincount(rows[mine], minlength=len(COUNTS)))])
    return RowSampler(
        own.astype(np.int64),
        columns[mine],
        levels[mine],
        n_columns=COLUMNS,
        n_levels=5,
        threads=threads,
        partial=PartialRows(places[mine].astype(np.int32), np.array(COUNTS, np.int32)),
        group=group,
        **how,
    )


def cells(grouped: ColumnGroups) -> set[tuple[float, ...]]:
    weights = grouped.weights if len(grouped.weights) else np.ones(len(grouped.rows))
    parts = grouped.rows, grouped.columns(), grouped.levels, weights
    return set(zip(*(part.tolist() for part in parts), strict=True))


def drawn_by(ranks: int, how: dict[str, Any], rows: Array, threads: int = 1) -> list[GroupedBatch]:
    owners = np.random.default_rng(1).integers(0, ranks, COLUMNS)
    owners[owners == 1] = 0 if ranks > 3 else 1  # of many ranks one has no columns
    return on_ranks(
        ranks, lambda group: sampler_of(group, owners, threads, how).sample(rows, seed=7, step=3)
    )


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_the_union_of_the_ranks_draws_is_the_draw_of_one_process(
    ranks: int, how: dict[str, Any]
) -> None:
    rows = np.array([4, 0, 6, 3, 1, 7])
    one = RowSampler(*whole_rows(), n_columns=COLUMNS, n_levels=5, threads=1, **how)
    whole = one.sample(rows, seed=7, step=3)
    parts = drawn_by(ranks, how, rows, threads=2)
    for name in ("context", "targets"):
        own = [cells(getattr(part, name)) for part in parts]
        assert set().union(*own) == cells(getattr(whole, name))
        assert sum(map(len, own)) == len(getattr(whole, name).rows)
    assert all(np.array_equal(part.context_sizes, whole.context_sizes) for part in parts)


def test_a_batch_may_have_fewer_rows_than_there_are_ranks() -> None:
    parts = drawn_by(5, HOW[0], np.array([7]))
    assert sum(len(part.context.rows) + len(part.targets.rows) for part in parts) == 40
