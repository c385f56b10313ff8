"""A trained model as a folder: weights, model.json, id tables and the ratings it conditions on.

Saving replaces all of it or nothing (folders.py). Loading runs no code from the folder and trusts
nothing in it: whatever does not fit is one CheckpointError. docs/checkpoint.md has the format.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError

from cfnade.calibration import Calibration
from cfnade.checkpoint.card import write_card
from cfnade.checkpoint.faults import fault_of
from cfnade.checkpoint.folders import current, replacing_files, snapshot
from cfnade.checkpoint.half import Halves, halves_of, weights_of
from cfnade.checkpoint.idtables import Arrays, read_table, write_table
from cfnade.checkpoint.legacy import modern_manifest, modern_tables
from cfnade.checkpoint.manifest import NAME, check_files, read_manifest, write_manifest
from cfnade.checkpoint.tensors import check_tables, read_choice, read_tables
from cfnade.data.array_files import read_arrays, write_arrays
from cfnade.data.dataset import Dataset, make_dataset
from cfnade.data.scale import Scale
from cfnade.exceptions import CfnadeError, CheckpointError, DataError
from cfnade.fitted import FittedModel
from cfnade.implicit.base import Arrays as Tables
from cfnade.sides import AnsweringMember, Axis
from cfnade.sides.saved import expected_tables, loaded_member

WEIGHTS, CONTEXT, USERS, ITEMS, KEPT, CHOICE = (
    "model.safetensors",
    "context.safetensors",
    "users.parquet",
    "items.parquet",
    "when.safetensors",
    "choice.safetensors",
)
FILES = (WEIGHTS, CONTEXT, USERS, ITEMS, KEPT, CHOICE, NAME)
_TABLES: dict[Axis, str] = {"user": USERS, "item": ITEMS}

COUNTS = "trained_on."  # of users or of items, beside the weights
_RETRIES = 9  # of reading a folder that was changed meanwhile
_log = logging.getLogger("cfnade")


def save(
    fitted: FittedModel, folder: str | Path, *, with_context: bool = True, half: bool = False
) -> None:
    """Write a model into a folder, in place of the model that is there; other files stay.

    README.md is a card for people who find the folder; one that somebody edited stays as it is.

    Without context the ratings and the ids of the model's rows are left out, for sharing; a model
    of both sides says nothing about an item without its ratings, so it is refused. `half` writes
    those tables of weights as float16 that change no probability by more than half.BOUND.
    """
    folder = Path(folder)
    whole, fitted = fitted, fitted if with_context else without_context(fitted)
    if reason := fault_of(fitted):
        raise CheckpointError(f"{folder}: the model cannot be saved: {reason}")
    halves = halves_of(whole) if half else None
    try:
        check_place(folder)
        with replacing_files(folder, FILES) as part:
            names = _write(fitted, part, halves.names if halves else ())
            write_manifest(fitted, part, names)
            write_card(fitted, part, folder)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            f"{folder}: could not be saved ({error}); a model saved there before is whole"
        ) from error
    if halves:
        _log.info("%s: %s", folder, _in_words(halves, len(weights_of(fitted))))


def load(folder: str | Path) -> FittedModel:
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


def without_context(fitted: FittedModel) -> FittedModel:
    """The same model without the ratings that it conditions on and without its rows' ids."""
    context, none = fitted.context, np.empty(0, np.int64)
    if len(fitted.axes) == 2:
        raise CheckpointError(
            f"a model of side {fitted.side!r} reads the ratings of the items that it predicts, so "
            'it cannot be shared without them; train one with side="user" (--side user) for that'
        )
    empty = context.select(np.empty(0, np.int64)).replace(times=None)
    if fitted.takes_histories:
        empty = empty.replace(user_ids=none)
    else:
        empty = empty.replace(item_ids=none, titles=None, genres=None)
        fitted = replace(
            fitted, interaction_model=None
        )  # which is about items that have no ids then
    return replace(fitted, context=empty, has_context=False)


