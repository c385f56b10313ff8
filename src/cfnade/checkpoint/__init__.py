"""A trained model as a folder: weights, model.json, id tables and the ratings it conditions on.

Saving replaces all of it or nothing (folders.py). Loading runs no code from the folder and trusts
nothing in it: whatever does not fit is one CheckpointError. docs/checkpoint.md has the format.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from cfnade.bundle import Bundle, Model
from cfnade.calibration import Calibration
from cfnade.checkpoint.faults import fault_of
from cfnade.checkpoint.folders import current, replacing_files, snapshot
from cfnade.checkpoint.idtables import Arrays, read_table, write_table
from cfnade.checkpoint.manifest import NAME, check_files, read_manifest, write_manifest
from cfnade.data.arrays import read_arrays, write_arrays
from cfnade.data.ratings import Ratings
from cfnade.data.scale import Scale
from cfnade.data.store import read_ratings, write_ratings
from cfnade.data.when import When
from cfnade.errors import CfnadeError, CheckpointError, DataError
from cfnade.models.build import model_of
from cfnade.models.joint import JointConfig

WEIGHTS, CONTEXT, USERS, ITEMS, TIME = (
    "model.safetensors",
    "context.safetensors",
    "users.parquet",
    "items.parquet",
    "when.safetensors",
)
FILES = (WEIGHTS, CONTEXT, USERS, ITEMS, TIME, NAME)

_COUNTS, _ROW_COUNTS = "column_counts", "row_counts"
_RETRIES = 9  # of reading a folder that was changed meanwhile


def save(bundle: Bundle, folder: str | Path, *, with_context: bool = True) -> None:
    """Write a model into a folder, in place of the model that is there; other files stay.

    Without context the ratings and the ids of the model's rows are left out, for sharing; a model
    of both sides says nothing about an item without its ratings, so it is refused.
    """
    folder = Path(folder)
    bundle = bundle if with_context else without_context(bundle)
    if reason := fault_of(bundle):
        raise CheckpointError(f"{folder}: the model cannot be saved: {reason}")
    try:
        _check_place(folder)
        with replacing_files(folder, FILES) as part:
            names = _write(bundle, part)
            write_manifest(bundle, part, names)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            f"{folder}: could not be saved ({error}); a model saved there before is whole"
        ) from error


def load(folder: str | Path) -> Bundle:
    """The saved model, checked. Saving into the folder meanwhile gives the old one or the new."""
    folder = Path(folder)
    try:
        for _ in range(_RETRIES):
            before = snapshot(folder, NAME)
            try:
                return _load(folder)
            except (CheckpointError, OSError):
                if snapshot(folder, NAME) == before:
                    raise
        return _load(folder)
    except OSError as error:
        raise CheckpointError(f"{folder}: cannot be read ({error})") from error


def without_context(bundle: Bundle) -> Bundle:
    """The same model without the ratings that it conditions on and without its rows' ids."""
    context, none = bundle.context, np.empty(0, np.int64)
    if bundle.side == "both":
        raise CheckpointError(
            'a model of side "both" reads the ratings of the items that it predicts, so it cannot '
            'be shared without them; train one with side="user" (--side user) for that'
        )
    empty = replace(context.select(np.empty(0, np.int64)), times=None)
    if bundle.side == "user":
        empty = replace(empty, user_ids=none)
    else:
        empty = replace(empty, item_ids=none, titles=None, genres=None)
    return replace(bundle, context=empty, has_context=False)


# -- writing -------------------------------------------------------------------------------------


def _check_place(folder: Path) -> None:
    """Never overwrite files of the same names that are not ours."""
    if current(folder, NAME).exists():
        try:
            read_manifest(current(folder, NAME))
        except CheckpointError as error:
            raise CheckpointError(
                f"nothing was saved, because what is there would be lost: {error}; to save here, "
                "choose another folder or remove that file"
            ) from error
        return
    foreign = [name for name in FILES if (folder / name).exists()]
    if foreign:
        raise CheckpointError(
            f"{folder}: holds {', '.join(foreign)} but no {NAME}, so these are not a saved model "
            "and would be lost; choose another folder"
        )


def _write(bundle: Bundle, part: Path) -> list[str]:
    """Write all files but model.json. Returns their names."""
    context = bundle.context
    tensors = {name: tensor.contiguous() for name, tensor in bundle.model.state_dict().items()}
    tensors[_COUNTS] = torch.from_numpy(np.array(bundle.column_counts, np.int64))
    if bundle.row_counts is not None:
        tensors[_ROW_COUNTS] = torch.from_numpy(np.array(bundle.row_counts, np.int64))
    save_file(tensors, part / WEIGHTS)
    names = [WEIGHTS]
    if bundle.has_context or bundle.side == "item":
        write_table(part / USERS, {"id": context.user_ids})
        names.append(USERS)
    if bundle.has_context or bundle.side == "user":
        columns = {"id": context.item_ids, "title": context.titles, "genres": context.genres}
        write_table(part / ITEMS, columns)
        names.append(ITEMS)
    if bundle.has_context:
        none = np.empty(0, np.int64)
        write_ratings(
            part / CONTEXT,
            replace(context, user_ids=none, item_ids=none, titles=None, genres=None),
        )
        names.append(CONTEXT)
    if bundle.when is not None:
        write_arrays(part / TIME, bundle.when.arrays(), {})
        names.append(TIME)
    for name in names[1:2]:  # the library writes weights for their owner only
        (part / WEIGHTS).chmod((part / name).stat().st_mode)
    return names


