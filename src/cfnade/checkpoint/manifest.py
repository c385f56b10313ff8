"""model.json: what a checkpoint folder is, for people and programs. docs/checkpoint.md explains it.

It lists the other files with their sizes and digests, and ends with a digest of itself.
"""

from __future__ import annotations

import json
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import cfnade
from cfnade.checkpoint.legacy import keys_of
from cfnade.data.array_files import digest_file, digest_text
from cfnade.exceptions import CheckpointError
from cfnade.fitted import FittedModel

FORMAT, VERSION = "cfnade-checkpoint", 5
"""Version 5 has the choice; legacy.py reads the earlier ones."""
NAME = "model.json"

_KEYS = {
    "format",
    "version",
    "side",
    "members",
    "shares",
    "choice",
    "scale",
    "calibration",
    "context",
    "source",
    "facts",
    "versions",
    "files",
    "check",
}
_WITHOUT = (
    "The ratings that the model conditions on were left out, and the ids of its rows with them: "
    "only histories given in a call can be used."
)


def write_manifest(fitted: FittedModel, part: Path, names: list[str]) -> None:
    """Write model.json for the files of these names, which lie in the same folder."""
    context: dict[str, Any] = {
        "included": fitted.has_context,
        "ratings": len(fitted.context),
        "holds": fitted.facts.get("context"),
    }
    if not fitted.has_context:
        context["note"] = _WITHOUT
    scale = fitted.context.scale
    content: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "side": fitted.side,
        "members": [member.to_dict() for member in fitted.answering],
        "shares": fitted.shares,
        "choice": None if fitted.interaction_model is None else fitted.interaction_model.to_dict(),
        "scale": {"values": scale.values, "edges": scale.edges},
        "calibration": _calibration(fitted),
        "context": context,
        "source": fitted.context.source,
        "facts": fitted.facts,
        "versions": _versions(),
        "files": {name: _described(part / name) for name in names},
    }
    seen = json.loads(_dumped(content))  # as a reader will see it: names are texts
    content["check"] = digest_text(_dumped(seen, sort_keys=True))
    text = _dumped(content, indent=2)
    (part / NAME).write_bytes(text.encode() + b"\n")


def _calibration(fitted: FittedModel) -> dict[str, Any] | None:
    """That for known people, with the one for new people in it."""
    known, new = fitted.calibration, fitted.calibration_of_new
    if known is None:
        return None
    return known.to_dict() | {"of_new": None if new is None else new.to_dict()}


def read_manifest(path: Path) -> dict[str, Any]:
    """The content of a model.json that this version can read, or the reason why not."""
    content = _parsed(path)
    version = content.get("version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise CheckpointError(f"{path}: version {version!r} is no version of the format; {_AGAIN}")
    if version > VERSION:
        raise CheckpointError(
            f"{path}: was written in version {version} of the format, this cfnade "
            f"({cfnade.__version__}) reads up to version {VERSION}; install a newer cfnade"
        )
    check = content.get("check")
    rest = {key: value for key, value in content.items() if key != "check"}
    keys = keys_of(_KEYS, version)
    if set(content) != keys or check != digest_text(_dumped(rest, sort_keys=True)):
        raise CheckpointError(f"{path}: was damaged or edited by hand; {_AGAIN}")
    return content


def check_files(files: dict[str, Any], paths: dict[str, Path]) -> None:
    """Refuse files that are not those which the manifest describes."""
    for name, path in paths.items():
        if not path.is_file():
            raise CheckpointError(f"{path}: is missing; {_AGAIN}")
        size, described = path.stat().st_size, files[name]["bytes"]
        if size < described:
            raise CheckpointError(
                f"{path}: is cut short, {size:,} of {described:,} bytes; {_AGAIN}"
            )
        if size > described or digest_file(path) != files[name]["xxh3_128"]:
            raise CheckpointError(f"{path}: was damaged or comes from another save; {_AGAIN}")


_AGAIN = "copy the whole folder again, or save the model again"


def _parsed(path: Path) -> dict[str, Any]:
    if not path.parent.is_dir():
        raise CheckpointError(f"{path.parent}: is no folder; give the folder of a saved model")
    if not path.is_file():
        raise CheckpointError(f"{path.parent}: is no saved model: it holds no {path.name}")
    try:
        content = json.loads(path.read_bytes().decode())
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: is not JSON ({str(error)[:120]}); {_AGAIN}") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise CheckpointError(f"{path}: was not written by cfnade; give the folder of its model")
    return content


def _described(path: Path) -> dict[str, Any]:
    return {"bytes": path.stat().st_size, "xxh3_128": digest_file(path)}


def _dumped(content: dict[str, Any], **layout: Any) -> str:
    try:
        return json.dumps(content, allow_nan=False, **layout)
    except (TypeError, ValueError, RecursionError) as error:
        raise CheckpointError(
            f"the model's facts cannot be written as JSON ({error}); use plain finite values"
        ) from error


def _versions() -> dict[str, str]:
    return {
        "cfnade": cfnade.__version__,
        "python": platform.python_version(),
        "torch": version("torch"),
        "numpy": np.__version__,
    }
