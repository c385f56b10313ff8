"""Load a saved model. No code of the folder is run, and everything in it is checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from cfnade._typing import Array
from cfnade.calibration.calibration import Calibration
from cfnade.checkpoint.folder import folder_version, resolve_file
from cfnade.checkpoint.manifest import (
    CONTEXT,
    COUNTS,
    FILES,
    ITEMS,
    MANIFEST,
    USERS,
    WEIGHTS,
    check_arrays,
    fault,
    read_ids,
    read_manifest,
    verify_files,
)
from cfnade.checkpoint.save import required_files
from cfnade.checkpoint.validate import validate_model
from cfnade.components import Axis, Member
from cfnade.components.registry import member_spec, saved_member
from cfnade.data.dataset import Dataset, make_dataset
from cfnade.data.scale import Scale
from cfnade.data.storage import open_dataset
from cfnade.exceptions import CfnadeError, CheckpointError, DataError, ModelError
from cfnade.fitted_model import FittedModel
from cfnade.implicit import InteractionModel, saved_model, saved_spec
from cfnade.utils.safetensors_io import Arrays, open_arrays

_ATTEMPTS = 10  # to read a folder that is being replaced
_AXES: tuple[Axis, ...] = ("user", "item")


def load(folder: str | Path) -> FittedModel:
    """Return the saved model of a folder.

    Weights and ratings are mapped into memory. If a model is saved into the folder at the same
    time, the old or the new one is returned.

    Raises:
        CheckpointError: A file is missing, damaged or edited, or does not fit the others.
    """
    folder = Path(folder)
    try:
        for _ in range(_ATTEMPTS - 1):
            before = folder_version(folder, MANIFEST)
            try:
                return _load(folder)
            except (CheckpointError, OSError):
                if folder_version(folder, MANIFEST) == before:
                    raise
        return _load(folder)
    except OSError as error:
        raise fault(folder, f"cannot be read ({error})") from error


def _load(folder: Path) -> FittedModel:
    path = resolve_file(folder, MANIFEST)
    manifest = read_manifest(path)
    try:
        paths = {name: resolve_file(folder, name) for name in FILES if name in manifest["files"]}
        verify_files(manifest["files"], paths)
        members, implicit, counts = _components(manifest, paths[WEIGHTS])
        model = FittedModel(
            members=members,
            side=str(manifest["side"]),
            context=_context(manifest, paths),
            training_counts=counts,
            calibration=_calibration(manifest["calibration"]),
            calibration_of_new=_calibration(manifest["calibration_of_new"]),
            has_context=CONTEXT in paths,
            metadata=manifest["metadata"],
            member_weights=tuple(
                (float(trained), float(new)) for trained, new in manifest["member_weights"]
            ),
            interaction_model=implicit,
        )
        is_included = manifest["context"]["included"]
        required = required_files(model)
    except CheckpointError:
        raise
    except (CfnadeError, LookupError, TypeError, AttributeError, ValueError) as error:
        raise fault(path, f"does not describe a model: {error}") from error
    if set(paths) != required or is_included != model.has_context:
        raise fault(path, f"lists the files {sorted(paths)}; such a model has {sorted(required)}")
    try:
        validate_model(model, weights=False)  # the digest protects them
    except ModelError as error:
        raise fault(path, f"the parts of the model do not fit: {error}") from error
    return model


def _calibration(saved: dict[str, Any] | None) -> Calibration | None:
    return None if saved is None else Calibration.from_dict(saved)


def _components(
    manifest: dict[str, Any], path: Path
) -> tuple[tuple[Member, ...], InteractionModel | None, dict[Axis, Array]]:
    """Return the members, the implicit model and the training counts."""
    try:
        arrays, _ = open_arrays(path, verify=False, writable=True)
    except DataError as error:
        raise fault(path, f"cannot be read: {error}") from error
    counts: dict[Axis, Array] = {
        axis: arrays.pop(f"{COUNTS}/{axis}") for axis in _AXES if f"{COUNTS}/{axis}" in arrays
    }
    members, implicit = manifest["members"], manifest["implicit"]
    specs = {f"members/{number}": member_spec(member) for number, member in enumerate(members)}
    if implicit is not None:
        specs["implicit"] = saved_spec(implicit)
    expected = {
        f"{part}/{name}": spec for part, by_name in specs.items() for name, spec in by_name.items()
    }
    check_arrays(path, arrays, expected)
    tables = {
        part: {name: arrays[f"{part}/{name}"] for name in by_name}
        for part, by_name in specs.items()
    }
    loaded = [
        saved_member(member, tables[f"members/{number}"]) for number, member in enumerate(members)
    ]
    model = None if implicit is None else saved_model(implicit, tables["implicit"])
    return tuple(loaded), model, counts


def _context(manifest: dict[str, Any], paths: dict[str, Path]) -> Dataset:
    none = np.empty(0, np.int64)
    users: Arrays = read_ids(paths[USERS]) if USERS in paths else {"id": none}
    items: Arrays = read_ids(paths[ITEMS]) if ITEMS in paths else {"id": none}
    scale = Scale.saved(manifest["scale"]["values"], manifest["scale"]["edges"])
    if CONTEXT in paths:
        try:
            context: Dataset = open_dataset(paths[CONTEXT], verify=False)[0]
        except DataError as error:
            raise CheckpointError(str(error), path=paths[CONTEXT]) from error
    else:
        index = np.empty(0, np.int32)
        context = make_dataset(index, index, index.astype(np.uint8), scale, none, none)
    return context.replace(
        scale=scale,
        source=str(manifest["source"]),
        user_ids=users["id"],
        item_ids=items["id"],
        titles=items.get("title"),
        genres=items.get("genres"),
    )
