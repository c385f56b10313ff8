"""How functions are compiled: three kinds, so that nothing is compiled that nobody calls.

A kernel can be called from Python and is kept on disk. Each function that it calls is optimised by
itself and again inside its caller, so depth costs compile time: a few lines that only join inner
functions are `glue` and never become a function of their own.
"""

from __future__ import annotations

from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from numba import njit
from numba.core.caching import FunctionCache
from numba.core.registry import cpu_target
from numba.core.runtime.nrt import rtsys

_compile: Any = njit  # its types know neither these options nor that functions stay typed

_SOURCES = sha256(b"".join(p.read_bytes() for p in sorted(Path(__file__).parent.glob("*.py"))))


class _Kept(FunctionCache):
    """Numba's code on disk, read without what only its compiler needs: that takes longer to import
    than all kernels of an answer take to read, and whoever compiles imports it then."""

    def __init__(self, function: Any) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        # Numba would notice a change in the kernel's own file only, not in those that it calls.
        self._cache_file._source_stamp = _SOURCES.hexdigest()

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        rtsys.initialize(target_context)  # for kernels that make arrays
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)  # type: ignore[no-untyped-call]


def kernel(function: Any, **more: Any) -> Any:
    """For what is called from Python: it releases the GIL and is kept on disk."""
    compiled = _compile(nogil=True, error_model="numpy", no_cfunc_wrapper=True, **more)(function)
    compiled._cache = _Kept(function)
    return compiled


inner = _compile(nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)
"""For what only kernels call: no way in from Python is made. Whole numbers are given as variables:
a literal among the arguments would make a version of its own."""

loose_kernel = partial(kernel, fastmath=True)
loose_inner = _compile(
    nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True, fastmath=True
)
"""The same where plain loops suffice: sums may be taken in another order, so that they become
vector code without being written as such. The order is the same each time."""

glue = _compile(nogil=True, error_model="numpy", inline="always")
"""For a few lines that only kernels and inner functions call: they are written into the caller."""

WIDE = "+avx512f" in cpu_target.target_context.codegen().magic_tuple()[2]
"""Whether a register holds 16 single floats; if not, fewer sums fit into registers together. What
counts is what Numba compiles for (NUMBA_CPU_FEATURES)."""
