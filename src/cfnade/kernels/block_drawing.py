"""Blocks of a rating table: some users × some items, for a model that reads both sides.

Ratings inside the block are targets. Those users' and those items' ratings outside it are context,
thinned by one keep rate per side and step. So no target is in any context, on either side, and all
targets share the contexts of their row and of their column.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from cfnade.distributed.process_group import SINGLE_PROCESS, ProcessGroup
from cfnade.exceptions import ModelError
from cfnade.kernels.compiled import glue, kernel
from cfnade.kernels.drawing import DrawnBatch, Sampler
from cfnade.kernels.grouping import counting_sort, require_inside
from cfnade.kernels.marking import (
    CONTEXT,
    DROPPED,
    TARGET,
    WholeRows,
    bare_rows,
    mark_freely,
    mark_freely_at,
    stream_of,
)
from cfnade.kernels.memory import Array
from cfnade.kernels.simd import address, beyond


@dataclass(frozen=True)
class Block:
    """The same targets from both sides: grouped by item for the user side, by user for the other.

    A side's rows are the block's users (items), its columns all items (users). Targets have one
    order, that of the user side; `order` of a side's targets says where each stands in it.
    """

    users: Array  # (B,) int64
    items: Array  # (B',) int64, rising
    user: DrawnBatch
    item: DrawnBatch

    @property
    def n_targets(self) -> int:
        return len(self.user.targets.rows)


@glue
def _settle(
    place: int, begin: int, count: int, columns: Any, within: Any, roles: Any, sums: Any, n: int
) -> int:
    """Inside the block ratings are targets, outside what was marked. Returns the context's size."""
    n_context = 0
    for j in range(count):
        column, role = columns[begin + j], CONTEXT
        if within[column]:
            role = TARGET
        elif roles[place + j] == 0:
            role = DROPPED
        roles[place + j] = role
        n_context += int(role == CONTEXT)
        sums[role * n + column] += 1
    return n_context


@kernel
def _mark_block(
    lo: int,
    hi: int,
    source: Any,
    seed: int,
    step: int,
    rate: float,
    inside: Any,
    marks: Any,
    tally: Any,
) -> None:
    """Roles of the ratings of block rows lo..hi, and a tally by column.

    Traffic: the rows' columns once, a byte a rating written; tally and `inside` stay in cache.
    """
    n_columns, sums, within = tally.shape[1], address(tally), address(inside)
    source, roles, counts = bare_rows(source), address(marks.roles), address(marks.counts)
    for b in range(lo, hi):
        row, place = source.rows[b], source.places[b]
        begin, count = source.offsets[row], source.offsets[row + 1] - source.offsets[row]
        mark_freely(stream_of(seed, step, row), count, rate, roles, place)
        counts[b] = _settle(place, begin, count, source.columns, within, roles, sums, n_columns)


@kernel
def _mark_block_part(
    lo: int,
    hi: int,
    source: Any,
    whole: Any,
    seed: int,
    step: int,
    rate: float,
    inside: Any,
    marks: Any,
    tally: Any,
) -> None:
    """`_mark_block` for ratings in some columns of rows."""
    n_columns, sums, within = tally.shape[1], address(tally), address(inside)
    source, roles, counts = bare_rows(source), address(marks.roles), address(marks.counts)
    for b in range(lo, hi):
        row, place = source.rows[b], source.places[b]
        begin, count = source.offsets[row], source.offsets[row + 1] - source.offsets[row]
        places = beyond(address(whole.places), begin)
        mark_freely_at(stream_of(seed, step, row), places, count, rate, roles, place)
        counts[b] = _settle(place, begin, count, source.columns, within, roles, sums, n_columns)


class BlockPart(NamedTuple):
    """What a rank has of the rows of one side: some columns, by their numbers in the whole."""

    columns: Array  # (C,)
    rows: WholeRows


