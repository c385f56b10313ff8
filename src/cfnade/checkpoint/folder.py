"""Replace several files of a folder in one step: after a kill all are old or all are new.

New files are written to a subfolder `.new-PID` and flushed to disk; then it is renamed to `.new`.
This single step is the commit: from then on `resolve_file` finds the files in `.new` first. The
rest is cleanup: the files move up, files that have no new version are deleted, `.new` is removed.
If the cleanup is interrupted, readers still find the new files, and the next writer completes it.
Other files in the folder are left alone. One process may write at a time; any number may read.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cfnade.utils.files import fsync

STAGED = ".new"
_DELETED = ".gone"
"""Suffix that marks a file without a new version."""


def resolve_file(folder: Path, name: str) -> Path:
    """Return the path of the current version of a file."""
    staged = folder / STAGED / name
    return staged if staged.exists() else folder / name


def folder_version(folder: Path, name: str) -> tuple[object, ...]:
    """Return a value that changes when the files change, or while a commit is cleaned up."""
    staged = folder / STAGED
    try:
        names = sorted(path.name for path in staged.iterdir()) if staged.is_dir() else None
        path = resolve_file(folder, name)
        status = path.stat() if path.exists() else None
    except FileNotFoundError:  # deleted a moment ago
        return (object(),)
    return names, status and (status.st_ino, status.st_mtime_ns, status.st_size)


@contextmanager
def commit_files(folder: Path, names: Iterable[str]) -> Iterator[Path]:
    """Yield an empty folder to write to; on success its files replace all files `names`."""
    folder.mkdir(parents=True, exist_ok=True)
    fsync(folder.parent)
    recover(folder)
    part = folder / f"{STAGED}-{os.getpid()}"
    part.mkdir()
    try:
        yield part
        for name in names:
            if not (part / name).exists():
                (part / f"{name}{_DELETED}").touch()
        for path in [*part.iterdir(), part]:
            fsync(path)
        part.rename(folder / STAGED)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    fsync(folder)
    recover(folder)


def recover(folder: Path) -> None:
    """Complete an interrupted commit, and delete files of a writer that did not reach it."""
    for part in folder.glob(f"{STAGED}-*"):
        shutil.rmtree(part)
    staged = folder / STAGED
    if not staged.is_dir():
        return
    for path in sorted(staged.iterdir()):
        if path.suffix == _DELETED:
            (folder / path.stem).unlink(missing_ok=True)
            path.unlink()
        else:
            path.replace(folder / path.name)
    fsync(folder)
    staged.rmdir()
    fsync(folder)
