"""The exact likelihood of whole rows in a given order (Eq. 1-5), and training with it.

Ordered rows are a Context whose ratings stand in that order. An order is a permutation (n,) of all
ratings that keeps each within its row. All conditionals of a row come from one running sum of
embeddings, O(D·H) for the first layer, not from D separate contexts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from cfnade.models.batch import (
    Context,
    check_offsets,
    require_indices,
    require_shape,
)
from cfnade.models.cfnade import CFNADENetwork
from cfnade.models.config import require
from cfnade.models.losses import hybrid_cost, regular_cost
from cfnade.models.table_ops import context_sum

PADDED = 1 << 24
"""How many numbers the padded running sums of a group of rows may hold: 64 MB in float32."""


def conditional_scores(model: CFNADENetwork, rows: Context) -> Tensor:
    """Scores of each rating's levels given the ratings before it in its row. Returns (n, K)."""
    rows.check(columns=model.config.columns, levels=model.config.levels)
    scores, places = [], []
    for group in _groups(rows, model.input_table.shape[2]):
        row, position, place = _cells(rows, group)  # (t,) each
        columns = rows.columns[place].long()
        sums = _sums_before(model, columns, rows.levels[place], row, position)  # (t, D)
        h = model.hidden_from_sums(sums, position)  # (t, H)
        scores.append(model.scores(h, torch.arange(len(place), device=place.device), columns))
        places.append(place)
    if not scores:
        return model.b.new_empty(0, model.config.levels)
    return torch.cat(scores)[torch.cat(places).argsort()]


def log_conditionals(model: CFNADENetwork, rows: Context) -> Tensor:
    """log p of each rating given those before it (Eq. 3). Returns (n,)."""
    return -regular_cost(conditional_scores(model, rows), rows.levels)


def joint_log_probability(model: CFNADENetwork, rows: Context) -> Tensor:
    """log p(r) of each row by the chain rule (Eq. 1). Returns (B,); 0 for an empty row."""
    return _row_sums(rows, log_conditionals(model, rows))


def ordered_cost(model: CFNADENetwork, rows: Context) -> Tensor:
    """Eq. 5 and 18 for a fixed order, averaged over rows: the paper's basic training."""
    require(rows.size > 0, "there are 0 rows; a cost needs at least one")
    scores = conditional_scores(model, rows)
    costs = hybrid_cost(scores, rows.levels, model.config.ordinal_weight)
    return _row_sums(rows, costs).mean()


def ensemble_log_probability(
    model: CFNADENetwork, rows: Context, orders: Sequence[Tensor]
) -> Tensor:
    """log of the mean of p(r) over several orders: a mixture, so again a distribution. (B,).

    Joint probabilities are averaged, not conditionals: for the next rating given all known ones
    every order agrees, since the context is a sum.
    """
    require(len(orders) > 0, "orders (=[]) must hold at least one order")
    each = [joint_log_probability(model, arrange(rows, order)) for order in orders]
    return torch.stack(each).logsumexp(0) - math.log(len(orders))


def _sums_before(
    model: CFNADENetwork, columns: Tensor, levels: Tensor, row: Tensor, position: Tensor
) -> Tensor:
    """Sum of the embeddings of the ratings before each rating in its row. Returns (t, D)."""
    ends = torch.arange(columns.numel() + 1, device=columns.device)
    alone = Context(ends, columns, levels)  # each rating a row of its own
    embedded = context_sum(model.input_table, alone, shared=model.config.shared)  # (t, D)
    B, longest = int(row.max()) + 1, int(position.max()) + 1
    padded = embedded.new_zeros(B, longest, embedded.shape[1])
    # A rating is written one place later, so that the running sum at a place has seen only earlier
    # ratings; the last one of the longest row is nobody's past.
    seen = position + 1 < longest
    padded = padded.index_put((row[seen], position[seen] + 1), embedded[seen])
    return padded.cumsum(1)[row, position]


def _groups(rows: Context, width: int) -> Iterator[Tensor]:
    """Row numbers, longest rows first, in groups whose padded sums stay within PADDED."""
    counts, numbers = rows.counts().sort(descending=True, stable=True)
    lengths = counts.tolist()
    end = sum(length > 0 for length in lengths)
    first = 0
    while first < end:
        size = max(1, PADDED // (lengths[first] * width))
        yield numbers[first : min(first + size, end)]
        first += size


def _cells(rows: Context, group: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of each rating in the group: its row in the group, position in that row, place. (t,)."""
    counts = rows.counts()[group]
    row = torch.arange(group.numel(), device=group.device).repeat_interleave(counts)
    position = torch.arange(row.numel(), device=group.device) - (counts.cumsum(0) - counts)[row]
    return row, position, rows.offsets[group][row] + position


def _row_sums(rows: Context, values: Tensor) -> Tensor:
    return values.new_zeros(rows.size).index_add(0, rows.rows(), values)


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
