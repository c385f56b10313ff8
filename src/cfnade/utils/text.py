"""Words of messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


def count_of(n: int, noun: str) -> str:
    """Return a number with its noun: 1 item, 1,200 items."""
    return f"{n:,} {noun if n == 1 else noun + 's'}"


def option(name: str, value: object = None) -> str:
    """Return an option as its user writes it: `scale="1-5"`, in the command line `--scale 1-5`.

    Args:
        name: Name of the Python parameter.
        value: The value to give; None: the name alone.
    """
    return _format_option(name, value)


@contextmanager
def option_format(function: Callable[[str, object], str]) -> Iterator[None]:
    """Write options in messages by another function, in all threads of this process."""
    global _format_option
    before, _format_option = _format_option, function
    try:
        yield
    finally:
        _format_option = before


def python_option(name: str, value: object) -> str:
    """Return an option as a Python argument."""
    if value is None:
        return f"{name}="
    return f'{name}="{value}"' if isinstance(value, str) else f"{name}={value}"


_format_option: Callable[[str, object], str] = python_option
