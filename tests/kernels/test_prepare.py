"""Kernels compiled ahead, the notice of it, and whether the cache is warm."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
from numba.core import event
from cfnade.kernels.prepare import cache_state, prepare

class Count(event.Listener):
    compiled = 0
    def on_start(self, event): pass
    def on_end(self, event): self.compiled += 1

count = Count()
event.register("numba:compile", count)
ready, missing = cache_state({task!r})
assert count.compiled == 0
print(ready > 0, missing > 0)
print(prepare(print, {task!r}), count.compiled > 0, *cache_state({task!r})[1:])
"""


def prepare_in(cache: Path, task: str) -> list[str]:
    """What a fresh process prints whose kernels are kept in that folder."""
    env = dict(os.environ, NUMBA_CACHE_DIR=str(cache))
    command = [sys.executable, "-c", SCRIPT.format(task=task)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    return done.stdout.split("\n")[:-1]


@pytest.mark.parametrize("task", ["rows"])
def test_the_first_process_says_that_it_compiles_and_the_second_does_not(
    task: str, tmp_path: Path
) -> None:
    notice = "compiling kernels (once)…"
    assert prepare_in(tmp_path, task) == ["False True", notice, "True True 0"]
    assert prepare_in(tmp_path, task) == ["True False", "False False 0"]
