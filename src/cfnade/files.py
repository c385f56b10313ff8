"""Files that are either the old one or the new one, never half of either."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Write to a temporary name beside `path`; on success flush it to disk and rename it."""
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
    flush(path.parent)  # the rename itself


def parts_of(path: Path) -> list[Path]:
    """What killed writers of `path` left behind."""
    return list(path.parent.glob(f".{path.name}.*.part"))


def write_text(path: Path, text: str) -> None:
    """Replace the file at `path` by `text`, encoded as UTF-8."""
    with replacing(path) as file:
        file.write(text.encode())


def flush(path: Path) -> None:
    """Make a file, or the names in a folder, survive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
