"""Simulate a killed process and a full disk within the test's process."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest


class Killed(BaseException):
    """Stands for SIGKILL: nothing reaches the disk afterwards, clean-up code included."""


STEPS = ("rename", "replace", "fsync", "mkdir", "rmdir", "unlink", "open", "chmod")


def kill_at(monkeypatch: pytest.MonkeyPatch, step: int) -> list[str]:
    """Let `step` file operations happen and raise `Killed` at every later one; return their log."""
    log: list[str] = []

    def guarded(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if len(log) >= step:
                raise Killed(name)
            log.append(name)
            return real(*args, **kwargs)

        return call

    for name in STEPS:
        monkeypatch.setattr(os, name, guarded(name, getattr(os, name)))
    return log


@contextmanager
def disk_limit(size: int) -> Iterator[None]:
    """Fail writes beyond `size` bytes of a file, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
