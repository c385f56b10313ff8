"""Write a model whose columns are on several ranks: rank 0 gathers and writes them in chunks.

The folder is an ordinary one (docs/reference/file-formats.md). Only tables of ids are whole in
memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
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
from cfnade.components.base import Axis, other_axis
from cfnade.components.registry import saved_member
from cfnade.data.storage import save_columns
from cfnade.distributed.partition import ColumnPartition
from cfnade.distributed.process_group import Array
from cfnade.distributed.rank_data import RankSplit, sizes_only
from cfnade.distributed.shards import PARTS, ColumnRatings
from cfnade.fitted_model import FittedModel
from cfnade.implicit import InteractionModel
from cfnade.utils.safetensors_io import write_chunks

CHUNK = 1 << 22
"""Numbers that are gathered at a time."""

Chunks = Callable[[], Iterable[Array]]


@dataclass(frozen=True)
class PartitionedModel:
    """A trained model of which each rank has its own columns."""

    side: str
    members: tuple[Member, ...]
    counts: Mapping[Axis, Array]
    """Training ratings of the rank's columns at each level."""
    split: RankSplit
    interactions: InteractionModel | None = None
    items: ColumnPartition | None = None
    """The rank's items, if there is an interaction model."""


def described_member(
    member: Member, parts: Mapping[Axis, ColumnPartition]
) -> dict[str, dict[str, Any]]:
    """Return the fields of a member's components, with the number of all columns."""
    return {
        name: component.to_dict() | {"columns": parts[component.axis or "user"].n_columns}
        for name, component in member.components.items()
    }


def write_model(
    model: PartitionedModel,
    folder: Path,
    calibration: Calibration | None,
    facts: dict[str, Any],
    *,
    with_context: bool = True,
) -> None:
    """Write the folder of a model. All ranks call this; rank 0 writes."""
    group = model.split.group
    first = group.rank == 0
    with commit_files(folder, FILES) if first else nullcontext(folder) as part:
        names = [WEIGHTS]
        _write_weights(model, part / WEIGHTS)
        if first:
            names += _write_ids(model, part, with_context)
            if with_context:
                _write_context(model.split, part / CONTEXT)
                names.append(CONTEXT)
            write_manifest(_described(model, calibration, facts, with_context), part, names)
    group.barrier()


# -- weights -------------------------------------------------------------------------------------


def _write_weights(model: PartitionedModel, path: Path) -> None:
    """Write the tables of all columns on rank 0; the other ranks send theirs."""
    shapes: dict[str, tuple[Any, tuple[int, ...]]] = {}
    sources: dict[str, Chunks] = {}
    for name, array, part in _partitioned_arrays(model):
        columns = array.shape if part is None else (part.n_columns, *array.shape[1:])
        shapes[name] = (array.dtype, tuple(columns))
        sources[name] = partial(_chunks, array, part)
    if model.split.group.rank == 0:
        write_chunks(path, shapes, lambda name: sources[name](), {})
        return
    # Rank 0 gathers the arrays in the same order.
    for name in sorted(shapes, key=lambda name: (-np.dtype(shapes[name][0]).itemsize, name)):
        for _ in sources[name]():
            pass


def _partitioned_arrays(
    model: PartitionedModel,
) -> Iterator[tuple[str, Array, ColumnPartition | None]]:
    """Yield the name of each array, the rank's part, and the partition if it has columns."""
    parts = model.split.parts
    for number, member in enumerate(model.members):
        for name, component in member.components.items():
            for key, spec in component.spec(component.config).items():
                part = parts[component.axis or "user"] if spec.column_axis == 0 else None
                yield f"members/{number}/{name}/{key}", component.arrays[key], part
    if model.interactions is not None:
        for name, scorer in model.interactions.components.items():
            for key, spec in scorer.spec(scorer.config).items():
                part = model.items if spec.column_axis == 0 else None
                yield f"implicit/{name}/{key}", scorer.arrays[key], part
    for axis, counts in model.counts.items():
        yield f"{COUNTS}/{axis}", counts.astype(np.int64), parts[other_axis(axis)]


def _chunks(array: Array, part: ColumnPartition | None) -> Iterable[Array]:
    return [array] if part is None else _by_column(array, part)


def _by_column(array: Array, part: ColumnPartition) -> Iterator[Array]:
    """Yield the table of all columns in chunks, on rank 0; the other ranks yield nothing."""
    step = max(1, CHUNK // max(1, int(np.prod(array.shape[1:]))))
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
    names: dict[Axis, str] = {"user": USERS, "item": ITEMS}
    if not with_context:
        names.pop(model.split.sets[0].axis)
    for axis, name in names.items():
        write_ids(part / name, {"id": model.split.shards.ids(axis)})
    return list(names.values())


def _write_context(split: RankSplit, path: Path) -> None:
    """Write the training and validation ratings, partition by partition."""
    shards, axis = split.shards, split.sets[0].axis
    arrays: dict[str, Callable[[ColumnRatings], Array | None]] = {
        f"{axis}s": lambda ratings: ratings.row_indices,
        f"{other_axis(axis)}s": lambda ratings: ratings.columns[ratings.rows.columns],
        "levels": lambda ratings: ratings.rows.levels,
        "weights": lambda ratings: ratings.weights,
    }

    def chunks(name: str) -> Iterator[Array]:
        for number in range(PARTS):
            for part in ("train", "valid"):
                array = arrays[name](shards.load(axis, part, number, PARTS))
                assert array is not None
                yield array

    count = shards.sizes["train"] + shards.sizes["valid"]
    dtypes: dict[str, type] = {"users": np.int32, "items": np.int32, "levels": np.uint8}
    if shards.weighted:
        dtypes["weights"] = np.float32
    save_columns(path, shards.scale, dtypes, count, chunks)


def _described(
    model: PartitionedModel,
    calibration: Calibration | None,
    facts: dict[str, Any],
    with_context: bool,
) -> FittedModel:
    """Return the model as model.json describes it: sizes without arrays."""
    shards, parts, interactions = model.split.shards, model.split.parts, model.interactions
    if interactions is not None:
        components = {
            name: type(component)(replace(component.config, columns=shards.n_items), {})
            for name, component in interactions.components.items()
        }
        interactions = replace(interactions, components=components)
    count = shards.sizes["train"] + shards.sizes["valid"] if with_context else 0
    return FittedModel(
        tuple(saved_member(described_member(member, parts), {}) for member in model.members),
        model.side,
        sizes_only(shards, count),
        {},
        calibration,
        with_context,
        facts,
        interaction_model=interactions,
    )
