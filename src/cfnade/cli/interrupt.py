"""Ctrl-C while a model is trained."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


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
