"""The folder of a model whose columns lie on many ranks, written by rank 0 some columns at a time.

It is an ordinary folder (docs/checkpoint.md). Nothing whole is ever in memory but tables of ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cfnade.calibration.calibration import Calibration
from cfnade.checkpoint.folder import commit_files
from cfnade.checkpoint.manifest import (
    CONTEXT,
    COUNTS,
    FILES,
    ITEMS,
    USERS,
    WEIGHTS,
    write_ids,
    write_manifest,
)
from cfnade.components import Member, saved_member
from cfnade.components.base import other_axis
from cfnade.components.trainable import TorchComponent
from cfnade.data.storage import save_chunks
from cfnade.distributed.interaction_training import PartitionedInteractionModel
from cfnade.distributed.process_group import Array
from cfnade.distributed.rank_data import RankData, sizes_alone
from cfnade.distributed.shards import PARTS, ColumnRatings, ShardedRatings
from cfnade.fitted_model import FittedModel
from cfnade.implicit import InteractionModel, Popularity, SetNade
from cfnade.implicit.popularity import PopularityConfig
from cfnade.implicit.sharpness import Sharpness
from cfnade.utils.safetensors_io import write_chunks

PIECE = 1 << 22
"""Numbers that travel at a time."""

Pieces = Callable[[], Iterable[Array]]
Shapes = dict[str, tuple[Any, tuple[int, ...]]]


@dataclass(frozen=True)
class PartitionedModel:
    """A trained member, and what is picked, of which each rank has its own columns."""

    side: str
    member: Member | None
    owned: RankData
    shards: ShardedRatings
    other: RankData | None = None
    """Whose rows are items, of a model of both."""
    choice: PartitionedInteractionModel | None = None
    items: RankData | None = None
    """Whose columns are items, if there is a choice."""

    @property
    def owned_by_axis(self) -> dict[str, RankData]:
        """By what rows are."""
        return {one.axis: one for one in (self.owned, self.other) if one is not None}

    @property
    def components(self) -> dict[str, TorchComponent]:
        return {} if self.member is None else self.member.components

    def described_sides(self) -> dict[str, dict[str, Any]]:
        """Their fields, with all columns."""
        owned = self.owned_by_axis
        return {
            name: side.to_dict() | {"columns": owned[str(side.axis)].part.whole}
            for name, side in self.components.items()
        }


def write_model(
    model: PartitionedModel,
    folder: Path,
    calibration: Calibration | None,
    facts: dict[str, Any],
    *,
    with_context: bool = True,
) -> None:
    """Write the model as any other is saved. All ranks call this; rank 0 has the folder."""
    first = model.owned.part.group.rank == 0
    with commit_files(folder, FILES) if first else nullcontext(folder) as part:
        names = [WEIGHTS]
        _write_weights(model, part / WEIGHTS, first)
        if first:
            names += _write_ids(model, part, with_context)
            if with_context:
                _write_context(model.shards, model.owned, part / CONTEXT)
                names.append(CONTEXT)
            write_manifest(_described(model, calibration, facts, with_context), part, names)
    model.owned.part.group.barrier()


# -- weights -------------------------------------------------------------------------------------


def _write_weights(model: PartitionedModel, path: Path, first: bool) -> None:
    """Every table by columns of the whole, and what was counted in training."""
    shapes: Shapes = {}
    sources: dict[str, Pieces] = {}
    for side_name, side in model.components.items():
        owned = model.owned_by_axis[str(side.axis)]
        for key, tensor in side.network.state_dict().items():
            array, name = tensor.detach().numpy(), f"members/0/{side_name}/{key}"
            by_column = key in side.by_column
            whole = (owned.part.whole, *array.shape[1:]) if by_column else array.shape
            shapes[name] = (array.dtype, tuple(whole))
            sources[name] = _pieces_of(array, owned, by_column)
    for one in model.owned_by_axis.values():
        axis = other_axis(one.axis)
        counts = one.ratings.level_counts(axis)
        shapes[f"{COUNTS}/{axis}"] = (np.int64, (one.part.whole, counts.shape[1]))
        sources[f"{COUNTS}/{axis}"] = _pieces_of(counts, one, True)
    if model.choice is not None:
        _add_choice(model, model.choice, shapes, sources)
    _write(path, shapes, sources, first)


def _add_choice(
    model: PartitionedModel,
    choice: PartitionedInteractionModel,
    shapes: Shapes,
    sources: dict[str, Pieces],
) -> None:
    """Add the network's tables by items of the whole."""
    assert model.items is not None
    owned, M = model.items, model.items.part.whole
    arrays = {name: t.detach().numpy() for name, t in choice.network.state_dict().items()}
    W, V, b, c = (arrays[name] for name in "WVbc")
    shapes |= {
        "implicit/set-nade/W": (W.dtype, (M, W.shape[2])),
        "implicit/set-nade/V": (V.dtype, (M, V.shape[1])),
        "implicit/set-nade/b": (b.dtype, (M,)),
        "implicit/set-nade/c": (c.dtype, c.shape),
        "implicit/popularity/logs": (np.float32, (M,)),
    }
    sources |= {
        "implicit/set-nade/W": _pieces_of(W[0], owned, True),
        "implicit/set-nade/V": _pieces_of(V, owned, True),
        "implicit/set-nade/b": _pieces_of(b, owned, True),
        "implicit/set-nade/c": _pieces_of(c, owned, False),
        "implicit/popularity/logs": _pieces_of(choice.popularity, owned, True),
    }


