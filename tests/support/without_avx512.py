"""Run a command as on a processor without AVX-512.

    python tests/support/without_avx512.py pytest tests/server

Sums are taken in another order there, so that a test which compares two code paths bit by bit may
fail. Numba, torch, MKL, oneDNN, OpenBLAS and NumPy are told to use AVX2; compiled kernels have a
cache of their own, which NUMBA_CACHE_DIR may name.
"""

from __future__ import annotations

import os
import platform
import sys
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

AVX2 = {
    # Every x86 processor with AVX2 has what this one has, whoever made it.
    "NUMBA_CPU_NAME": "haswell",
    "NUMBA_CPU_FEATURES": "+avx,+avx2,+bmi,+bmi2,+cx16,+f16c,+fma,+lzcnt,+movbe,+popcnt,+sse4.2",
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "OPENBLAS_CORETYPE": "Haswell",
}


def numpy_features() -> str:
    """Return the features beyond AVX2 that NumPy would use; NumPy warns about unknown names."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        core: Any = import_module("numpy._core._multiarray_umath")
    enabled = [name for name in core.__cpu_dispatch__ if core.__cpu_features__.get(name)]
    return " ".join(name for name in enabled if name == "X86_V4" or name.startswith("AVX512"))


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit(f"usage: {sys.argv[0]} COMMAND…")
    if platform.machine().lower() not in ("x86_64", "amd64"):
        sys.exit("AVX2 is of x86 processors only; here the suite runs without AVX-512 anyway")
    environment = {"NUMBA_CACHE_DIR": str(Path(sys.prefix) / "kernels-avx2")} | os.environ | AVX2
    if features := numpy_features():
        environment["NPY_DISABLE_CPU_FEATURES"] = features
    os.execvpe(sys.argv[1], sys.argv[1:], environment)


if __name__ == "__main__":
    main()
