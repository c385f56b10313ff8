"""Libraries that adapters need: imported late, and missed with a line that says what to do."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module, metadata, util
from types import ModuleType
from typing import Any

from cfnade_baselines.base import MissingError


def library(module: str, package: str, model: str) -> Any:
    """The module, or a MissingError that says how to install it."""
    try:
        # What libraries warn of while they are imported is not for the person comparing models.
        with warnings.catch_warnings(), _pkg_resources():
            warnings.simplefilter("ignore")
            return import_module(module)
    except ImportError as error:
        raise MissingError(
            f"{model} needs {package}, which cannot be imported ({error}); install it with: "
            "pip install 'cfnade[compare]'"
        ) from error


def blas_threads(threads: int | None, model: str) -> AbstractContextManager[Any]:
    """So many threads of NumPy's and SciPy's BLAS inside; as many as it likes without a number."""
    if threads is None:
        return nullcontext()
    limits = library("threadpoolctl", "threadpoolctl", model).threadpool_limits
    limited: AbstractContextManager[Any] = limits(threads, "blas")
    return limited


@contextmanager
def _pkg_resources() -> Iterator[None]:
    """Stand in for pkg_resources, which setuptools no longer has, while a library is imported.

    myFM 0.4 imports two names from it and uses neither.
    """
    name = "pkg_resources"
    if name in sys.modules or util.find_spec(name) is not None:
        yield
        return
    stand_in = ModuleType(name)
    stand_in.__dict__["get_distribution"] = metadata.distribution
    stand_in.__dict__["DistributionNotFound"] = metadata.PackageNotFoundError
    sys.modules[name] = stand_in
    try:
        yield
    finally:
        del sys.modules[name]
