"""Write a model whose columns are on several ranks: rank 0 gathers and writes them in chunks.

The folder is an ordinary one (docs/reference/file-formats.md). Only tables of ids are whole in
memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

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
from cfnade.components import Member
from cfnade.components.base import other_axis
from cfnade.components.new_member import saved_member
from cfnade.data.storage import save_chunks
from cfnade.distributed.interaction_training import PartitionedInteractionModel
from cfnade.distributed.process_group import Array
from cfnade.distributed.rank_data import RankData, sizes_only
from cfnade.distributed.shards import PARTS, ColumnRatings, ShardedRatings
from cfnade.fitted_model import FittedModel
from cfnade.implicit import InteractionModel, Popularity, SetNade
from cfnade.implicit.popularity import PopularityConfig
from cfnade.implicit.sharpness import Sharpness
from cfnade.utils.safetensors_io import write_chunks

CHUNK = 1 << 22
"""Numbers that are gathered at a time."""

Chunks = Callable[[], Iterable[Array]]
Shapes = dict[str, tuple[Any, tuple[int, ...]]]


@dataclass(frozen=True)
class PartitionedModel:
    """A trained model of which each rank has its own columns."""

    side: str
    members: tuple[Member, ...]
    data: RankData
    shards: ShardedRatings
    other: RankData | None
    """Data whose rows are items, of a model of both sides."""
    interactions: PartitionedInteractionModel | None = None
    items: RankData | None = None
    """Data whose columns are items, if there is an interaction model."""

    @property
    def data_by_axis(self) -> dict[str, RankData]:
        """The data by what the rows are."""
        return {data.axis: data for data in (self.data, self.other) if data is not None}

    def described_members(self) -> list[dict[str, dict[str, Any]]]:
        """Return the fields of each member's components, with the number of all columns."""
        return [
            {
                name: component.to_dict()
                | {"columns": self.data_by_axis[str(component.axis)].part.n_columns}
                for name, component in member.components.items()
            }
            for member in self.members
        ]


def write_model(
    model: PartitionedModel,
    folder: Path,
    calibration: Calibration | None,
    facts: dict[str, Any],
    *,
    with_context: bool = True,
) -> None:
    """Write the folder of a model. All ranks call this; rank 0 writes."""
    first = model.data.part.group.rank == 0
    with commit_files(folder, FILES) if first else nullcontext(folder) as part:
        names = [WEIGHTS]
        _write_weights(model, part / WEIGHTS, first)
        if first:
            names += _write_ids(model, part, with_context)
            if with_context:
                _write_context(model.shards, model.data, part / CONTEXT)
                names.append(CONTEXT)
            write_manifest(_described(model, calibration, facts, with_context), part, names)
    model.data.part.group.barrier()


# -- weights -------------------------------------------------------------------------------------


def _write_weights(model: PartitionedModel, path: Path, first: bool) -> None:
    """Write the tables of all columns, and the level counts of training."""
    shapes: Shapes = {}
    sources: dict[str, Chunks] = {}
    components = [
        (f"members/{number}/{name}", component)
        for number, member in enumerate(model.members)
        for name, component in member.components.items()
    ]
    for prefix, component in components:
        data = model.data_by_axis[str(component.axis)]
        for key, spec in component.spec(component.config).items():
            array, name = component.arrays[key], f"{prefix}/{key}"
            by_column = spec.column_axis == 0
            shape = (data.part.n_columns, *array.shape[1:]) if by_column else array.shape
            shapes[name] = (array.dtype, tuple(shape))
            sources[name] = _chunks_of(array, data, by_column)
    for data in model.data_by_axis.values():
        axis = other_axis(data.axis)
        counts = data.ratings.level_counts(axis)
        shapes[f"{COUNTS}/{axis}"] = (np.int64, (data.part.n_columns, counts.shape[1]))
        sources[f"{COUNTS}/{axis}"] = _chunks_of(counts, data, True)
    if model.interactions is not None:
        _add_interactions(model, model.interactions, shapes, sources)
    _write(path, shapes, sources, first)


