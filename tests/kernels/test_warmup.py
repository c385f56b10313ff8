"""Kernels compiled ahead, the notice of it, and whether the cache is warm."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import cfnade
from cfnade.kernels import warmup
from cfnade.kernels.jit import COMPILATION_MESSAGE
from cfnade.kernels.warmup import TASKS

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
from cfnade.kernels import column_groups, warmup

cell = np.zeros(1, int)
kernels = (column_groups._counting_sort,)
warmup.TASKS["sort"] = (lambda: column_groups.counting_sort(cell, 1), kernels)
print(*warmup.cache_state("sort"), len(compiled.names))
print(warmup.compile_kernels(print, "sort"), len(compiled.names), *warmup.cache_state("sort"))
"""

ELSEWHERE = """
import os
from cfnade.kernels import column_groups, warmup

os.cpu_count = lambda: 2
warmup.POSTERIORS, warmup.NEWCOMERS = "ranks", "ranks"  # soon done
warmup.MIN_KERNELS_PER_PROCESS = 1
warmup.TASKS["ridge"] = (
    lambda: (warmup.CompileProcess.wait(), warmup.TASKS["ranks"][0]()),
    (column_groups._counting_sort, *warmup.TASKS["ranks"][1]),
)
found = warmup.compile_kernels(print, "ridge")
print(found, len(compiled.names))
"""

A_DAY = """
import sys
import numpy as np
import polars
import cfnade
from cfnade.kernels.warmup import cache_state, compile_kernels

compile_kernels()
compiled.names.clear()
assert cache_state().missing == 0
assert not compile_kernels(print)
rng = np.random.default_rng(0)
cells = rng.permutation(600)[:300]
stars = rng.integers(1, 6, 300)
ratings = cfnade.load(
    polars.DataFrame({"user": cells // 20, "item": cells % 20, "rating": stars})
)
for side in ("user", "both", "user-factors+user-near"):
    lists = side == "user"
    model = cfnade.CFNADE(side=side, hidden=(8,), epochs=1, threads=2, lists=lists).fit(ratings)
    model.predict([1, 2], [3, 4])
    model.recommend([1, 2], n=3)
    model.recommend(history={1: 5, 2: 3}, n=3)
    model.recommend(1, n=3, rank="quantile")
picks = cfnade.load(polars.DataFrame({"user": cells // 20, "item": cells % 20}))
for data in (picks, cfnade.load(polars.DataFrame({"user": cells // 20, "item": cells % 9}))):
    model = cfnade.CFNADE(threads=2).fit(data)  # counted, where some come twice
    model.recommend([1, 2], n=3)
    model.similar_items(3)
assert not compiled.names, compiled.names
"""


