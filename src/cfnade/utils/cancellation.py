"""Cooperative cancellation: long computations stop at their next check.

A thread cannot be stopped from outside. Whoever starts a computation gives it an event, and the
computation calls `check_cancelled` between its parts:

    with cancelled_by(event):
        explanation(...)
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_event: ContextVar[threading.Event | None] = ContextVar("cancellation", default=None)


class ComputationCancelledError(Exception):
    """The caller no longer needs the result."""


@contextmanager
def cancelled_by(event: threading.Event) -> Iterator[None]:
    """Inside, `check_cancelled` raises once the event is set. Other threads are not affected."""
    token = _event.set(event)
    try:
        yield
    finally:
        _event.reset(token)


def check_cancelled() -> None:
    """Raise ComputationCancelledError if the result is not wanted any longer."""
    event = _event.get()
    if event is not None and event.is_set():
        raise ComputationCancelledError
