"""Sample blocks: some users × some items, for a model that reads both sides.

Ratings inside the block are targets. Those users' and those items' ratings outside it are context,
thinned by one keep rate per side and step. So no target is in any context, on either side, and all
targets share the contexts of their row and of their column.

Both sides of a block are sampled at the same time.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cfnade.distributed.process_group import SINGLE_PROCESS, ProcessGroup
from cfnade.exceptions import ModelError
from cfnade.kernels.buffers import Array
from cfnade.kernels.column_groups import counting_sort, require_inside
from cfnade.kernels.sampling import GroupedBatch, PartialRows, RowSampler, split_block
from cfnade.kernels.threads import run_parallel, thread_count


class BlockBatch(NamedTuple):
    """The same targets from both sides: grouped by item for the user side, by user for the other.

    A side's rows are the block's users (items), its columns all items (users). Targets have one
    order, that of the user side; `order` of a side's targets says where each stands in it.
    """

    users: Array  # (B,) int64
    items: Array  # (B',) int64, rising
    user: GroupedBatch
    item: GroupedBatch

    @property
    def n_targets(self) -> int:
        return len(self.user.targets.rows)


class BlockPart(NamedTuple):
    """The columns of one side that this process holds."""

    columns: Array  # (C,) their numbers among all
    rows: PartialRows


class BlockSampler:
    """Sample blocks of `columns` items from ratings given by user and by item.

    Both are what `RowSampler` takes: (offsets, columns, levels). A keep rate is drawn from `rate`
    for each side and step. parts say which columns of each side these are, if a group of processes
    shares them; the targets of a block's sides are then each process's own.
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
        options: dict[str, Any] = {"n_levels": n_levels, "rate": rate, "weights": "unit"}
        options |= {"threads": threads, "group": group}
        widths = [n_items, n_users]
        partial = [None, None] if parts is None else [p.rows for p in parts]
        if parts is not None:
            widths = [max(1, len(part.columns)) for part in parts]
        self._samplers = [
            RowSampler(*rows, n_columns=width, partial=positions, **options)
            for rows, width, positions in zip((by_user, by_item), widths, partial, strict=True)
        ]
        self._sizes, self._columns, self._rate = (n_users, n_items), columns, rate
        self._parts, self._threads = parts, thread_count(threads)

    def sample(self, users: Array, *, seed: int, step: int) -> BlockBatch:
        """The block of these users, each given once, and of items drawn for the seed and step."""
        users = np.asarray(users, np.int64)
        n_users, n_items = self._sizes
        require_inside("users", users, n_users, "users")
        rng = np.random.default_rng((seed, step))
        items = np.sort(rng.choice(n_items, self._columns, replace=False))
        keep = rng.uniform(*self._rate, 2).tolist()
        inside = _membership(n_items, items), _membership(n_users, users)

        def split(side: int) -> GroupedBatch:  # one stream of random numbers a step and side
            mask = self._own_columns(side, inside[side])
            arguments = (seed, 2 * step + side, keep[side], mask)
            return self._samplers[side].split((users, items)[side], split_block, arguments)

        if self._parts is not None:
            user, item = (_in_own_order(split(side)) for side in range(2))
            return BlockBatch(users, items, user, item)
        sides: list[tuple[int, ...]] = [(0,), (1,)]
        user, item = (
            run_parallel(split, sides) if self._threads > 1 else [split(*side) for side in sides]
        )
        # Items rise in both groupings, so the targets of a user come in the same order.
        _, order = counting_sort(users[user.targets.rows], n_users)
        targets = item.targets._replace(order=order)
        return BlockBatch(users, items, _in_own_order(user), item._replace(targets=targets))

    def _own_columns(self, side: int, inside: Array) -> Array:
        """Which of the columns that this process holds are in the block."""
        if self._parts is None:
            return inside
        columns = self._parts[side].columns
        mask = np.zeros(max(1, len(columns)), np.uint8)
        mask[: len(columns)] = inside[columns]
        return mask


def _in_own_order(batch: GroupedBatch) -> GroupedBatch:
    order = np.arange(len(batch.targets.rows))
    return batch._replace(targets=batch.targets._replace(order=order))


def _membership(size: int, indices: Array) -> Array:
    """Which of `size` are chosen, (size,) uint8; a repeated one would be sampled twice."""
    inside = np.zeros(size, np.uint8)
    inside[indices] = 1
    if int(inside.sum()) != len(indices):
        raise ModelError("a block's users must be given once each")
    return inside
