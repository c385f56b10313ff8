"""What a command imports and loads lasts as long as it does, so Python's collector leaves it alone.

It would look through all of that again and again while it grows, and once more at the end: a third
of the processor time of a command that answers one question.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def lasting() -> Iterator[None]:
    """Inside nothing is collected; what is made inside, and was there before, never is."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