# -- writing -------------------------------------------------------------------------------------


def check_place(folder: Path) -> None:
    """Refuse to overwrite files of the same names that are not ours."""
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


def _write(fitted: FittedModel, part: Path, halves: Collection[str]) -> list[str]:
    """Write all files but model.json. Returns their names."""
    from safetensors.numpy import save_file

    context = fitted.context
    save_file(_whole(_tables(fitted, halves)), part / WEIGHTS)
    names = [WEIGHTS]
    if USERS in _needed(fitted.axes, fitted.has_context):
        write_table(part / USERS, {"id": context.user_ids})
        names.append(USERS)
    if ITEMS in _needed(fitted.axes, fitted.has_context):
        columns = {"id": context.item_ids, "title": context.titles, "genres": context.genres}
        write_table(part / ITEMS, columns)
        names.append(ITEMS)
    if fitted.has_context:
        none = np.empty(0, np.int64)
        nameless = context.replace(user_ids=none, item_ids=none, titles=None, genres=None)
        nameless.save(part / CONTEXT)
        names.append(CONTEXT)
    if kept := _kept(fitted):
        write_arrays(part / KEPT, kept, {})
        names.append(KEPT)
    if fitted.interaction_model is not None:
        save_file(_whole(fitted.interaction_model.arrays()), part / CHOICE)
        names.append(CHOICE)
    for name in {WEIGHTS, CHOICE} & set(names):  # the library writes them for their owner only
        (part / name).chmod((part / names[1]).stat().st_mode)
    return names


def _tables(fitted: FittedModel, halves: Collection[str]) -> Tables:
    """Weights as member.side.parameter, and what was counted in training."""
    tables = {
        name: table.astype(np.float16) if name in halves else table
        for name, table in weights_of(fitted).items()
    }
    counts = fitted.trained_on.items()
    return tables | {f"{COUNTS}{axis}": np.array(levels, np.int64) for axis, levels in counts}


def _whole(tables: Tables) -> dict[str, Any]:
    """As the library writes them: it takes the memory of an array as it lies."""
    return {name: np.asarray(table, order="C") for name, table in tables.items()}


def _in_words(halves: Halves, tables: int) -> str:
    return (
        f"{len(halves.names)} of {tables} tables of weights are saved as float16, "
        f"{halves.spared / 1e6:,.1f} MB less; the largest change of a probability, in "
        f"{halves.cells:,} cells, is {halves.change:.5f}"
    )


def _kept(fitted: FittedModel) -> dict[str, Any]:
    """What sides keep of the training ratings, as side/name: the same in all members."""
    return {
        f"{name}/{key}": array
        for member in reversed(fitted.answering)
        for name, side in member.sides.items()
        for key, array in side.arrays().items()
    }


def _needed(axes: Sequence[Axis], has_context: bool) -> set[str]:
    """The files of a model with such rows, but for what its sides keep."""
    if has_context:
        return {WEIGHTS, CONTEXT, USERS, ITEMS}
    return {WEIGHTS, ITEMS if "user" in axes else USERS}


# -- reading -------------------------------------------------------------------------------------


def _load(folder: Path) -> FittedModel:
    where = current(folder, NAME)
    written = read_manifest(where)
    try:
        manifest = modern_manifest(written)
        paths = {name: current(folder, name) for name in FILES if name in manifest["files"]}
        _check_names(where, manifest)
        check_files(manifest["files"], paths)
        members, counts = _members(manifest, paths)
        known = manifest["calibration"]
        new = known and known.get("of_new")  # earlier models have none
        fitted = FittedModel(
            answering=members,
            side=str(manifest["side"]),
            context=_context(manifest, paths),
            trained_on=counts,
            calibration=None if known is None else Calibration.from_dict(known),
            calibration_of_new=None if new is None else Calibration.from_dict(new),
            has_context=CONTEXT in paths,
            facts=manifest["facts"],
            shares=tuple((float(known), float(new)) for known, new in manifest["shares"]),
            interaction_model=read_choice(manifest["choice"], paths.get(CHOICE)),
        )
        _check_axes(where, fitted, manifest)
    except CheckpointError:
        raise
    except (CfnadeError, LookupError, TypeError, AttributeError, ValueError) as error:
        raise CheckpointError(f"{where}: does not describe a model: {error}") from error
    if reason := fault_of(fitted):
        raise CheckpointError(f"{where}: the parts of the model do not fit: {reason}")
    return fitted