def _add_interactions(
    model: PartitionedModel,
    interactions: PartitionedInteractionModel,
    shapes: Shapes,
    sources: dict[str, Chunks],
) -> None:
    """Add the tables of the network for all items."""
    assert model.items is not None
    data, M = model.items, model.items.part.n_columns
    arrays = {name: t.detach().numpy() for name, t in interactions.network.state_dict().items()}
    W, V, b, c = (arrays[name] for name in "WVbc")
    shapes |= {
        "implicit/set-nade/W": (W.dtype, (M, W.shape[2])),
        "implicit/set-nade/V": (V.dtype, (M, V.shape[1])),
        "implicit/set-nade/b": (b.dtype, (M,)),
        "implicit/set-nade/c": (c.dtype, c.shape),
        "implicit/popularity/logs": (np.float32, (M,)),
    }
    sources |= {
        "implicit/set-nade/W": _chunks_of(W[0], data, True),
        "implicit/set-nade/V": _chunks_of(V, data, True),
        "implicit/set-nade/b": _chunks_of(b, data, True),
        "implicit/set-nade/c": _chunks_of(c, data, False),
        "implicit/popularity/logs": _chunks_of(interactions.popularity, data, True),
    }


def _write(path: Path, shapes: Shapes, sources: dict[str, Chunks], first: bool) -> None:
    """Write the file on rank 0; the other ranks send their columns."""
    if first:
        write_chunks(path, shapes, lambda name: sources[name](), {})
        return
    # Rank 0 gathers the arrays in the same order.
    for name in sorted(shapes, key=lambda name: (-np.dtype(shapes[name][0]).itemsize, name)):
        for _ in sources[name]():
            pass


def _chunks_of(array: Array, data: RankData, by_column: bool) -> Chunks:
    if not by_column:
        return lambda: [array]
    return lambda: _by_column(array, data)


def _by_column(array: Array, data: RankData) -> Iterator[Array]:
    """Yield the table of all columns in chunks, on rank 0; the other ranks yield nothing."""
    part, width = data.part, max(1, int(np.prod(array.shape[1:])))
    step = max(1, CHUNK // width)
    for first in range(0, part.n_columns, step):
        end = min(first + step, part.n_columns)
        lo, hi = np.searchsorted(part.columns, (first, end))
        indices = part.group.gather(part.columns[lo:hi])
        values = part.group.gather(array[lo:hi])
        if part.group.rank == 0:
            chunk = np.empty((end - first, *array.shape[1:]), array.dtype)
            for index, value in zip(indices, values, strict=True):
                chunk[index - first] = value
            yield chunk


# -- everything else -----------------------------------------------------------------------------


def _write_ids(model: PartitionedModel, part: Path, with_context: bool) -> list[str]:
    """Write the ids of both axes, or without context of the columns alone. Returns the files."""
    names = {"user": USERS, "item": ITEMS}
    if not with_context:
        names.pop(model.data.axis)
    for axis, name in names.items():
        write_ids(part / name, {"id": model.shards.ids(axis)})  # type: ignore[arg-type]
    return list(names.values())


def _write_context(shards: ShardedRatings, data: RankData, path: Path) -> None:
    """Write the training and validation ratings, partition by partition."""
    axis, count = data.axis, shards.sizes["train"] + shards.sizes["valid"]
    arrays: dict[str, Callable[[ColumnRatings], Array | None]] = {
        f"{axis}s": lambda ratings: ratings.row_indices,
        f"{other_axis(axis)}s": lambda ratings: ratings.columns[ratings.rows.columns],
        "levels": lambda ratings: ratings.rows.levels,
        "weights": lambda ratings: ratings.weights,
    }

    def chunks(name: str) -> Iterator[Array]:
        for number in range(PARTS):
            for split in ("train", "valid"):
                array = arrays[name](shards.load(axis, split, number, PARTS))
                assert array is not None
                yield array

    save_chunks(path, shards.scale, count, chunks, weighted=shards.weighted)


def _described(
    model: PartitionedModel,
    calibration: Calibration | None,
    facts: dict[str, Any],
    with_context: bool,
) -> FittedModel:
    """Return the model as model.json describes it: sizes without arrays."""
    shards = model.shards
    members = tuple(saved_member(described, {}) for described in model.described_members())
    count = shards.sizes["train"] + shards.sizes["valid"] if with_context else 0
    return FittedModel(
        members,
        model.side,
        sizes_only(shards, count),
        {},
        calibration,
        with_context,
        facts,
        interaction_model=(
            None
            if model.interactions is None
            else _described_interactions(model.interactions, shards.n_items)
        ),
    )


def _described_interactions(
    interactions: PartitionedInteractionModel, items: int
) -> InteractionModel:
    """Return the interaction model as model.json describes it."""
    config = replace(interactions.network.config, columns=items)
    components = {
        "set-nade": SetNade(config, {}),
        "popularity": Popularity(PopularityConfig(columns=items), {}),
    }
    weights = {"set-nade": 1.0, "popularity": 0.0}
    return InteractionModel(components, weights, Sharpness(interactions.sharpness))
