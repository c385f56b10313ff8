"""What a command does to its own process while it works: it says how it goes, compiles what it will
need, keeps Python's collector away, and ends well when it is interrupted.
"""

from __future__ import annotations

import gc
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def say(line: str) -> None:
    """How it goes, for whoever watches."""
    print(line, file=sys.stderr, flush=True)


def compile_kernels(*groups: str) -> None:
    """Compile groups of kernels (all, if none is named); kernels/jit.py announces it."""
    with lasting():
        from cfnade.kernels.warmup import compile_kernels

        compile_kernels(*groups)


def compile_ahead(*groups: str) -> None:
    """Begin with that while other things are done."""
    from cfnade.kernels.warmup import compile_in_background

    compile_in_background(*groups)


@contextmanager
def lasting() -> Iterator[None]:
    """Inside nothing is collected; what is made inside, and was there before, never is.

    What a command imports and loads lasts as long as it does. The collector would look through all
    of that again and again while it grows, and once more at the end: a third of the processor time
    of a command that answers one question.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def next_command(out: Path, test_ratings: int, user: Any) -> str:
    """Return a command that works with the model: without a test part, evaluate does not."""
    if test_ratings:
        return f"cfnade evaluate {shlex.quote(str(out))}"
    return f"cfnade recommend {shlex.quote(str(out))} --user {shlex.quote(str(user))}"


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C was pressed: it ends the epoch under way, a second one ends at once."""
    presses: list[int] = []

    def press(number: int, _: object) -> None:
        if presses:
            raise KeyboardInterrupt
        presses.append(number)
        print("ending this epoch; Ctrl-C again to stop at once", file=sys.stderr)

    if threading.current_thread() is not threading.main_thread():  # of an engine's worker
        yield lambda: False
        return
    before = signal.signal(signal.SIGINT, press)
    try:
        yield lambda: bool(presses)
    finally:
        signal.signal(signal.SIGINT, before)
