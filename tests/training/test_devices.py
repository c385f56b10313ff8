"""On another device than the CPU plain torch trains, with what the kernels give."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.training.far_runs import CASES

pytestmark = pytest.mark.subprocess

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def curves(tmp_path_factory: pytest.TempPathFactory) -> Any:
    words = [sys.executable, "-m", "tests.training.far_runs", str(tmp_path_factory.mktemp("far"))]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("case", CASES)
def test_another_device_gives_what_the_kernels_give(curves: Any, case: str) -> None:
    """Its tensors refuse to meet the CPU's and to become arrays, as a graphics card's do."""
    assert len(curves[case]["cpu"]) == 3
    assert curves[case]["far"] == pytest.approx(curves[case]["cpu"], abs=1e-5)
    assert curves[case]["far"] != curves[case]["cpu"]  # or it was the kernels again