class BlockSampler:
    """Draws blocks of `columns` items from ratings given by user and by item.

    Both are what `Sampler` takes: (offsets, columns, levels). A keep rate is drawn from `rate` for
    each side and step. parts say which columns of each side these are, if a group shares them;
    the targets of a block's sides are then each rank's own.
    """

    def __init__(
        self,
        by_user: tuple[Array, Array, Array],
        by_item: tuple[Array, Array, Array],
        *,
        columns: int,
        n_levels: int,
        rate: tuple[float, float],
        threads: int | None = None,
        parts: tuple[BlockPart, BlockPart] | None = None,
        group: ProcessGroup = SINGLE_PROCESS,
    ) -> None:
        n_users, n_items = len(by_user[0]) - 1, len(by_item[0]) - 1
        if not 1 <= columns <= n_items:
            raise ModelError(f"columns (={columns}) of a block must lie in 1..{n_items}, the items")
        how: dict[str, Any] = {"n_levels": n_levels, "rate": rate, "weights": "unit"}
        widths, whole = (n_items, n_users), (None, None)
        if parts is not None:
            widths = tuple(max(1, len(part.columns)) for part in parts)  # type: ignore[assignment]
            whole = tuple(part.rows for part in parts)  # type: ignore[assignment]
        how |= {"threads": threads, "group": group}
        self._user = Sampler(*by_user, n_columns=widths[0], whole=whole[0], **how)
        self._item = Sampler(*by_item, n_columns=widths[1], whole=whole[1], **how)
        self._sizes, self._columns, self._rate = (n_users, n_items), columns, rate
        self._parts = parts

    def draw(self, users: Array, *, seed: int, step: int) -> Block:
        """The block of these users, each given once, and of items drawn for the seed and step."""
        users = np.asarray(users, np.int64)
        n_users, n_items = self._sizes
        require_inside("users", users, n_users, "users")
        rng = np.random.default_rng((seed, step))
        items = np.sort(rng.choice(n_items, self._columns, replace=False))
        keep = rng.uniform(*self._rate, 2).tolist()
        # Two streams of random numbers a step, one for each side.
        inside = _mask(n_items, items), _mask(n_users, users)
        if self._parts is not None:
            user, item = self._split_parts(users, items, (seed, 2 * step), keep, inside)
            return Block(users, items, user, item)
        user = self._user.split(users, _mark_block, (seed, 2 * step, keep[0], inside[0]))
        item = self._item.split(items, _mark_block, (seed, 2 * step + 1, keep[1], inside[1]))
        by_item, by_user = user.targets, item.targets
        # Items rise in both groupings, so the targets of a user come in the same order.
        _, order = counting_sort(users[by_item.rows], n_users)
        return Block(
            users,
            items,
            DrawnBatch(user.context, by_item._replace(order=np.arange(len(order))), user.counts),
            DrawnBatch(item.context, by_user._replace(order=order), item.counts),
        )

    def _split_parts(
        self,
        users: Array,
        items: Array,
        stream: tuple[int, int],
        keep: list[float],
        inside: tuple[Array, Array],
    ) -> tuple[DrawnBatch, DrawnBatch]:
        """The same of a rank's own columns; each side's targets are in its own order."""
        halves = []
        for number, (sampler, rows) in enumerate(((self._user, users), (self._item, items))):
            part = self._parts[number]  # type: ignore[index]
            own = np.zeros(max(1, len(part.columns)), np.uint8)
            own[: len(part.columns)] = inside[number][part.columns]
            seed, step = stream
            how = (sampler.whole, seed, step + number, keep[number], own)
            batch = sampler.split(rows, _mark_block_part, how)
            order = np.arange(len(batch.targets.rows))
            halves.append(replace(batch, targets=batch.targets._replace(order=order)))
        return halves[0], halves[1]


def _mask(size: int, chosen: Array) -> Array:
    """Which of `size` are chosen; a repeated one would be drawn twice."""
    inside = np.zeros(size, np.uint8)
    inside[chosen] = 1
    if int(inside.sum()) != len(chosen):
        raise ModelError("a block's users must be given once each")
    return inside
