"""Small batches that cover what kernels treat apart: widths, levels, targets of a column."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
import torch
from tests.kernels.reference import Cells
from torch import Tensor

from cfnade.kernels.adam import AdamRule
from cfnade.kernels.column_groups import ColumnGroups, group_by_column
from cfnade.kernels.engine import Engine
from cfnade.kernels.sampling import GroupedBatch
from cfnade.models.config import Activation, CFNADEConfig

TARGETS = [1, 3, 4, 15, 16, 17, 64, 0]
"""Of each column; a tile holds 16."""
CONTEXT = [5, 1, 0, 64, 2, 0, 7, 9]
COLUMNS, ROWS = len(TARGETS), 70
EPS = 1e-3
"""Larger than usual: where a gradient is nearly 0, Adam would blow rounding up to full steps."""


@dataclass(frozen=True)
class Case:
    """One way in which kernels are called."""

    width: int
    levels: int
    dtype: torch.dtype
    threads: int
    shared: bool

    @property
    def seed(self) -> int:
        return 1000 * self.width + self.levels

    def normal(self, *shape: int, number: int = 0, scale: float = 1.0) -> Tensor:
        generator = torch.Generator().manual_seed(self.seed + number)
        return (scale * torch.randn(*shape, generator=generator)).to(self.dtype)

    def table(self, number: int = 0) -> Tensor:
        scale = (self.width * self.levels) ** -0.5
        return self.normal(COLUMNS, self.levels, self.width, number=number, scale=scale)


def _cases() -> list[Any]:
    """Every width with every number of levels; dtype, threads and sharing take turns."""
    cases = []
    for i, (width, levels) in enumerate(product([1, 4, 16, 17, 70, 500], [2, 3, 5, 10])):
        single, two, shared = (i + i // 4) % 2 == 0, i // 2 % 2 == 0, (i + i // 8) % 3 > 0
        case = Case(width, levels, torch.float32 if single else torch.float64, 1 + two, shared)
        kind = "single" if single else "double"
        name = f"{width}-{levels}-{kind}-{case.threads}-{'shared' if shared else 'apart'}"
        cases.append(pytest.param(case, id=name))
    return cases


CASES = _cases()


def cells_of(
    counts: list[int], levels: int, seed: int, dtype: torch.dtype, *, twice: bool = False
) -> ColumnGroups:
    """So many cells of each column, in rows and at levels drawn at random, shuffled.

    If `twice`, a column may hold a row more than once.
    """
    rng = np.random.default_rng(seed)
    rows = np.concatenate([rng.choice(ROWS, count, replace=twice) for count in counts])
    columns = np.repeat(np.arange(len(counts)), counts)
    order = rng.permutation(len(rows))
    kind = np.float32 if dtype == torch.float32 else np.float64
    weights = rng.uniform(0.5, 2.0, len(rows)).astype(kind)
    return group_by_column(
        rows[order],
        columns[order],
        rng.integers(0, levels, len(rows)),
        weights,
        n_rows=ROWS,
        n_columns=len(counts),
        n_levels=levels,
    )


def plain(grouped: ColumnGroups) -> Cells:
    """The same cells for the reference, in the order in which they were given."""
    columns = np.repeat(np.arange(len(grouped.starts) - 1), np.diff(grouped.starts))
    back = np.argsort(grouped.order) if len(grouped.order) else np.arange(len(columns))
    weights = grouped.weights[back] if len(grouped.weights) else ()
    return Cells.of(grouped.rows[back], columns[back], grouped.levels[back], weights)


def batch_of(case: Case, seed: int = 0) -> GroupedBatch:
    """A batch whose columns have TARGETS and CONTEXT cells."""
    parts = [
        cells_of(counts, case.levels, case.seed + seed + number, case.dtype)
        for number, counts in enumerate((CONTEXT, TARGETS))
    ]
    return GroupedBatch(parts[0], parts[1], np.bincount(parts[0].rows, minlength=ROWS))


@dataclass(frozen=True)
class Parameters:
    """A model's tensors under the engine's names; engines move them in place."""

    tensors: dict[str, Tensor]
    shared: bool = True
    activation: Activation = "tanh"

    def engine(self, rules: dict[str, AdamRule], **options: Any) -> Engine:
        """An engine that trains the tensors' memory."""
        M, K, width = self.tensors["input_table"].shape
        layers = [t for name, t in self.tensors.items() if name == "c" or "deep_c" in name]
        config = CFNADEConfig(
            columns=M,
            levels=K,
            hidden=tuple(len(c) for c in layers),
            factors=width if "B" in self.tensors else None,
            shared=self.shared,
            activation=self.activation,
            ordinal_weight=options.pop("ordinal_weight", 1.0),
        )
        arrays = {name: tensor.numpy() for name, tensor in self.tensors.items()}
        return Engine(config, arrays, rules, **options)


def parameters(
    case: Case,
    *,
    hidden: tuple[int, ...] | None = None,
    factors: bool = False,
    columns: int = COLUMNS,
    activation: Activation = "tanh",
) -> Parameters:
    """Random parameters of order one; the tables have the case's width."""
    sizes = hidden or (case.width,)
    first = case.width if factors else sizes[0]
    last = case.width if factors else sizes[-1]
    K = case.levels

    def weights(number: int, *shape: int) -> Tensor:
        return case.normal(*shape, number=number, scale=shape[-1] ** -0.5)

    tensors = {
        "input_table": weights(1, columns, K, first),
        "output_table": weights(2, columns, K, last),
        "bias": case.normal(columns, K, number=3, scale=0.5),
        "c": case.normal(sizes[0], number=4, scale=0.5),
    }
    if factors:
        tensors |= {"B": weights(5, sizes[0], case.width), "Q": weights(6, case.width, sizes[-1])}
    for i, (into, out) in enumerate(pairwise(sizes)):
        tensors[f"deep_W.{i}"] = weights(7 + i, out, into)
        tensors[f"deep_c.{i}"] = case.normal(out, number=17 + i, scale=0.5)
    return Parameters(tensors, case.shared, activation)


def rules_of(model: Parameters) -> dict[str, AdamRule]:
    """Different rates, decays and memories, so that no two can be mixed up."""
    return {
        name: AdamRule(0.01 * (i + 2), 0.02 * (i + 1), (0.9 - 0.02 * i, 0.99 - 0.01 * i), EPS)
        for i, name in enumerate(model.tensors)
    }