def _check_names(where: Path, manifest: dict[str, Any]) -> None:
    """No name may lead away from the folder."""
    if strange := set(manifest["files"]) - set(FILES):
        raise CheckpointError(f"{where}: lists the file {min(strange)!r}, which no model has")


def _check_axes(where: Path, fitted: FittedModel, manifest: dict[str, Any]) -> None:
    """Exactly the files that such a model needs."""
    needed = _needed(fitted.axes, manifest["context"]["included"])
    needed |= {CHOICE} if fitted.interaction_model else set()
    if set(manifest["files"]) - {KEPT} != needed:
        raise CheckpointError(
            f"{where}: lists the files {sorted(manifest['files'])}; such a model has "
            f"{sorted(needed)}"
        )


def _members(
    manifest: dict[str, Any], paths: dict[str, Path]
) -> tuple[tuple[AnsweringMember, ...], dict[Axis, Any]]:
    """Members with their weights, and the counts that lie beside them."""
    path, kept = paths[WEIGHTS], _read_kept(paths)
    tables = dict(modern_tables(read_tables(path), manifest))
    counts = {
        axis: tables.pop(f"{COUNTS}{axis}") for axis in _TABLES if f"{COUNTS}{axis}" in tables
    }
    described = manifest["members"]
    expected = {
        f"{number}.{name}": table
        for number, sides in enumerate(described)
        for name, table in expected_tables(sides, kept).items()
    }
    check_tables(path, tables, expected)
    members = []
    for number, sides in enumerate(described):
        own = {name: _under(f"{number}.{name}.", tables) for name in sides}
        members.append(loaded_member(sides, own, kept))
    return tuple(members), counts


def _under(prefix: str, tables: Tables) -> Tables:
    """Those whose names begin so, by the rest of their names."""
    mine = {name: table for name, table in tables.items() if name.startswith(prefix)}
    return {name.removeprefix(prefix): table for name, table in mine.items()}


def _read_kept(paths: dict[str, Path]) -> dict[str, dict[str, Any]]:
    """What sides keep beside their weights, by side."""
    if KEPT not in paths:
        return {}
    try:
        arrays, _ = read_arrays(paths[KEPT])
    except DataError as error:
        raise CheckpointError(f"{paths[KEPT]}: {error}") from error
    kept: dict[str, dict[str, Any]] = {}
    for key, array in arrays.items():
        side, _, name = key.rpartition("/")
        kept.setdefault(side or "time", {})[name] = array  # at first only time kept any
    return kept


def _context(manifest: dict[str, Any], paths: dict[str, Path]) -> Dataset:
    none = np.empty(0, np.int64)
    users: Arrays = read_table(paths[USERS]) if USERS in paths else {"id": none}
    items: Arrays = read_table(paths[ITEMS]) if ITEMS in paths else {"id": none}
    edges = manifest["scale"]["edges"]
    scale = Scale(tuple(manifest["scale"]["values"]), None if edges is None else tuple(edges))
    if CONTEXT in paths:
        try:
            ratings: Dataset = Dataset.open(paths[CONTEXT])
        except DataError as error:
            raise CheckpointError(str(error)) from error
    else:
        index, levels = np.empty(0, np.int32), np.empty(0, np.uint8)
        ratings = make_dataset(index, index, levels, scale, none, none)
    return ratings.replace(
        scale=scale,
        source=str(manifest["source"]),
        user_ids=users["id"],
        item_ids=items["id"],
        titles=items.get("title"),
        genres=items.get("genres"),
    )