def _write(path: Path, shapes: Shapes, sources: dict[str, Pieces], first: bool) -> None:
    """On rank 0 the file, from what the others send."""
    if first:
        write_chunks(path, shapes, lambda name: sources[name](), {})
        return
    # The others send in the same order in which rank 0 asks.
    for name in sorted(shapes, key=lambda name: (-np.dtype(shapes[name][0]).itemsize, name)):
        for _ in sources[name]():
            pass


def _pieces_of(array: Array, owned: RankData, by_column: bool) -> Pieces:
    if not by_column:
        return lambda: [array]
    return lambda: _by_column(array, owned)


def _by_column(own: Array, owned: RankData) -> Iterator[Array]:
    """A table of all columns, some at a time, from the ranks' own; nothing but on rank 0."""
    part, width = owned.part, max(1, int(np.prod(own.shape[1:])))
    step = max(1, PIECE // width)
    for first in range(0, part.whole, step):
        end = min(first + step, part.whole)
        lo, hi = np.searchsorted(part.columns, (first, end))
        places = part.group.gather(part.columns[lo:hi])
        values = part.group.gather(own[lo:hi])
        if part.group.rank == 0:
            whole = np.empty((end - first, *own.shape[1:]), own.dtype)
            for place, value in zip(places, values, strict=True):
                whole[place - first] = value
            yield whole


# -- everything else -----------------------------------------------------------------------------


def _write_ids(model: PartitionedModel, part: Path, with_context: bool) -> list[str]:
    """The ids of both, or of the columns alone."""
    names = {"user": USERS, "item": ITEMS}
    if not with_context:
        names.pop(model.owned.axis)
    for axis, name in names.items():
        write_ids(part / name, {"id": model.shards.ids(axis)})  # type: ignore[arg-type]
    return list(names.values())


def _write_context(shards: ShardedRatings, owned: RankData, path: Path) -> None:
    """The training and validation ratings, part by part."""
    axis, count = owned.axis, shards.sizes["train"] + shards.sizes["valid"]
    arrays: dict[str, Callable[[ColumnRatings], Array | None]] = {
        f"{axis}s": lambda some: some.row_indices,
        f"{other_axis(axis)}s": lambda some: some.columns[some.rows.columns],
        "levels": lambda some: some.rows.levels,
        "weights": lambda some: some.weights,
    }

    def pieces(name: str) -> Iterator[Array]:
        for number in range(PARTS):
            for split in ("train", "valid"):
                array = arrays[name](shards.load(axis, split, number, PARTS))
                assert array is not None
                yield array

    save_chunks(path, shards.scale, count, pieces, weighted=shards.weighted)


def _described(
    model: PartitionedModel,
    calibration: Calibration | None,
    facts: dict[str, Any],
    with_context: bool,
) -> FittedModel:
    """The model as model.json describes it: sizes, and no numbers."""
    shards, sides = model.shards, model.described_sides()
    with torch.device("meta"):
        members = (saved_member(sides, {}),) if sides else ()
    count = shards.sizes["train"] + shards.sizes["valid"] if with_context else 0
    return FittedModel(
        members,
        model.side,
        sizes_alone(shards, count),
        {},
        calibration,
        with_context,
        facts,
        interaction_model=(
            None if model.choice is None else _blank_model(model.choice, shards.n_items)
        ),
    )


def _blank_model(choice: PartitionedInteractionModel, items: int) -> InteractionModel:
    """As model.json describes it."""
    config = replace(choice.network.config, columns=items)
    components = {
        "set-nade": SetNade(config, {}),
        "popularity": Popularity(PopularityConfig(columns=items), {}),
    }
    weights = {"set-nade": 1.0, "popularity": 0.0}
    return InteractionModel(components, weights, Sharpness(choice.sharpness))
