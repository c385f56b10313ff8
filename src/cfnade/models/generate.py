"""Draw ratings from the model, one after another, each given those already there (Eq. 1)."""

from __future__ import annotations

import torch
from torch import Tensor

from cfnade.models.batch import Context, check_offsets, require_disjoint, require_indices
from cfnade.models.cfnade import CFNADENetwork
from cfnade.models.config import require
from cfnade.models.table_ops import context_sum


@torch.no_grad()
def sample(
    model: CFNADENetwork,
    context: Context,
    offsets: Tensor,
    columns: Tensor,
    generator: torch.Generator,
) -> Tensor:
    """Levels for columns[offsets[r]:offsets[r+1]] of each row r, drawn in that order. (n,).

    Each draw joins the context of the next, so the levels of a row are one draw from their joint
    distribution given the context.
    """
    _check(model, context, offsets, columns)
    sums = context_sum(model.input_table, context, shared=model.config.shared)  # (B, D)
    known, counts = context.counts(), offsets.diff()  # (B,)
    levels = torch.empty_like(columns, dtype=torch.int64)
    for position in range(int(counts.max()) if counts.numel() else 0):
        active = (counts > position).nonzero().squeeze(1)  # rows with a column left, (a,)
        place = offsets[active] + position
        drawn = _draw(model, sums[active], known[active] + position, columns[place], generator)
        levels[place] = drawn
        ends = torch.arange(len(active) + 1, device=active.device)
        new = Context(ends, columns[place], drawn)  # one rating a row
        sums[active] += context_sum(model.input_table, new, shared=model.config.shared)
    return levels


def _draw(
    model: CFNADENetwork, sums: Tensor, counts: Tensor, columns: Tensor, generator: torch.Generator
) -> Tensor:
    """One level for one column of each row. Returns (a,)."""
    h = model.hidden_from_sums(sums, counts)
    rows = torch.arange(len(columns), device=columns.device)
    probabilities = model.scores(h, rows, columns).softmax(1)  # (a, K)
    return probabilities.multinomial(1, generator=generator).squeeze(1)


def _check(model: CFNADENetwork, context: Context, offsets: Tensor, columns: Tensor) -> None:
    context.check(columns=model.config.columns, levels=model.config.levels)
    check_offsets("offsets", offsets, columns.numel())
    require_indices("columns", columns, model.config.columns, "columns")
    rows = offsets.numel() - 1
    require(
        rows == context.size,
        f"offsets describe {rows} rows; the context has {context.size}, and they must agree",
    )
    row = torch.arange(rows, device=columns.device).repeat_interleave(offsets.diff())
    require_disjoint(row, columns, context.rows(), context.columns)
    cells, _ = (row * model.config.columns + columns.long()).sort()
    require(
        not bool((cells.diff() == 0).any()),
        "columns name a column twice for one row; a row rates a column once",
    )
