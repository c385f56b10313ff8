"""`make test-avx2` runs without AVX-512."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "support" / "without_avx512.py"
CODE = """
import numpy._core._multiarray_umath as core
import torch
from cfnade.kernels.jit import HAS_AVX512

used = [name for name in core.__cpu_dispatch__ if core.__cpu_features__[name]]
print(HAS_AVX512, torch.backends.cpu.get_cpu_capability(), *used)
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="AVX is of x86 processors")
def test_libraries_and_kernels_use_avx2_at_most(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), sys.executable, "-c", CODE]
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    process = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    has_avx512, torch_capability, *numpy_features = process.stdout.split()
    assert (has_avx512, torch_capability) == ("False", "AVX2")
    assert not [name for name in numpy_features if name == "X86_V4" or "AVX512" in name]
    assert process.stderr == ""
