"""A saved model of which a rank reads its own columns alone: it need not fit into one machine."""

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
_MOST = 1 << 22  # numbers read at a time


def verify_model(folder: Path) -> None:
    """Refuse a folder that is not as it was written. It reads every byte: for one rank to do."""
    manifest = read_manifest(resolve_file(folder, MANIFEST))
    paths = {name: resolve_file(folder, name) for name in manifest["files"]}
    verify_files(manifest["files"], paths)
    names = {name for sides in manifest.get("members", [{}]) for name in sides}
    strange = [
        name for name in names if name not in COMPONENTS or not component_class(name).partitionable
    ]
    if strange or not names:
        what = f"a side {min(strange)!r}" if strange else "no sides"
        raise CheckpointError(f"{folder}: has {what}; ranks cannot share its columns")


def load_partition(folder: Path, own: Mapping[Axis, Ids]) -> FittedModel:
    """The model cut down to the columns with these ids, or to one other if it has none of them.

    It has no ratings; its ids are those of its columns: items for rows of users, or the reverse.
    """
    manifest = read_manifest(resolve_file(folder, MANIFEST))
    ids = {axis: read_ids(resolve_file(folder, _TABLES[axis]))["id"] for axis in own}
    places = {axis: _places(ids[axis], own[axis]) for axis in own}
    nobody: Ids = np.empty(0, np.int64)
    kept: dict[Axis, Ids] = {"user": nobody, "item": nobody}
    kept |= {axis: ids[axis][places[axis]] for axis in own}
    scale = Scale.saved(manifest["scale"]["values"], manifest["scale"]["edges"])
    nothing = np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.uint8)
    context = make_dataset(*nothing, scale, kept["user"], kept["item"])
    path = resolve_file(folder, WEIGHTS)
    members = tuple(
        _member(path, f"members/{number}/", sides, places)
        for number, sides in enumerate(manifest["members"])
    )
    return FittedModel(members, str(manifest["side"]), context, {}, has_context=False)


def _places(ids: Ids, own: Ids) -> IntArray:
    """Where the own ids are, rising; or the first place, for tables have no empty side."""
    alike = ids.dtype == own.dtype
    places = np.flatnonzero(np.isin(ids, own)) if alike else np.empty(0, np.int64)
    return places if len(places) else np.zeros(1, np.int64)


def _member(
    path: Path,
    prefix: str,
    sides: Mapping[str, Mapping[str, Any]],
    places: Mapping[Axis, IntArray],
) -> Member:
    """The weights of these columns in a member with sides of so many."""
    rows = {name: places[other_axis(_axis(name))] for name in sides}
    fields = {name: {**fields, "columns": len(rows[name])} for name, fields in sides.items()}
    arrays = {}
    try:
        with safe_open(path, "np") as file:
            for key, spec in member_spec(fields).items():
                name, _, _ = key.partition("/")
                arrays[key] = _picked(
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


def _picked(saved: Any, rows: IntArray | None) -> Array:
    """Some rows of a saved table, or all of something small; some megabytes at a time."""
    if rows is None:
        return np.array(saved[:])
    shape = saved.get_shape()
    step = max(1, _MOST // max(1, int(np.prod(shape[1:]))))
    pieces = []
    for first in range(0, shape[0], step):
        end = min(first + step, shape[0])
        lo, hi = np.searchsorted(rows, (first, end))
        pieces.append(saved[first:end][rows[lo:hi] - first])
    return np.concatenate(pieces)
