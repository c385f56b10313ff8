"""The model of a folder and the last few before it, changed in steps that a kill leaves whole.

    MODEL/…              the model that counts (checkpoint/folder.py)
    MODEL/earlier/0007   the one before; the highest number is the newest

A copy of the model that counts is put among the earlier ones first, under a name that nobody reads
until it is whole; then the new one takes its place in one step. Killed in between, the newest of
the earlier ones is the same as the model, which nobody counts as another one.
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

EARLIER = "earlier"
KEPT = 3
_PART = ".part-"


def publish(fitted: FittedModel, folder: Path) -> None:
    """Put a model in the place of the one that is there, which is kept among the earlier ones."""
    _tidy(folder)
    is_model = resolve_file(folder, MANIFEST).exists()
    if is_model and fingerprint(folder) not in map(fingerprint, earlier(folder)):
        _keep(folder)
    checkpoint.save(fitted, folder)
    _tidy(folder)


def rollback(folder: Path) -> Path:
    """The newest earlier model takes the place of the one that counts, which goes. Returns where it
    was."""
    _tidy(folder)
    now = fingerprint(folder)
    others = [one for one in earlier(folder) if fingerprint(one) != now]
    if not others:
        raise CheckpointError(
            f"{folder}: there is no earlier model to go back to; `cfnade refresh` keeps the last "
            f"{KEPT}"
        )
    with _written(), commit_files(folder, FILES) as part:
        for name in _files(others[0]):
            _link(others[0] / name, part / name)
    for one in earlier(folder):
        if fingerprint(one) == fingerprint(folder):
            shutil.rmtree(one)
    return others[0]


def earlier(folder: Path) -> list[Path]:
    """The folders of earlier models, the newest first."""
    folders = [one for one in (folder / EARLIER).glob("[0-9]*") if one.is_dir()]
    return sorted(folders, reverse=True)


def fingerprint(folder: Path) -> Any:
    """What tells the model of a folder from others."""
    return read_manifest(resolve_file(folder, MANIFEST))["check"]


def _keep(folder: Path) -> None:
    """A copy of the model among the earlier ones, if its disk can be written."""
    with _written():
        numbers = [int(one.name) for one in earlier(folder)]
        name = f"{max(numbers, default=0) + 1:04d}"
        part = folder / EARLIER / f"{_PART}{os.getpid()}"
        part.mkdir(parents=True)
        for file in _files(folder):
            _link(resolve_file(folder, file), part / file)
        fsync(part)
        part.rename(folder / EARLIER / name)
        fsync(folder / EARLIER)


def _tidy(folder: Path) -> None:
    """Remove what a killed writer left, and those beyond the last few."""
    for left in (folder / EARLIER).glob(f"{_PART}*"):
        shutil.rmtree(left, ignore_errors=True)
    for one in earlier(folder)[KEPT:]:
        shutil.rmtree(one, ignore_errors=True)


def _files(folder: Path) -> list[str]:
    return [*read_manifest(resolve_file(folder, MANIFEST))["files"], MANIFEST]


def _link(source: Path, target: Path) -> None:
    """The same bytes under another name: files of models are replaced, never changed."""
    try:
        os.link(source, target)
    except OSError:  # a disk without links
        shutil.copy2(source, target)


@contextmanager
def _written() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CfnadeError(
            f"{error.filename}: cannot be written ({error.strerror}); the model that was there "
            "is whole: make room and try again"
        ) from error
