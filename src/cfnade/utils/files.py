"""Atomic file replacement, and an exclusive lock between processes.

Readers of a file see the old content or the complete new content.
"""

from __future__ import annotations

import errno
import logging
import os
import platform
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

_NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}
_log = logging.getLogger("cfnade")


class LockedError(Exception):
    """Another process holds the lock; the message names the process."""


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


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold a lock on the file `path`; raise a LockedError if it is held.

    The lock ends with the process, even if that is killed. On a file system without locks a warning
    is logged instead.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(path, blocking=False, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout:
        with suppress(OSError):
            raise LockedError(f"process {path.read_text() or '(starting)'}") from None
        raise LockedError("another process") from None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        _log.warning(
            "%s: this file system has no locks; let only one process write there", path.parent
        )
    try:
        path.write_text(f"{os.getpid()} on {platform.node()}")
        yield
    finally:
        # Removed while the lock is held: filelock accepts no lock on a removed file.
        with suppress(OSError):  # Windows does not remove an open file
            path.unlink()
        lock.release()


def fsync(path: Path) -> None:
    """Make the content of a file, or the entries of a folder, durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
