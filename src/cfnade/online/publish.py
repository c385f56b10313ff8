"""Replace the model of a folder, keep the last versions, and roll back.

    MODEL/…              the current model (checkpoint/folder.py)
    MODEL/earlier/0007   the model before it; the highest number is the newest

A copy of the current model is moved to the earlier ones when it is complete; then the new model
replaces the current one in one step. After a kill in between, the newest earlier model equals the
current one, and does not count as a version.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cfnade import checkpoint
from cfnade.checkpoint.folder import commit_files, resolve_file
from cfnade.checkpoint.manifest import FILES, MANIFEST, read_manifest
from cfnade.exceptions import CfnadeError, CheckpointError
from cfnade.fitted_model import FittedModel
from cfnade.utils.files import fsync

_EARLIER = "earlier"
N_VERSIONS = 3
_PART = ".part-"


def publish(fitted: FittedModel, model_dir: Path) -> None:
    """Replace the model of a folder, which is kept as an earlier version."""
    _clean(model_dir)
    versions = map(fingerprint, earlier_versions(model_dir))
    if resolve_file(model_dir, MANIFEST).exists() and fingerprint(model_dir) not in versions:
        _keep(model_dir)
    checkpoint.save(fitted, model_dir)
    _clean(model_dir)


def rollback(model_dir: Path) -> Path:
    """Replace the current model by the newest earlier version, and return where that was."""
    _clean(model_dir)
    current = fingerprint(model_dir)
    versions = [path for path in earlier_versions(model_dir) if fingerprint(path) != current]
    if not versions:
        raise CheckpointError(
            f"{model_dir}: there is no earlier version to return to; `cfnade refresh` keeps the "
            f"last {N_VERSIONS}"
        )
    with _write_errors(), commit_files(model_dir, FILES) as part:
        for name in _files(versions[0]):
            _link(versions[0] / name, part / name)
    for path in earlier_versions(model_dir):
        if fingerprint(path) == fingerprint(model_dir):
            shutil.rmtree(path)
    return versions[0]


def earlier_versions(model_dir: Path) -> list[Path]:
    """Return the folders of earlier versions, the newest first."""
    folders = [path for path in (model_dir / _EARLIER).glob("[0-9]*") if path.is_dir()]
    return sorted(folders, reverse=True)


def fingerprint(model_dir: Path) -> Any:
    """Return the digest that identifies the model of a folder."""
    return read_manifest(resolve_file(model_dir, MANIFEST))["check"]


def _keep(model_dir: Path) -> None:
    """Copy the current model to the earlier versions."""
    folder = model_dir / _EARLIER
    with _write_errors():
        numbers = [int(path.name) for path in earlier_versions(model_dir)]
        part = folder / f"{_PART}{os.getpid()}"
        part.mkdir(parents=True)
        for file in _files(model_dir):
            _link(resolve_file(model_dir, file), part / file)
        fsync(part)
        part.rename(folder / f"{max(numbers, default=0) + 1:04d}")
        fsync(folder)


def _clean(model_dir: Path) -> None:
    """Remove what a killed process left, and versions beyond the last ones."""
    for part in (model_dir / _EARLIER).glob(f"{_PART}*"):
        shutil.rmtree(part, ignore_errors=True)
    for path in earlier_versions(model_dir)[N_VERSIONS:]:
        shutil.rmtree(path, ignore_errors=True)


def _files(model_dir: Path) -> list[str]:
    return [*read_manifest(resolve_file(model_dir, MANIFEST))["files"], MANIFEST]


def _link(source: Path, target: Path) -> None:
    """Link a file of a model, which is replaced but never changed."""
    try:
        os.link(source, target)
    except OSError:  # a file system without links
        shutil.copy2(source, target)


@contextmanager
def _write_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CfnadeError(
            f"{error.filename}: cannot be written ({error.strerror}); the current model is "
            "unchanged: free some space and try again"
        ) from error
