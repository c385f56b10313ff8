"""Load a rank's columns of a saved model, which need not fit into one machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from cfnade._typing import Array, IntArray
from cfnade.checkpoint.folder import resolve_file
from cfnade.checkpoint.manifest import (
    ITEMS,
    MANIFEST,
    USERS,
    WEIGHTS,
    read_ids,
    read_manifest,
    verify_files,
)
from cfnade.components import COMPONENTS, Axis, Member
from cfnade.components.base import other_axis
from cfnade.components.new_member import component_axis, component_class, member_spec, saved_member
from cfnade.data.dataset import make_dataset
from cfnade.data.scale import Scale
from cfnade.exceptions import CheckpointError
from cfnade.fitted_model import FittedModel

Ids = npt.NDArray[Any]

_TABLES: dict[Axis, str] = {"user": USERS, "item": ITEMS}
_CHUNK = 1 << 22  # numbers read at a time


def verify_model(folder: Path) -> None:
    """Read every byte; raise CheckpointError if it is damaged or ranks cannot share it."""
    manifest = read_manifest(resolve_file(folder, MANIFEST))
    paths = {name: resolve_file(folder, name) for name in manifest["files"]}
    verify_files(manifest["files"], paths)
    names = {name for member in manifest.get("members", [{}]) for name in member}
    unsupported = [
        name for name in names if name not in COMPONENTS or not component_class(name).partitionable
    ]
    if unsupported or not names:
        content = f"a component {min(unsupported)!r}" if unsupported else "no components"
        raise CheckpointError(f"{folder}: has {content}; ranks cannot share its columns")


def load_partition(folder: Path, column_ids: Mapping[Axis, Ids]) -> FittedModel:
    """Return the model without its ratings, reduced to the columns with the given ids.

    A model that has none of them keeps its first column: tables cannot be empty.
    """
    manifest = read_manifest(resolve_file(folder, MANIFEST))
    ids = {axis: read_ids(resolve_file(folder, _TABLES[axis]))["id"] for axis in column_ids}
    positions = {axis: _positions(ids[axis], column_ids[axis]) for axis in column_ids}
    no_ids: Ids = np.empty(0, np.int64)
    loaded: dict[Axis, Ids] = {"user": no_ids, "item": no_ids}
    loaded |= {axis: ids[axis][positions[axis]] for axis in column_ids}
    scale = Scale.saved(manifest["scale"]["values"], manifest["scale"]["edges"])
    no_ratings = np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.uint8)
    context = make_dataset(*no_ratings, scale, loaded["user"], loaded["item"])
    path = resolve_file(folder, WEIGHTS)
    members = tuple(
        _member(path, f"members/{number}/", described, positions)
        for number, described in enumerate(manifest["members"])
    )
    return FittedModel(members, str(manifest["side"]), context, {}, has_context=False)


def _positions(ids: Ids, wanted_ids: Ids) -> IntArray:
    """Return the positions of some ids, ascending; the first position if there are none."""
    same_type = ids.dtype == wanted_ids.dtype
    positions = np.flatnonzero(np.isin(ids, wanted_ids)) if same_type else np.empty(0, np.int64)
    return positions if len(positions) else np.zeros(1, np.int64)


def _member(
    path: Path,
    prefix: str,
    described: Mapping[str, Mapping[str, Any]],
    positions: Mapping[Axis, IntArray],
) -> Member:
    """Return a member with some of its columns."""
    rows = {name: positions[other_axis(_axis(name))] for name in described}
    fields = {name: {**fields, "columns": len(rows[name])} for name, fields in described.items()}
    arrays = {}
    try:
        with safe_open(path, "np") as file:
            for key, spec in member_spec(fields).items():
                name, _, _ = key.partition("/")
                arrays[key] = _take_rows(
                    file.get_slice(f"{prefix}{key}"),
                    None if spec.column_axis is None else rows[name],
                )
    except (SafetensorError, RuntimeError) as error:
        raise CheckpointError(f"{path}: does not hold this model's weights ({error})") from error
    return saved_member(fields, arrays)


def _axis(name: str) -> Axis:
    axis = component_axis(name)
    assert axis is not None
    return axis


def _take_rows(table: Any, rows: IntArray | None) -> Array:
    """Return some rows of a saved table, read in chunks, or all of a small one."""
    if rows is None:
        return np.array(table[:])
    shape = table.get_shape()
    step = max(1, _CHUNK // max(1, int(np.prod(shape[1:]))))
    chunks = []
    for first in range(0, shape[0], step):
        end = min(first + step, shape[0])
        lo, hi = np.searchsorted(rows, (first, end))
        chunks.append(table[first:end][rows[lo:hi] - first])
    return np.concatenate(chunks)
