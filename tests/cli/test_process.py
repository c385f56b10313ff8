"""What a command does not do before its first answer."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import pytest

from cfnade.cli.process import gc_frozen

FIRST_ANSWER = """
import sys
from cfnade.cli import main

sys.argv = ["cfnade", "recommend", sys.argv[1], "--user", "7"]
try:
    main()
except SystemExit as ended:
    assert not ended.code
print(sorted({"fastapi", "numba.np.linalg", "scipy.linalg"} & set(sys.modules)))
"""


def test_kernels_are_read_without_what_compiles_them(user_model: Path) -> None:
    """Nor is anything imported that only a service needs."""
    command = [sys.executable, "-c", FIRST_ANSWER, str(user_model)]
    subprocess.run(command, capture_output=True, check=True)  # whatever has to be compiled is now
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "user 7" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"


class Cycle:
    """Only the collector can remove it."""

    def __init__(self) -> None:
        self.itself = self


def test_what_lasts_is_not_looked_through_and_what_comes_after_is() -> None:
    try:
        with gc_frozen():
            assert not gc.isenabled()
            kept = Cycle()
        assert gc.isenabled()
        assert all(one is not kept for one in gc.get_objects())
        later = Cycle()
        assert any(one is later for one in gc.get_objects())
    finally:
        gc.unfreeze()


def test_an_error_leaves_the_collector_at_work() -> None:
    try:
        with pytest.raises(ValueError, match="bad"), gc_frozen():
            raise ValueError("bad")
        assert gc.isenabled()
    finally:
        gc.unfreeze()
