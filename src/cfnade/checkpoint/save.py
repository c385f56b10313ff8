"""Save a model as a folder: all of it or nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from cfnade.checkpoint.folder import commit_files, resolve_file
from cfnade.checkpoint.manifest import (
    CONTEXT,
    COUNTS,
    FILES,
    ITEMS,
    MANIFEST,
    USERS,
    WEIGHTS,
    read_manifest,
    write_ids,
    write_manifest,
)
from cfnade.checkpoint.model_card import write_model_card
from cfnade.checkpoint.validate import validate_model
from cfnade.exceptions import CheckpointError, ModelError
from cfnade.fitted_model import FittedModel
from cfnade.utils.safetensors_io import Arrays, write_arrays
from cfnade.utils.text import option


def save(model: FittedModel, folder: str | Path, *, with_context: bool = True) -> None:
    """Write a model into a folder and replace the model that is there; other files stay.

    Args:
        model: The model.
        folder: Created if it does not exist. An edited README.md is not replaced.
        with_context: Whether to save the ratings that the model conditions on, and the ids of its
            rows. Without them a model can be shared. Models of both sides need them.

    Raises:
        CheckpointError: The model is invalid, the folder holds other files of these names, or it
            cannot be written. A model that was saved there before is intact.
    """
    folder = Path(folder)
    model = model if with_context else drop_context(model)
    try:
        validate_model(model, weights=True)
    except ModelError as error:
        raise CheckpointError(f"{folder}: the model cannot be saved: {error}") from error
    try:
        require_replaceable(folder)
        with commit_files(folder, FILES) as part:
            names = _write_files(model, part)
            write_manifest(model, part, names)
            write_model_card(model, part, folder)
    except OSError as error:
        raise CheckpointError(
            f"{folder}: could not be saved ({error}); a model saved there before is intact",
            path=folder,
        ) from error


def drop_context(model: FittedModel) -> FittedModel:
    """Return the model without the ratings that it conditions on and without ids of its rows."""
    none = np.empty(0, np.int64)
    if len(model.axes) == 2:
        raise CheckpointError(
            f"a model of side {model.side!r} reads the ratings of the items that it predicts, so "
            f"it cannot be shared without them; train one with {option('side', 'user')} for that"
        )
    empty = model.context.select(none).replace(times=None)
    if model.takes_histories:
        empty = empty.replace(user_ids=none)
    else:
        empty = empty.replace(item_ids=none, titles=None, genres=None)
        model = replace(model, interaction_model=None)  # items have no ids then
    return replace(model, context=empty, has_context=False)


def require_replaceable(folder: Path) -> None:
    """Raise a CheckpointError if the folder holds files of these names that are not a model's."""
    manifest = resolve_file(folder, MANIFEST)
    if manifest.exists():
        try:
            read_manifest(manifest)
        except CheckpointError as error:
            raise CheckpointError(
                f"nothing was saved, because what is there would be lost: {error}; to save here, "
                "choose another folder or remove that file",
                path=manifest,
            ) from error
        return
    foreign = [name for name in FILES if (folder / name).exists()]
    if foreign:
        raise CheckpointError(
            f"{folder}: holds {', '.join(foreign)} but no {MANIFEST}, so these are not a saved "
            "model and would be lost; choose another folder",
            path=folder,
        )


def required_files(model: FittedModel) -> set[str]:
    """Return the names of the files that describe such a model, apart from model.json."""
    if model.has_context:
        return {WEIGHTS, CONTEXT, USERS, ITEMS}
    return {WEIGHTS, ITEMS if "user" in model.axes else USERS}


def _write_files(model: FittedModel, part: Path) -> list[str]:
    context, names = model.context, required_files(model)
    write_arrays(part / WEIGHTS, _arrays(model), {})
    if USERS in names:
        write_ids(part / USERS, {"id": context.user_ids})
    if ITEMS in names:
        columns = {"id": context.item_ids, "title": context.titles, "genres": context.genres}
        write_ids(part / ITEMS, columns)
    if CONTEXT in names:
        none = np.empty(0, np.int64)
        without_ids = context.replace(user_ids=none, item_ids=none, titles=None, genres=None)
        without_ids.save(part / CONTEXT)
    return [name for name in FILES if name in names]


def _arrays(model: FittedModel) -> Arrays:
    """Return the arrays of the model by the names that docs/reference/file-formats.md lists."""
    arrays: Arrays = {}
    for number, member in enumerate(model.members):
        saved = member.arrays().items()
        arrays |= {f"members/{number}/{name}": array for name, array in saved}
    if model.interaction_model is not None:
        interactions = model.interaction_model.arrays()
        arrays |= {f"implicit/{name}": array for name, array in interactions.items()}
    counts = model.training_counts.items()
    return arrays | {f"{COUNTS}/{axis}": np.array(levels, np.int64) for axis, levels in counts}
