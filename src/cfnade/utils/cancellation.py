"""Cooperative cancellation of long computations.

A caller gives a function that raises when the work is no longer wanted. It is called between
pieces of work on the same thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Check = Callable[[], None]
"""Raises to cancel; what it raises reaches the caller."""


def never() -> None:
    """Cancel nothing."""


_CHECK: ContextVar[Check] = ContextVar("check", default=never)


@contextmanager
def checking(check: Check) -> Iterator[None]:
    """Call `check` wherever the work inside calls `check_cancelled`."""
    token = _CHECK.set(check)
    try:
        yield
    finally:
        _CHECK.reset(token)


def check_cancelled() -> None:
    """Raise what the caller's check raises, if the work is no longer wanted."""
    _CHECK.get()()
