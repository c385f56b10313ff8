"""Checks that options of models share."""

from __future__ import annotations

from typing import Any

from cfnade.errors import ModelError


def at_least(options: Any, least: float, *names: str) -> None:
    """These options must be numbers of this size or more."""
    for name in names:
        value = getattr(options, name)
        if not _number(value) or not value >= least:
            raise ModelError(f"{name} (={value!r}) must be a number of {least:g} or more")


def positive(options: Any, *names: str) -> None:
    """These options must be numbers above 0."""
    for name in names:
        value = getattr(options, name)
        if not _number(value) or not value > 0:
            raise ModelError(f"{name} (={value!r}) must be a number above 0")


def whole(options: Any, least: int, *names: str) -> None:
    """These options must be whole numbers of this size or more."""
    for name in names:
        value = getattr(options, name)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ModelError(f"{name} (={value!r}) must be a whole number of {least} or more")


def one_of(options: Any, name: str, allowed: tuple[str, ...]) -> None:
    """This option must be one of these words."""
    value = getattr(options, name)
    if value not in allowed:
        raise ModelError(f"{name} (={value!r}) must be one of {', '.join(allowed)}")


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
