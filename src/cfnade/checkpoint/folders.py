"""Files of a folder that change together: after a kill at any moment all are old or all are new.

New files are written into a subfolder `.new-<process>` and flushed; then that is renamed to `.new`,
and this one step is the change. From then on a file is looked for in `.new` first. What remains is
tidying: each file moves up, those that the new ones do without are removed, and `.new` goes. After
a kill, readers find the same files, and the next writer tidies first. Files of other names in the
folder are left alone. One process writes at a time; any number may read.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cfnade.utils.files import fsync

STAGED = ".new"
GONE = ".gone"
"""Marks a name that the new files do without."""


def current(folder: Path, name: str) -> Path:
    """Where the file of that name counts now."""
    staged = folder / STAGED / name
    return staged if staged.exists() else folder / name


def snapshot(folder: Path, name: str) -> tuple[object, ...]:
    """Something that differs after the files have changed, or while they are being tidied."""
    staged = folder / STAGED
    try:
        names = sorted(path.name for path in staged.iterdir()) if staged.is_dir() else None
        path = current(folder, name)
        status = path.stat() if path.exists() else None
    except FileNotFoundError:  # it was there a moment ago
        return (object(),)
    return names, status and (status.st_ino, status.st_mtime_ns, status.st_size)


@contextmanager
def replacing_files(folder: Path, names: Iterable[str]) -> Iterator[Path]:
    """Write files into the folder given; on success they take the place of all files `names`."""
    folder.mkdir(parents=True, exist_ok=True)
    fsync(folder.parent)
    tidy(folder)
    part = folder / f"{STAGED}-{os.getpid()}"
    part.mkdir()
    try:
        yield part
        for name in names:
            if not (part / name).exists():
                (part / f"{name}{GONE}").touch()
        for path in [*part.iterdir(), part]:
            fsync(path)
        part.rename(folder / STAGED)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    fsync(folder)
    tidy(folder)


def tidy(folder: Path) -> None:
    """Finish what a killed writer began: remove what was not yet a change, complete what was."""
    for left in folder.glob(f"{STAGED}-*"):
        shutil.rmtree(left)
    staged = folder / STAGED
    if not staged.is_dir():
        return
    for path in sorted(staged.iterdir()):
        if path.suffix == GONE:
            (folder / path.stem).unlink(missing_ok=True)
            path.unlink()
        else:
            path.replace(folder / path.name)
    fsync(folder)
    staged.rmdir()
    fsync(folder)
