"""The files of a model folder: `model.json`, which lists the others with digests, and id tables."""

from __future__ import annotations

import io
import json
import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import cfnade
from cfnade._typing import Array
from cfnade.components import ArraySpec
from cfnade.exceptions import CheckpointError
from cfnade.fitted_model import FittedModel
from cfnade.utils.safetensors_io import Arrays, digest_file, digest_text

FORMAT, VERSION = "cfnade-model", 1
MANIFEST, WEIGHTS, CONTEXT = "model.json", "model.safetensors", "context.safetensors"
USERS, ITEMS = "users.parquet", "items.parquet"
FILES = (WEIGHTS, CONTEXT, USERS, ITEMS, MANIFEST)
COUNTS = "training_counts"
"""Prefix of the names of arrays with training ratings per user or item and level."""

_NO_CONTEXT = (
    "The ratings that the model conditions on and the ids of its rows were left out: predictions "
    "need the history of the user."
)
_COPY_AGAIN = "copy the whole folder again, or save the model again"
_POLARS_ERRORS = (pl.exceptions.PolarsError, pl.exceptions.PanicException, OverflowError)


# -- model.json -----------------------------------------------------------------------------------


def write_manifest(model: FittedModel, folder: Path, names: list[str]) -> None:
    """Write model.json, which describes the files of these names in the same folder."""
    context: dict[str, Any] = {
        "included": model.has_context,
        "ratings": len(model.context),
        "holds": model.metadata.get("context"),
    }
    if not model.has_context:
        context["note"] = _NO_CONTEXT
    scale, calibration = model.context.scale, model.calibration
    for_new = model.calibration_of_new
    content: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "side": model.side,
        "members": [member.to_dict() for member in model.members],
        "member_weights": model.member_weights,
        "implicit": None if model.interaction_model is None else model.interaction_model.to_dict(),
        "scale": {"values": scale.values, "edges": scale.edges},
        "calibration": None if calibration is None else calibration.to_dict(),
        "calibration_of_new": None if for_new is None else for_new.to_dict(),
        "context": context,
        "source": model.context.source,
        "metadata": model.metadata,
        "versions": _versions(),
        "files": {name: _describe_file(folder / name) for name in names},
    }
    as_read = json.loads(_dump(content))  # keys of metadata become strings
    content["check"] = digest_text(_dump(as_read, sort_keys=True))
    (folder / MANIFEST).write_bytes(_dump(content, indent=2).encode() + b"\n")


def read_manifest(path: Path) -> dict[str, Any]:
    """Return the content of a model.json of this format.

    Raises:
        CheckpointError: The file is missing, damaged, edited, or of another format.
    """
    content = _parse(path)
    version = content.get("version")
    if content["format"] != FORMAT or version != VERSION or isinstance(version, bool):
        versions = content.get("versions")
        saved_by = versions.get("cfnade", "?") if isinstance(versions, dict) else "?"
        raise fault(
            path,
            f"was saved by cfnade {saved_by} in another format than that of cfnade "
            f"{cfnade.__version__}; train the model again",
        )
    described = {key: value for key, value in content.items() if key != "check"}
    if content.get("check") != digest_text(_dump(described, sort_keys=True)):
        raise fault(path, f"was damaged or edited; {_COPY_AGAIN}")
    if isinstance(content["files"], dict) and (unknown := set(content["files"]) - set(FILES)):
        raise fault(path, f"lists the file {min(unknown)!r}, which no model has")
    return content


def verify_files(files: Mapping[str, Any], paths: Mapping[str, Path]) -> None:
    """Raise a CheckpointError unless the files have the sizes and digests of the manifest."""
    for name, path in paths.items():
        if not path.is_file():
            raise fault(path, f"is missing; {_COPY_AGAIN}")
        size, expected = path.stat().st_size, files[name]["bytes"]
        if size < expected:
            raise fault(path, f"is truncated, {size:,} of {expected:,} bytes; {_COPY_AGAIN}")
        if size > expected or digest_file(path) != files[name]["xxh3_128"]:
            raise fault(path, f"was damaged or comes from another save; {_COPY_AGAIN}")