# -- reading -------------------------------------------------------------------------------------


def _load(folder: Path) -> Bundle:
    where = current(folder, NAME)
    manifest = read_manifest(where)
    try:
        paths = _paths(folder, manifest)
        check_files(manifest["files"], paths)
        model, counts = _model(manifest, paths[WEIGHTS])
        calibration = manifest["calibration"]
        bundle = Bundle(
            model=model,
            side=manifest["side"],
            context=_context(manifest, paths),
            column_counts=counts[_COUNTS],
            row_counts=counts.get(_ROW_COUNTS),
            calibration=None if calibration is None else Calibration.from_dict(calibration),
            has_context=CONTEXT in paths,
            facts=manifest["facts"],
            when=_when(paths),
        )
    except CheckpointError:
        raise
    except (CfnadeError, LookupError, TypeError, AttributeError, ValueError) as error:
        raise CheckpointError(f"{where}: does not describe a model: {error}") from error
    if reason := fault_of(bundle):
        raise CheckpointError(f"{where}: the parts of the model do not fit: {reason}")
    return bundle


def _paths(folder: Path, manifest: dict[str, Any]) -> dict[str, Path]:
    """Where the files lie; exactly those that such a model needs, so that no name leads away."""
    column_side = ITEMS if manifest["side"] == "user" else USERS
    needed = {WEIGHTS, column_side}
    if manifest["context"]["included"] or manifest["side"] == "both":
        needed |= {USERS, ITEMS, CONTEXT}
    if _features(manifest["architecture"]):
        needed.add(TIME)
    if set(manifest["files"]) != needed:
        raise CheckpointError(
            f"{folder / NAME}: lists the files {sorted(manifest['files'])}; such a model has "
            f"{sorted(needed)}"
        )
    return {name: current(folder, name) for name in sorted(needed)}


def _features(architecture: dict[str, Any]) -> int:
    """How many time features a model needs, by its fields."""
    return int(architecture.get("of", architecture).get("features", 0))


def _when(paths: dict[str, Path]) -> When | None:
    if TIME not in paths:
        return None
    try:
        return When.from_arrays(read_arrays(paths[TIME])[0])
    except DataError as error:
        raise CheckpointError(f"{paths[TIME]}: {error}") from error


def _model(manifest: dict[str, Any], path: Path) -> tuple[Model, dict[str, Any]]:
    """The model with its weights, and the counts that lie beside them."""
    try:
        # A copy: what load_file gives may be a view of the file, which can change under us.
        tensors = {name: tensor.clone() for name, tensor in load_file(path).items()}
    except (SafetensorError, KeyError, ValueError, RuntimeError) as error:
        raise CheckpointError(f"{path}: cannot be read as safetensors ({error})") from error
    with torch.device("meta"):  # sizes only: a wrong size in model.json must cost no memory
        model = model_of(manifest["architecture"])
    wanted = {name: (torch.float32, tuple(t.shape)) for name, t in model.state_dict().items()}
    config = model.config
    if isinstance(config, JointConfig):
        columns = [config.user.columns, config.item.columns]
    else:
        columns = [config.columns]
    counted = dict(zip((_COUNTS, _ROW_COUNTS), columns, strict=False))
    for name, size in counted.items():
        wanted[name] = (torch.int64, (size, config.levels))
    _check_tensors(path, tensors, wanted)
    counts = {name: tensors.pop(name).numpy() for name in counted}
    model.load_state_dict(tensors, assign=True)
    return model.eval(), counts


def _check_tensors(
    path: Path,
    tensors: dict[str, Tensor],
    wanted: dict[str, tuple[torch.dtype, tuple[int, ...]]],
) -> None:
    if set(tensors) != set(wanted):
        raise CheckpointError(
            f"{path}: holds the arrays {sorted(tensors)}; model.json describes {sorted(wanted)}"
        )
    for name, tensor in tensors.items():
        found = tensor.dtype, tuple(tensor.shape)
        if found != wanted[name]:
            raise CheckpointError(
                f"{path}: {name} is {found[0]} of shape {found[1]}; model.json describes "
                f"{wanted[name][0]} of shape {wanted[name][1]}"
            )


def _context(manifest: dict[str, Any], paths: dict[str, Path]) -> Ratings:
    none = np.empty(0, np.int64)
    users: Arrays = read_table(paths[USERS]) if USERS in paths else {"id": none}
    items: Arrays = read_table(paths[ITEMS]) if ITEMS in paths else {"id": none}
    edges = manifest["scale"]["edges"]
    scale = Scale(tuple(manifest["scale"]["values"]), None if edges is None else tuple(edges))
    if CONTEXT in paths:
        try:
            ratings = read_ratings(paths[CONTEXT])
        except DataError as error:
            raise CheckpointError(str(error)) from error
    else:
        index, levels = np.empty(0, np.int32), np.empty(0, np.uint8)
        ratings = Ratings(index, index, levels, scale, none, none)
    return replace(
        ratings,
        scale=scale,
        source=str(manifest["source"]),
        user_ids=users["id"],
        item_ids=items["id"],
        titles=items.get("title"),
        genres=items.get("genres"),
    )
