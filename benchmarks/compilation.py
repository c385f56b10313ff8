"""What is compiled before the first step, function by function, with nothing kept on disk.

    python benchmarks/compilation.py [GROUP ...]

Groups are those of `cfnade.kernels.warmup`, one after the other in one process: a function that
two of them need counts with the first.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


def watch(found: list[tuple[str, float]]) -> Callable[[], None]:
    """Note what Numba compiles from here on, each with its own seconds, without those inside it."""
    events: Any = importlib.import_module("numba.core.event")
    open_since: list[list[Any]] = []

    class Listener(events.Listener):  # type: ignore[misc]
        def on_start(self, _event: Any) -> None:
            open_since.append([time.process_time(), 0.0])

        def on_end(self, event: Any) -> None:
            start, inside = open_since.pop()
            took = time.process_time() - start
            found.append((event.data["dispatcher"].py_func.__qualname__, took - inside))
            if open_since:
                open_since[-1][1] += took

    listener = Listener()
    events.register("numba:compile", listener)
    return lambda: events.unregister("numba:compile", listener)


def measure(groups: list[str]) -> list[dict[str, Any]]:
    """CPU seconds and functions of every group."""
    from cfnade.kernels.warmup import GROUPS, paused_collector

    result = []
    for group in groups or list(GROUPS):
        found: list[tuple[str, float]] = []
        stop, start = watch(found), time.process_time()
        with paused_collector():
            GROUPS[group].work()
        stop()
        slowest = sorted(found, key=lambda one: -one[1])[:5]
        result.append(
            {
                "task": group,
                "seconds": time.process_time() - start,
                "functions": len(found),
                "slowest": slowest,
            }
        )
        print(json.dumps(result[-1]), flush=True)
    return result


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["NUMBA_CACHE_DIR"] = folder  # before Numba is imported
        measured = measure(sys.argv[1:])
        from benchmarks.common import machine, save

        if len(sys.argv) == 1:
            save("compilation", {"machine": machine(1), "tasks": measured})


if __name__ == "__main__":
    main()
