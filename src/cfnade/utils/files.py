"""Atomic file replacement: readers see the old file or the complete new one."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def atomic_write(path: Path) -> Iterator[IO[bytes]]:
    """Write to a temporary file in the same folder; on success fsync and rename it to `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    fsync(path.parent)  # makes the rename durable


def write_text(path: Path, text: str) -> None:
    """Replace the content of `path` by a text in UTF-8, atomically."""
    with atomic_write(path) as file:
        file.write(text.encode())


def unfinished_writes(path: Path) -> list[Path]:
    """Return the temporary files that killed writers of `path` left."""
    return list(path.parent.glob(f".{path.name}.*.part"))


def fsync(path: Path) -> None:
    """Make the content of a file, or the entries of a folder, durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
