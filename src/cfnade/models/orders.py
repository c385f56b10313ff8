"""The order in which a row's ratings are read, for the exact likelihood.

Ordered rows are a Context whose ratings stand in that order. An order is a permutation (n,) of all
ratings that keeps each within its row.
"""

from __future__ import annotations

import torch
from torch import Tensor

from cfnade.models.batch import Context, check_offsets
from cfnade.models.checks import require_indices, require_shape
from cfnade.models.config import require


def time_order(rows: Context, times: Tensor) -> Tensor:
    """Earliest first, the paper's ideal; equal times keep their place. Returns (n,)."""
    require_shape("times", times, tuple(rows.columns.shape))
    return _order_within_rows(rows, times)


def random_order(rows: Context, generator: torch.Generator) -> Tensor:
    """An even draw for each row, what the paper does in practice. Draw once, then keep. (n,)."""
    n = rows.columns.numel()
    keys = torch.rand(n, generator=generator, device=generator.device, dtype=torch.float64)
    return _order_within_rows(rows, keys.to(rows.columns.device))


def arrange(rows: Context, order: Tensor) -> Context:
    """Put each row's ratings into the given order."""
    check_offsets("offsets", rows.offsets, rows.columns.numel())
    require_shape("order", order, tuple(rows.columns.shape))
    require_indices("order", order, order.numel(), "ratings")
    once = order.long().bincount(minlength=order.numel()) == 1
    number = rows.rows()
    require(
        bool(once.all()) and torch.equal(number[order.long()], number),
        "order must name every rating once and keep it within its row",
    )
    return Context(rows.offsets, rows.columns[order.long()], rows.levels[order.long()])


def _order_within_rows(rows: Context, keys: Tensor) -> Tensor:
    check_offsets("offsets", rows.offsets, rows.columns.numel())
    by_key = keys.argsort(stable=True)
    return by_key[rows.rows()[by_key].argsort(stable=True)]
