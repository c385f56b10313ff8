"""Random ragged batches and the way from compiled batches back to plain ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

from cfnade.kernels.dense import Network
from cfnade.kernels.sampling import DrawnBatch
from cfnade.models import CFNADE, Batch, Context, Targets


@dataclass(frozen=True)
class Problem:
    """A table, a bias, states, a context and targets of one size, all random."""

    table: Tensor  # (M, K, D) float64
    bias: Tensor  # (M, K) float64
    state: Tensor  # (B, D) float64
    context: Context
    targets: Targets


def make_problem(seed: int, rows: int, columns: int, levels: int, width: int) -> Problem:
    """About a third of the rows are empty; a column may come twice in a row."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    def draw(limit: int, count: int) -> Tensor:
        return torch.randint(limit, (count,), generator=generator)

    counts = draw(2 * columns + 1, rows) * (draw(3, rows) > 0)
    known, wanted = int(counts.sum()), int(draw(60, 1)) if rows else 0
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    context = Context(offsets, draw(columns, known), draw(levels, known))
    weights = torch.rand(wanted, generator=generator, dtype=torch.float64)
    cells = draw(max(rows, 1), wanted), draw(columns, wanted), draw(levels, wanted)
    targets = Targets(*cells, weights)
    table = normal(columns, levels, width) / width**0.5
    return Problem(table, normal(columns, levels), normal(rows, width), context, targets)


@pytest.fixture(scope="session")
def problem() -> Callable[[int, int, int, int, int], Problem]:
    return make_problem


def network_of_model(model: CFNADE) -> Network:
    """The engine's view of a model: the same memory."""
    factored = model.config.factors is not None
    return Network(
        model.input_table,
        model.output_table,
        model.b,
        model.c,
        model.B if factored else None,
        model.Q if factored else None,
        tuple(zip(model.deep_W, model.deep_c, strict=True)),
        model.config.activation,
        model.config.shared,
    )


@pytest.fixture(scope="session")
def network_of() -> Callable[[CFNADE], Network]:
    return network_of_model


def plain_batch(batch: DrawnBatch) -> Batch:
    """The same batch, row by row, for the reference model."""
    known, wanted = batch.context, batch.targets
    columns = np.arange(known.n_columns)
    known_columns = np.repeat(columns, np.diff(known.starts))
    order = np.argsort(known.rows, kind="stable")
    offsets = np.concatenate([[0], np.cumsum(batch.counts)])
    parts = (offsets, known_columns[order], known.levels[order].astype(np.int64))
    context = Context(*(torch.from_numpy(part) for part in parts))
    cells = (
        wanted.rows.astype(np.int64),
        np.repeat(columns, np.diff(wanted.starts)),
        wanted.levels.astype(np.int64),
        wanted.weights,
    )
    return Batch(context, Targets(*(torch.from_numpy(part) for part in cells)))


@pytest.fixture(scope="session")
def plain() -> Callable[[DrawnBatch], Batch]:
    return plain_batch
