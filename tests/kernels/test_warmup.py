"""Kernels compiled ahead of use, their cache, and the announcement."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import cfnade
from cfnade.kernels import warmup
from cfnade.kernels.jit import COMPILATION_MESSAGE

pytestmark = pytest.mark.subprocess

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

ONE_GROUP = """
import numpy as np
from cfnade.kernels import column_groups, warmup

def work():
    column_groups.counting_sort(np.zeros(1, int), 1)

warmup.GROUPS["sort"] = warmup.KernelGroup(work, column_groups._counting_sort)
print(*warmup.missing_groups("sort"), len(compiled.names))
print(warmup.compile_kernels("sort"), len(compiled.names), *warmup.missing_groups("sort"))
"""
COLD, WARM = ["sort 0", "True 1"], ["0", "False 0"]

ELSEWHERE = """
import os
import numpy as np
from cfnade.kernels import column_groups, warmup

os.cpu_count = lambda: 2
warmup.BACKGROUND = ("distributed",)  # soon done
warmup.GROUPS["sort"] = warmup.KernelGroup(
    lambda: column_groups.counting_sort(np.zeros(1, int), 1), column_groups._counting_sort
)
found = warmup.compile_kernels("distributed", "sort")
print(found, *[name for name in compiled.names if "counting_sort" not in name])
"""

A_DAY = """
import sys
import numpy as np
import polars
import cfnade
from cfnade.kernels.warmup import compile_kernels, missing_groups

compile_kernels()
compiled.names.clear()
assert missing_groups() == ()
assert not compile_kernels()
rng = np.random.default_rng(0)
cells = rng.permutation(600)[:300]
stars = rng.integers(1, 6, 300)
ratings = cfnade.load(
    polars.DataFrame({"user": cells // 20, "item": cells % 20, "rating": stars})
)
for side in ("user", "both", "user-factors+user-neighborhood"):
    lists = side == "user"
    options = {"epochs": 1, "n_threads": 2, "learn_interactions": lists}
    model = cfnade.CFNADE(side=side, hidden=(8,), **options).fit(ratings)
    model.predict([1, 2], [3, 4])
    model.recommend([1, 2], n=3)
    model.recommend(history={1: 5, 2: 3}, n=3)
    model.recommend(1, n=3, rank_by="threshold")
picks = cfnade.load(polars.DataFrame({"user": cells // 20, "item": cells % 20}))
for data in (picks, cfnade.load(polars.DataFrame({"user": cells // 20, "item": cells % 9}))):
    model = cfnade.CFNADE(n_threads=2).fit(data)  # counted, where some come twice
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


def test_only_changed_sources_are_compiled(tmp_path: Path) -> None:
    package = Path(cfnade.__file__).parent
    copy = shutil.copytree(
        package, tmp_path / "cfnade", ignore=shutil.ignore_patterns("__pycache__")
    )
    where = {"PYTHONPATH": str(tmp_path), "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    assert run(ONE_GROUP, **where) == COLD
    assert run(ONE_GROUP, **where) == WARM
    with (copy / "kernels" / "simd.py").open("a") as file:  # which the kernel only calls
        file.write("# another line\n")
    assert run(ONE_GROUP, **where) == COLD


def test_the_collector_pauses_while_kernels_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    collected: list[bool] = []
    work = warmup.KernelGroup(lambda: collected.append(gc.isenabled()), None)
    monkeypatch.setattr(warmup, "GROUPS", {"one": work})
    for is_cached in (True, False):
        monkeypatch.setattr(warmup, "_is_cached", lambda _, is_cached=is_cached: is_cached)
        assert warmup.compile_kernels("one") == (not is_cached)
    assert collected == [False]
    assert gc.isenabled()


def test_nothing_is_left_to_compile_for_training_and_requests() -> None:
    assert run(A_DAY) == []


def test_another_folder_takes_the_compiled_kernels_over(tmp_path: Path) -> None:
    """As does another machine with the same processor: files are copied, nothing is compiled."""
    package = Path(cfnade.__file__).parent
    first = tmp_path / "first" / "cfnade"
    shutil.copytree(package, first, ignore=shutil.ignore_patterns("__pycache__"))
    without = {"NUMBA_CACHE_DIR": ""}
    assert run(ONE_GROUP, PYTHONPATH=str(first.parent), **without) == COLD
    second = shutil.copytree(first, tmp_path / "second" / "cfnade")
    assert run(ONE_GROUP, PYTHONPATH=str(second.parent), **without) == WARM


def test_kernels_of_the_second_process_are_found_here(tmp_path: Path) -> None:
    assert run(ELSEWHERE, NUMBA_CACHE_DIR=str(tmp_path)) == ["True"]


def test_where_no_process_may_start_this_one_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **_options: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    monkeypatch.setattr(warmup.CompileProcess, "process", None)
    warmup.CompileProcess.start("posterior")
    warmup.CompileProcess.wait()
    assert warmup.CompileProcess.process is None


UNCACHED = """
import tempfile, warnings
import numpy as np

def refuse(*_, **options):  # how Numba tries whether a folder is writable
    raise PermissionError(13, "Permission denied", options.get("dir"))

tempfile.TemporaryFile = refuse
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    from cfnade.kernels import newton, warmup, edit_distance
    chances = newton.tilt_to_mean(np.zeros((1, 2)), np.arange(2.0), np.full((1, 2), 0.5))
print(*[warning.category.__name__ for warning in caught])
print("NUMBA_CACHE_DIR" in str(caught[0].message))
print(np.round(chances, 6).tolist())
folder, compiled_here = warmup.kernel_cache_folder(), warmup.compile_kernels("distributed")
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
