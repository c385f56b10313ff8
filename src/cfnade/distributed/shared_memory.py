"""Memory that the ranks of one machine share: faster than sockets between processes side by side.

Each rank shows what it has in a file of its own that all have mapped, counts up, and reads what the
others show once they have counted as far. A place is written again two turns later: who counted
the turn between has read it. Files have no name any more once all have opened them, and their locks
end with the processes that hold them, so that nothing stays and a rank that died is noticed.
"""

from __future__ import annotations

import mmap
import os
import platform
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from cfnade.distributed.process_group import Array

if sys.platform != "win32":
    import fcntl

FOLDER = "/dev/shm"  # in memory, where there is such a folder
MOST = 8 << 20
"""Bytes of what is shown at once; more goes another way."""
_HEAD = 64  # the count, alone in its line of the cache
_TURNS, _NAPS = 2_000, 2_000
"""How often a rank looks before it begins to sleep, and sleeps before it asks who is there."""
_NAP = 2e-5
ORDERED = ("x86_64", "AMD64")  # processors that show writes in the order in which they were made


class RankGoneError(Exception):
    """Another rank ended, or did not come in time; the message says which of the two."""


class SharedMemory:
    """What `size` ranks show each other; this one is number `rank`."""

    def __init__(self, rank: int, files: list[int], patience: float) -> None:
        self._rank, self._files, self._patience = rank, files, patience
        self._maps = [mmap.mmap(file, _HEAD + 2 * MOST) for file in files]
        self._counts: list[Any] = [memoryview(one)[:8].cast("q") for one in self._maps]
        self._count = 0

    def close(self) -> None:
        for count, one, file in zip(self._counts, self._maps, self._files, strict=True):
            count.release()
            with suppress(BufferError):  # something shown is still held; it goes with that
                one.close()
            os.close(file)

    def show(self, rows: Array, *ranges: tuple[int, int]) -> list[Array]:
        """Show some of the rows; returns what each rank shows of rows of that shape.

        It may be read until this rank shows something again.
        """
        self._count += 1
        begin = _HEAD + (self._count & 1) * MOST
        shown = [
            np.frombuffer(one, rows.dtype, rows.size, begin).reshape(rows.shape)
            for one in self._maps
        ]
        for lo, hi in ranges:
            shown[self._rank][lo:hi] = rows[lo:hi]
        self._counts[self._rank][0] = self._count
        for number, count in enumerate(self._counts):
            if count[0] < self._count:
                self._wait(number)
        return shown

    def _wait(self, number: int) -> None:
        count, looks, until = self._counts[number], 0, time.monotonic() + self._patience
        while count[0] < self._count:
            looks += 1
            if looks > _TURNS:
                time.sleep(_NAP)
            if looks > _TURNS and looks % _NAPS == 0:
                self._check(number, until)

    def _check(self, number: int, until: float) -> None:
        if time.monotonic() > until:
            raise RankGoneError("does not answer")
        with suppress(BlockingIOError):
            fcntl.flock(self._files[number], fcntl.LOCK_SH | fcntl.LOCK_NB)
            if self._counts[number][0] < self._count:  # it may have shown this before it ended
                raise RankGoneError("is gone")


def own_room() -> tuple[int, str]:
    """A file to show things in, and its name; -1 and "" where there can be none."""
    if platform.machine() not in ORDERED or not Path(FOLDER).is_dir():
        return -1, ""
    try:
        file, path = tempfile.mkstemp(prefix="cfnade-", dir=FOLDER)
    except OSError:
        return -1, ""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.posix_fallocate(file, 0, _HEAD + 2 * MOST)
    except OSError:  # too little room
        Path(path).unlink()
        os.close(file)
        return -1, ""
    return file, path


def rooms_of(paths: list[str], rank: int, own: int) -> list[int]:
    """The files of all ranks, as this one opens them; empty if it does not see all of them."""
    files: list[int] = []
    for number, path in enumerate(paths):
        try:
            files.append(own if number == rank else os.open(path, os.O_RDWR))
        except OSError:  # another machine, or a container of its own
            for file in files:
                if file != own:
                    os.close(file)
            return []
    return files
