"""Threads that stay, for kernels that release the GIL; and how many of its own torch may use.

A kernel is plain serial code over a range of its work; here ranges meet threads. Unlike Numba's
own parallel loops, this may be called from several threads at once, ends after a fork without
hanging, and leaves no spinning worker behind that would fight with BLAS for the cores. Torch is not
imported here before somebody asks it for anything: to answer takes no torch.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any

from cfnade.exceptions import ModelError

Answers = SimpleQueue[tuple[Any, BaseException | None]]
HandedOver = tuple[Callable[..., Any], Sequence[Any], Answers]

_known: dict[tuple[int, int], Crew] = {}
_making = Lock()


def thread_count(threads: int | None) -> int:
    """The number asked for, or torch's."""
    count = _usual_count() if threads is None else threads
    if count < 1:
        raise ModelError(f"threads (={threads}) must be at least 1, or None for torch's number")
    return count


def _usual_count() -> int:
    """Torch's number; while nobody has imported it, what it would begin with."""
    if _torch_is_here():
        import torch

        return torch.get_num_threads()
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        number = os.environ.get(name, "").split(",")[0]
        if number.isdecimal() and int(number) > 0:
            return int(number)
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def _torch_is_here() -> bool:
    """Whether it was imported, all of it: another thread may be about to."""
    return hasattr(sys.modules.get("torch"), "get_num_threads")


# torch.set_num_threads sets the numbers of the calling thread, OpenMP's and MKL's, and besides the
# default of every thread that has yet to use torch, which cannot be taken back. So we set the
# thread's own numbers only, in the libraries that torch has loaded.


@cache
def _function(name: str) -> Any:
    """A function of torch or of what it is linked with, None if there is no such."""
    import torch

    try:
        return getattr(ctypes.CDLL(str(torch._C.__file__)), name)
    except (AttributeError, OSError):
        return None


def _set_own(count: int, mkl: int) -> int:
    """Have the calling thread use `count` threads in torch; 0 for mkl is what all threads have.

    Returns the number that MKL had here.
    """
    import torch

    torch.get_num_threads()  # a thread's first use of torch would set its numbers anew
    set_openmp, set_mkl = map(_function, ("omp_set_num_threads", "MKL_Set_Num_Threads_Local"))
    if set_openmp is None:
        torch.set_num_threads(count)
        return mkl
    set_openmp(count)
    return mkl if set_mkl is None else int(set_mkl(mkl))


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Have torch use so many threads for what the calling thread does inside.

    No other thread sees it, born or unborn. (Where torch's OpenMP cannot be reached, as on Windows,
    a thread that first uses torch meanwhile takes the number over and keeps it.)
    """
    import torch

    before = torch.get_num_threads()
    mkl = _set_own(count, count)
    try:
        yield
    finally:
        _set_own(before, mkl)


def one_torch_thread() -> AbstractContextManager[None]:
    """Keep torch on the calling thread inside: its workers would compete with ours."""
    return torch_threads(1)


class Helper:
    """A thread that takes over parts, one after the other.

    A step of training hands out once or twice. A pool of the standard library, with its locks and
    conditions for each part, takes half as long again.
    """

    def __init__(self, number: int) -> None:
        self._parts: SimpleQueue[HandedOver | None] = SimpleQueue()
        self._thread = Thread(target=self._work, name=f"cfnade_{number}", daemon=True)
        self._thread.start()
        atexit.register(self._end)

    def begin(self, function: Callable[..., Any], part: Sequence[Any]) -> Answers:
        """Have function(*part) called; what it returns or raises will stand in the answers."""
        answers: Answers = SimpleQueue()
        self._parts.put((function, part, answers))
        return answers

    def _end(self) -> None:
        """Wait for a part that is still being worked on: its memory is about to go."""
        self._parts.put(None)
        self._thread.join()

    def _work(self) -> None:
        alone = False  # whether torch, which may come late, has one thread here
        while (handed_over := self._parts.get()) is not None:
            if not alone and _torch_is_here():
                _set_own(1, 1)
                alone = True
            function, part, answers = handed_over
            try:
                answers.put((function(*part), None))
            except BaseException as error:
                answers.put((None, error))
            # Nothing is held while waiting: a model is freed when its owner drops it.
            del function, part, answers, handed_over


class Crew:
    """Helpers that work together.

    Their parts may wait for each other (gates.py). So all of one caller's parts stand before all of
    another's: if two helpers had them in different orders, both callers would wait for ever.
    """

    def __init__(self, count: int) -> None:
        self._helpers, self._handing_out = [Helper(number) for number in range(count)], Lock()

    def begin(self, function: Callable[..., Any], parts: Sequence[Sequence[Any]]) -> list[Answers]:
        with self._handing_out:
            pairs = zip(self._helpers, parts, strict=True)
            return [helper.begin(function, part) for helper, part in pairs]


def _crew(count: int) -> Crew:
    """Of so many threads; a child after a fork has none of its parent's."""
    key = os.getpid(), count
    if key in _known:
        return _known[key]
    with _making:
        if key not in _known:
            _known[key] = Crew(count)
        return _known[key]


def run(function: Callable[..., Any], parts: Sequence[Sequence[Any]]) -> list[Any]:
    """function(*part) for every part, each on a thread of its own, the first on this one.

    All parts have ended when it returns or raises: they write to arrays of the caller.
    """
    if len(parts) == 1:
        return [function(*parts[0])]
    begun = _crew(len(parts) - 1).begin(function, parts[1:])
    results: list[Any] = []
    try:
        results.append(function(*parts[0]))
    finally:
        answers = [answer.get() for answer in begun]
    for result, error in answers:
        if error is not None:
            raise error
        results.append(result)
    return results
