"""The process of a command: terminal, compilation, garbage collection, Ctrl-C."""

from __future__ import annotations

import gc
import re
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_SPACES = re.compile(r"[\t\n\v\f\r\x1c-\x1f\x85\u2028\u2029]")
_UNSAFE = re.compile(
    r"[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f"  # control characters, such as the start of an escape
    r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # marks and overrides of the text's direction
    r"\ud800-\udfff]"  # halves of characters, which cannot be encoded
)


def printable(text: str) -> str:
    """Return a text of a data set, such as a title, without what controls a terminal.

    Line breaks and tabs become spaces. Control characters and overrides of the direction of
    writing, which could rewrite or reorder what is printed around them, are removed.
    """
    return _UNSAFE.sub("", _SPACES.sub(" ", text))


def printable_lines(text: str) -> str:
    """Return a message of several lines, each of them printable."""
    return "\n".join(map(printable, text.split("\n")))


def print_status(line: str) -> None:
    """Print a line about the progress of a command to standard error."""
    print(line, file=sys.stderr, flush=True)


def compile_kernels(*groups: str) -> None:
    """Compile groups of kernels, or all groups; kernels/jit.py announces it."""
    with gc_frozen():
        from cfnade.kernels import warmup

        warmup.compile_kernels(*groups)


def compile_ahead(*groups: str) -> None:
    """Start to compile kernels in a second process."""
    from cfnade.kernels.warmup import compile_in_background

    compile_in_background(*groups)


@contextmanager
def gc_frozen() -> Iterator[None]:
    """Disable garbage collection, and afterwards exclude all present objects from it.

    Imported modules and a loaded model live as long as the command. Traversing them repeatedly
    takes a third of the processor time of a command that answers one query.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def next_command(out: Path, test_ratings: int, user: Any) -> str:
    """Return a command to try next: evaluate if there is a test part, else recommend."""
    if test_ratings:
        return f"cfnade evaluate {shlex.quote(str(out))}"
    return f"cfnade recommend {shlex.quote(str(out))} --user {shlex.quote(str(user))}"


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether Ctrl-C was pressed; the second Ctrl-C interrupts."""
    presses: list[int] = []

    def press(number: int, _: object) -> None:
        if presses:
            raise KeyboardInterrupt
        presses.append(number)
        print("stopping after this epoch; press Ctrl-C again to stop now", file=sys.stderr)

    if threading.current_thread() is not threading.main_thread():  # in a worker of an engine
        yield lambda: False
        return
    before = signal.signal(signal.SIGINT, press)
    try:
        yield lambda: bool(presses)
    finally:
        signal.signal(signal.SIGINT, before)
