"""Seconds of every kernel in an epoch: what engine and sampler hand to threads is watched."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.common import Clock
from cfnade.kernels import drawing, engine

PARTS = {
    "mark": "draw and group",
    "_cursors": "draw and group",
    "_scatter": "draw and group",
    "sum_context": "sum contexts",
    "merge": "add up threads",
    "_encode_rows": "hidden layers, both ways",
    "_back_rows": "hidden layers, both ways",
    "target_step": "fit targets",
    "context_step": "fit contexts",
    "flat_step": "fit dense weights",
}
"""What a function is part of, by its name."""

OUTSIDE = "between kernels"


def profile(epoch: Callable[[], Any], clock: Clock = time.perf_counter) -> dict[str, float]:
    """Seconds of an epoch by part; what is spent in no kernel is a part, too."""
    start = clock()
    with _watched(clock) as found:
        epoch()
    return dict(found) | {OUTSIDE: clock() - start - sum(found.values())}


@contextmanager
def _watched(clock: Clock) -> Iterator[dict[str, float]]:
    """Inside, seconds by part are added to what this gives."""
    found: dict[str, float] = defaultdict(float)
    before = {(module, name): getattr(module, name) for module, name in _WATCHED}
    for (module, name), function in before.items():
        setattr(module, name, _watching(function, found, clock))
    try:
        yield found
    finally:
        for (module, name), function in before.items():
            setattr(module, name, function)


_WATCHED = [(engine, "run"), (drawing, "run"), (engine, "flat_step"), (drawing, "_cursors")]


def _watching(
    function: Callable[..., Any], found: dict[str, float], clock: Clock
) -> Callable[..., Any]:
    def watching(first: Any, *rest: Any) -> Any:
        named = first if callable(first) else function
        start = clock()
        try:
            return function(first, *rest)
        finally:
            found[PARTS[named.__name__]] += clock() - start

    return watching