def check_arrays(
    path: Path, arrays: Mapping[str, Array], expected: Mapping[str, ArraySpec]
) -> None:
    """Raise a CheckpointError unless the arrays have these names, dtypes and shapes."""
    if set(arrays) != set(expected):
        raise fault(
            path, f"holds the arrays {sorted(arrays)}; {MANIFEST} describes {sorted(expected)}"
        )
    for name, array in arrays.items():
        dtype, shape = np.dtype(expected[name].dtype), expected[name].shape
        if (array.dtype, array.shape) != (dtype, shape):
            raise fault(
                path,
                f"{name} is {array.dtype} of shape {array.shape}; {MANIFEST} describes {dtype} of "
                f"shape {shape}",
            )


def fault(path: Path, reason: str) -> CheckpointError:
    """Return the error about a file."""
    return CheckpointError(f"{path}: {reason}", path=path)


def _parse(path: Path) -> dict[str, Any]:
    if not path.parent.is_dir():
        raise fault(path.parent, "is not a folder; give the folder of a saved model")
    if not path.is_file():
        raise fault(path.parent, f"is no saved model: it holds no {path.name}")
    try:
        content = json.loads(path.read_bytes().decode())
    except (ValueError, RecursionError) as error:
        raise fault(path, f"is not JSON ({str(error)[:120]}); {_COPY_AGAIN}") from error
    if not isinstance(content, dict) or not str(content.get("format")).startswith("cfnade-"):
        raise fault(path, "was not written by cfnade; give the folder of its model")
    return content


def _describe_file(path: Path) -> dict[str, Any]:
    return {"bytes": path.stat().st_size, "xxh3_128": digest_file(path)}


def _dump(content: dict[str, Any], **layout: Any) -> str:
    try:
        return json.dumps(content, allow_nan=False, **layout)
    except (TypeError, ValueError, RecursionError) as error:
        raise CheckpointError(
            f"the model's metadata cannot be written as JSON ({error}); use plain finite values"
        ) from error


def _versions() -> dict[str, str]:
    return {
        "cfnade": cfnade.__version__,
        "python": platform.python_version(),
        "torch": version("torch"),
        "numpy": np.__version__,
    }


# -- id tables ------------------------------------------------------------------------------------


_DTYPES = {"id": (pl.Int64, pl.String), "title": (pl.String,), "genres": (pl.String,)}


def write_ids(path: Path, columns: Mapping[str, Array | None]) -> None:
    """Write ids, and titles and genres if known, as Parquet; strings are arrays of objects."""
    try:
        series = {
            name: pl.Series(array.tolist(), dtype=pl.String if array.dtype == object else pl.Int64)
            for name, array in columns.items()
            if array is not None
        }
        memory = io.BytesIO()
        pl.DataFrame(series).write_parquet(memory)
    except (*_POLARS_ERRORS, UnicodeError, TypeError) as error:
        raise CheckpointError(f"{path.name}: ids or titles cannot be written: {error}") from error
    path.write_bytes(memory.getbuffer())


def read_ids(path: Path) -> Arrays:
    """Return the columns of an id table by name; the ids are sorted."""
    try:
        frame = pl.read_parquet(io.BytesIO(path.read_bytes()))
    except (*_POLARS_ERRORS, ValueError) as error:
        raise fault(path, f"cannot be read as a table ({str(error)[:120]})") from error
    is_valid = "id" in frame.columns and all(
        name in _DTYPES and dtype in _DTYPES[name] and not frame[name].null_count()
        for name, dtype in frame.schema.items()
    )
    if not is_valid:
        raise fault(
            path,
            f"holds columns {dict(frame.schema)}; an id table has the column id and optionally "
            "title and genres, without missing values",
        )
    arrays = {name: _to_numpy(frame[name]) for name in frame.columns}
    ids = arrays["id"]
    if not bool(np.all(ids[1:] > ids[:-1])):
        raise fault(path, "its ids are not sorted")
    return arrays


def _to_numpy(column: pl.Series) -> Array:
    if column.dtype == pl.Int64:
        return np.array(column.to_numpy())
    strings = np.empty(len(column), object)
    strings[:] = column.to_list()
    return strings
