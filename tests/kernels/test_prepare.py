"""Kernels compiled ahead, the notice of it, and whether the cache is warm."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

LISTEN = """
from numba.core import event

class Compiled(event.Listener):
    def __init__(self):
        self.names = []
    def on_start(self, event):
        pass
    def on_end(self, event):
        function = event.data["dispatcher"].py_func
        if function.__module__.startswith("cfnade.kernels"):
            self.names.append(f"{function.__module__}.{function.__name__} {event.data['args']}")

compiled = Compiled()
event.register("numba:compile", compiled)
"""

ONE_KERNEL = """
import numpy as np
from cfnade.kernels import grouping, prepare

cell = np.zeros(1, int)
prepare.TASKS["sort"] = (lambda: grouping.counting_sort(cell, 1), (grouping._sort,))
print(*prepare.cache_state("sort"), len(compiled.names))
print(prepare.prepare(print, "sort"), len(compiled.names), *prepare.cache_state("sort"))
"""

A_DAY = """
import sys
import numpy as np
import polars
import cfnade
from cfnade.kernels.prepare import cache_state, prepare

prepare(lambda _: None)
assert cache_state().missing == 0
compiled.names.clear()
rng = np.random.default_rng(0)
cells = rng.permutation(600)[:300]
stars = rng.integers(1, 6, 300)
ratings = cfnade.load(
    polars.DataFrame({"user": cells // 20, "item": cells % 20, "rating": stars})
)
for side in ("user", "both"):
    model = cfnade.CFNADE(side=side, hidden=(8,), epochs=1, threads=2).fit(ratings)
    model.predict([1, 2], [3, 4])
    model.recommend([1, 2], n=3)
    model.recommend(history={1: 5, 2: 3}, n=3)
    model.recommend(1, n=3, rank="quantile")
assert not compiled.names, compiled.names
"""


def run(script: str, **env: str) -> list[str]:
    """What a fresh process prints."""
    command = [sys.executable, "-c", LISTEN + script]
    done = subprocess.run(command, env=os.environ | env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_first_process_says_that_it_compiles_and_the_second_does_not(tmp_path: Path) -> None:
    cache = {"NUMBA_CACHE_DIR": str(tmp_path)}
    assert run(ONE_KERNEL, **cache) == ["0 1 0", "compiling kernels (once)…", "True 1 1 0"]
    assert run(ONE_KERNEL, **cache) == ["1 0 0", "False 0 1 0"]


def test_nothing_is_left_to_compile_for_training_and_requests() -> None:
    run(A_DAY)
