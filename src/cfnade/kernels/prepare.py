"""Kernels are compiled on first use and kept on disk; whoever waits for that should be told.

Numba compiles one function at a time in a process. So those of posteriors, about half of the work,
are compiled by a second process meanwhile, which may be started before anything is known of the
data (`ahead`); this one then reads them from the disk.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from numba.core.caching import NullCache
from numba.core.registry import cpu_target

from cfnade.kernels import posterior
from cfnade.kernels.compiled import MESSAGE, announcement
from cfnade.kernels.second_process import SecondProcess
from cfnade.kernels.tasks import LISTED, NEWCOMERS, PICKS, POSTERIORS, TASKS


class CacheState(NamedTuple):
    """How many kernels are kept on disk for this machine, and how many would be compiled."""

    ready: int
    missing: int


def cache_state(*tasks: str) -> CacheState:
    """Look at the disk; nothing is compiled. tasks are some of TASKS, all if none is named."""
    ready = [_is_kept(kernel) for kernel in _kernels(tasks)]
    return CacheState(sum(ready), len(ready) - sum(ready))


def prepare(notify: Callable[[str], None] | None = None, *tasks: str) -> bool:
    """Compile, in single precision, what the tasks need (see TASKS; all if none is named).

    If anything has to be, notify gets MESSAGE first. Returns whether it had to.
    """
    missing = ahead(notify, *tasks)
    if missing:
        with uncollected():
            # They wait for the other process.
            late = ("ridge", POSTERIORS, NEWCOMERS, LISTED, "requests")
            for task in sorted(_named(tasks), key=lambda task: task in late):
                TASKS[task][0]()
    return missing


@contextmanager
def uncollected() -> Iterator[None]:
    """A compiler makes millions of objects; to look for cycles among them takes a seventh of all
    its time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def ahead(notify: Callable[[str], None] | None, *tasks: str) -> bool:
    """Say that something has to be compiled, if so, and begin with what another process can do."""
    missing = cache_state(*tasks).missing
    if missing and notify is not None and not announcement.announced:
        notify(MESSAGE)
        announcement.announced = True
    if "ridge" in tasks and (os.cpu_count() or 1) > 1 and cache_folder_of_kernels() is not None:
        others = (POSTERIORS, NEWCOMERS, *([LISTED] if PICKS in tasks else []))
        there = _kernels(others)
        parts = there, _kernels(tasks) - there
        if min(sum(not _is_kept(one) for one in part) for part in parts) >= WORTH_IT:
            SecondProcess.start(*others)
    return missing > 0


WORTH_IT = 3
"""Kernels on either side for which a second process is started: it takes seconds by itself."""


def cache_folder_of_kernels() -> str | None:
    """Where they are kept, None if no folder is writable. Another machine with the same processor
    may take these files over."""
    path = posterior.expect._cache.cache_path
    return None if path is None else str(path)


def _kernels(tasks: tuple[str, ...]) -> set[Any]:
    return {kernel for task in _named(tasks) for kernel in TASKS[task][1]}


def _named(tasks: tuple[str, ...]) -> tuple[str, ...]:
    """The tasks that are meant."""
    return (*tasks, LISTED) if PICKS in tasks else tasks or tuple(TASKS)


def _is_kept(kernel: Any) -> bool:
    """Whether Numba's index of the kernel names code for this machine and this source."""
    if isinstance(kernel._cache, NullCache):
        return bool(kernel.signatures)  # compiled by this process
    index = kernel._cache._cache_file._load_index()  # empty if sources have changed since
    machine = cpu_target.target_context.codegen().magic_tuple()
    return any(key[1] == machine for key in index)
