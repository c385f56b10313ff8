"""Words of messages."""

from __future__ import annotations


def count_of(n: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun: 1 item, 1,200 items."""
    return f"{n:,} {noun if n == 1 else plural or noun + 's'}"
