"""A lock that ends with its process, however that ends: the system holds it, not the file."""

from __future__ import annotations

import errno
import logging
import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

_TAKEN = {errno.EACCES, errno.EAGAIN, errno.EDEADLK}
_CANNOT = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}
_BEYOND = (
    1 << 30
)  # Windows locks bytes, and nobody could read who holds these if they were the text
_log = logging.getLogger("cfnade")


class TakenError(Exception):
    """Somebody else holds the lock; the message says which process."""


@contextmanager
def only_one(path: Path) -> Iterator[None]:
    """Hold the lock at `path`, a file that is there meanwhile; TakenError if another holds it."""
    handle = _opened(path)
    try:
        os.truncate(handle, 0)
        os.write(handle, f"{os.getpid()} on {platform.node()}".encode())
        yield
    finally:
        with suppress(OSError):  # Windows removes no open file; one that stays locks nothing
            path.unlink()
        os.close(handle)


def _opened(path: Path) -> int:
    """The file, locked."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            if not _take(handle, path):
                holder = os.pread(handle, 200, 0) if hasattr(os, "pread") else path.read_bytes()
                raise TakenError(f"process {holder.decode(errors='replace') or '(starting)'}")
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(handle), path.stat()):
                    return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)  # the one before has just removed it: this lock is on no name


def _take(handle: int, path: Path) -> bool:
    """Lock an open file if nobody has; where files cannot be locked, go on and say so."""
    try:
        if sys.platform == "win32":
            os.lseek(handle, _BEYOND, os.SEEK_SET)
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
            os.lseek(handle, 0, os.SEEK_SET)
        else:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _TAKEN:
            return False
        if error.errno not in _CANNOT:
            raise
        _log.warning("%s: this disk has no locks; let only one process write there", path.parent)
    return True