def run(script: str, **env: str) -> list[str]:
    """What a fresh process prints."""
    command = [sys.executable, "-c", LISTEN + script]
    done = subprocess.run(command, env=os.environ | env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_only_new_sources_are_compiled_and_that_is_said(tmp_path: Path) -> None:
    package = Path(cfnade.__file__).parent
    copy = shutil.copytree(
        package, tmp_path / "cfnade", ignore=shutil.ignore_patterns("__pycache__")
    )
    where = {"PYTHONPATH": str(tmp_path), "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    compiling = ["0 1 0", "compiling kernels (once)…", "True 1 1 0"]
    assert run(ONE_KERNEL, **where) == compiling
    with (copy / "kernels" / "simd.py").open("a") as file:  # which the kernel only calls
        file.write("# another line\n")
    assert run(ONE_KERNEL, **where) == compiling


@pytest.mark.parametrize("missing", [0, 1])
def test_work_is_done_where_kernels_are_missing_while_the_collector_rests(
    missing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    collected: list[bool] = []
    work: Any = (lambda: collected.append(gc.isenabled()), ())
    monkeypatch.setitem(TASKS, "one", work)
    monkeypatch.setattr(warmup, "cache_state", lambda *_: warmup.CacheState(0, missing))
    assert warmup.compile_kernels(None, "one") == bool(missing)
    assert collected == [False] * missing
    assert gc.isenabled()


def test_what_waits_for_another_process_comes_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until then there is other work."""
    done: list[str] = []
    asked = ("ridge", "blocks", "newcomers", "picks")
    for name in (*asked, "listed picks"):
        work: Any = (lambda name=name: done.append(name), ())
        monkeypatch.setitem(TASKS, name, work)
    monkeypatch.setattr(warmup, "compile_in_background", lambda *_: True)
    warmup.compile_kernels(None, *asked)
    assert done == ["blocks", "picks", "ridge", "newcomers", "listed picks"]


def test_nothing_is_left_to_compile_for_training_and_requests() -> None:
    assert run(A_DAY) == []


def test_another_folder_takes_the_compiled_kernels_over(tmp_path: Path) -> None:
    """As does another machine with the same processor: files are copied, nothing is compiled."""
    package = Path(cfnade.__file__).parent
    first = tmp_path / "first" / "cfnade"
    shutil.copytree(package, first, ignore=shutil.ignore_patterns("__pycache__"))
    without = {"NUMBA_CACHE_DIR": ""}
    compiling = ["0 1 0", "compiling kernels (once)…", "True 1 1 0"]
    assert run(ONE_KERNEL, PYTHONPATH=str(first.parent), **without) == compiling
    second = shutil.copytree(first, tmp_path / "second" / "cfnade")
    assert run(ONE_KERNEL, PYTHONPATH=str(second.parent), **without) == ["1 0 0", "False 0 1 0"]


def test_what_another_process_compiles_is_found_here(tmp_path: Path) -> None:
    where = {"NUMBA_CACHE_DIR": str(tmp_path)}
    assert run(ELSEWHERE, **where) == ["compiling kernels (once)…", "True 0"]


UNCACHED = """
import tempfile, warnings
import numpy as np

def refuse(*_, **options):  # how Numba tries whether a folder is writable
    raise PermissionError(13, "Permission denied", options.get("dir"))

tempfile.TemporaryFile = refuse
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    from cfnade.kernels import newton, warmup, spelling
    chances = newton.tilt_to_mean(np.zeros((1, 2)), np.arange(2.0), np.full((1, 2), 0.5))
print(*[warning.category.__name__ for warning in caught])
print("NUMBA_CACHE_DIR" in str(caught[0].message))
print(np.round(chances, 6).tolist())
folder, compiled_here = warmup.kernel_cache_folder(), warmup.compile_kernels(None, "newcomers")
print(folder, compiled_here, warmup.CompileProcess.process)
"""


def test_without_a_writable_folder_kernels_work_after_one_warning() -> None:
    assert run(UNCACHED) == ["RuntimeWarning", "True", "[[0.5, 0.5]]", "None True None"]


DISK_IS_FULL = """
import errno, os, warnings
import numpy as np
from numba.core import caching

def fail(self, *_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

caching.IndexDataCacheFile.save = fail
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    from cfnade.kernels import column_groups, newton
    column_groups.counting_sort(np.array([2, 0, 1]), 3)
    newton.tilt_to_mean(np.zeros((1, 2)), np.arange(2.0), np.full((1, 2), 0.5))
print(len(caught), "No space left" in str(caught[0].message))
"""


def test_a_full_disk_of_the_cache_is_one_warning(tmp_path: Path) -> None:
    assert run(DISK_IS_FULL, NUMBA_CACHE_DIR=str(tmp_path)) == ["1 True"]


PYTHON = """
import cfnade.implicit.ease
import numpy as np
from cfnade.kernels import column_groups

for size in (2, 3):
    column_groups.counting_sort(np.zeros(size, int), 1)
    column_groups.counting_sort(np.zeros(size, np.int32), 1)
"""


def test_the_first_compilation_of_a_process_is_logged_once(tmp_path: Path) -> None:
    env = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    for expected in ([COMPILATION_MESSAGE], []):  # the second process reads what the first compiled
        done = subprocess.run(
            [sys.executable, "-c", PYTHON], env=env, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout == ""
        assert done.stderr.splitlines() == expected
