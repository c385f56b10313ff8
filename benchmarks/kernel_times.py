"""Seconds of every kernel in an epoch, as the thread sees them that hands out the work.

A kernel begins by waiting for other threads: that counts with it.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.common import Clock
from cfnade.kernels import engine, hidden_layers, sampling

PARTS = {
    (sampling, "split_rows"): "draw and group",
    (sampling, "write_columns"): "draw and group",
    (engine, "sum_context"): "sum contexts",
    (hidden_layers, "pack_layer"): "hidden layers, both ways",
    (hidden_layers, "hidden_forward"): "hidden layers, both ways",
    (hidden_layers, "hidden_backward"): "hidden layers, both ways",
    (engine, "update_output_table"): "fit targets",
    (engine, "update_input_table"): "fit contexts",
    (hidden_layers, "update_layer"): "fit dense weights",
}
"""What a function is part of, by the module that calls it and its name there."""

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
    before = {(module, name): getattr(module, name) for module, name in PARTS}
    for (module, name), function in before.items():
        setattr(module, name, _watching(function, found, PARTS[module, name], clock))
    try:
        yield found
    finally:
        for (module, name), function in before.items():
            setattr(module, name, function)


def _watching(
    function: Callable[..., Any], found: dict[str, float], part: str, clock: Clock
) -> Callable[..., Any]:
    thread = threading.get_ident()

    def watching(*arguments: Any) -> Any:
        if threading.get_ident() != thread:
            return function(*arguments)
        start = clock()
        try:
            return function(*arguments)
        finally:
            found[part] += clock() - start

    return watching
