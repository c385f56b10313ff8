"""The notice that kernels are being compiled."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
from cfnade.kernels.prepare import prepare
print(prepare(print))
"""


def prepare_in(cache: Path) -> list[str]:
    """What a fresh process prints whose kernels are kept in that folder."""
    env = dict(os.environ, NUMBA_CACHE_DIR=str(cache))
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    return done.stdout.split("\n")[:-1]


def test_the_first_process_says_that_it_compiles_and_the_second_does_not(tmp_path: Path) -> None:
    assert prepare_in(tmp_path) == ["compiling kernels (once)…", "True"]
    assert prepare_in(tmp_path) == ["False"]
