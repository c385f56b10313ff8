"""Decorators that compile functions, and the disk cache of compiled kernels.

A kernel can be called from Python and is cached on disk. LLVM optimizes each function that it calls
by itself and again inside its caller, so depth costs compile time: a few lines that only join
internal functions are `inlined` and never become a function of their own.

The cache class is our own because reading Numba's takes 0.2 s of a first answer of 1.0 s, and
because it notices changes in the files of called functions, too.
"""

from __future__ import annotations

import logging
import warnings
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from numba import njit
from numba.core import event
from numba.core.caching import FunctionCache, NullCache
from numba.core.registry import cpu_target
from numba.core.runtime.nrt import rtsys

_compile: Any = njit  # its types know neither these options nor that functions stay typed

_log = logging.getLogger("cfnade")

_SOURCES = sha256(b"".join(p.read_bytes() for p in sorted(Path(__file__).parent.glob("*.py"))))


class _DiskCache(FunctionCache):
    """Numba's code on disk, read without what only its compiler needs: that takes longer to import
    than all kernels of an answer take to read, and whoever compiles imports it then."""

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        # Numba would notice a change in the kernel's own file only, not in those that it calls.
        self._cache_file._source_stamp = _SOURCES.hexdigest()

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        rtsys.initialize(target_context)  # for kernels that make arrays
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)

    def save_overload(self, sig: Any, data: Any) -> None:
        """Save compiled code. A full or read-only disk costs time, not the result."""
        try:
            super().save_overload(sig, data)
        except OSError as error:
            warn_uncached(f"{self.cache_path}: {error.strerror or error}")


@cache  # one warning per process and reason
def warn_uncached(reason: str) -> None:
    """Warn that compiled kernels are not kept."""
    warnings.warn(
        f"compiled kernels cannot be saved ({reason}), so every process compiles them again, which "
        "takes about 15 seconds; set NUMBA_CACHE_DIR to a writable folder",
        RuntimeWarning,
        stacklevel=2,
    )


def disk_cache(function: Any) -> Any:
    """Return the cache of a kernel's machine code; without a writable folder, one that is empty."""
    try:
        return _DiskCache(function)
    except RuntimeError:  # Numba found no folder that it can write
        warn_uncached("no cache folder is writable")
        return NullCache()


COMPILATION_MESSAGE = "compiling kernels (once)…"


class CompilationAnnouncement(event.Listener):
    """Logs one line when a process compiles its first kernel: the caller waits several seconds."""

    announced = False

    def on_start(self, event: Any) -> None:
        function = event.data["dispatcher"].py_func
        if not self.announced and function.__module__.startswith("cfnade."):
            self.announced = True
            _log.warning(COMPILATION_MESSAGE)

    def on_end(self, event: Any) -> None:
        pass


announcement = CompilationAnnouncement()
event.register("numba:compile", announcement)


def kernel(function: Any, **more: Any) -> Any:
    """For what is called from Python: it releases the GIL and is kept on disk."""
    compiled = _compile(nogil=True, error_model="numpy", no_cfunc_wrapper=True, **more)(function)
    compiled._cache = disk_cache(function)
    return compiled


internal = _compile(nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)
"""For what only kernels call: no way in from Python is made. Whole numbers are given as variables:
a literal among the arguments would make a version of its own."""

fastmath_kernel = partial(kernel, fastmath=True)
fastmath_internal = _compile(
    nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True, fastmath=True
)
"""The same where plain loops suffice: sums may be taken in another order, so that they become
vector code without being written as such. The order is the same each time."""

inlined = _compile(nogil=True, error_model="numpy", inline="always")
"""For a few lines that only kernels and inner functions call: they are written into the caller."""

HAS_AVX512 = "+avx512f" in cpu_target.target_context.codegen().magic_tuple()[2]
"""Whether a register holds 16 single floats; if not, fewer sums fit into registers together. What
counts is what Numba compiles for (NUMBA_CPU_FEATURES)."""
