"""`cfnade doctor`: the state of this installation."""

from __future__ import annotations

import importlib.metadata
import platform
import time
from pathlib import Path
from typing import Annotated

from cfnade import __version__
from cfnade.cli.options import option
from cfnade.cli.process import compile_kernels
from cfnade.exceptions import DataError

_LIBRARIES = ("torch", "numba", "numpy", "polars", "narwhals", "rich", "typer", "optuna")


def doctor(
    quick: Annotated[bool, option("--quick", "Do not run the kernels.")] = False,
) -> None:
    """Check the installation: versions, processor, kernels, data sets.

    \b
      cfnade doctor --quick
    """
    lines = [*_versions(), *_machine(), _cache(), *([] if quick else [_kernels()]), *_data()]
    for name, value in lines:
        print(f"{name:<18}{value}")


def _versions() -> list[tuple[str, str]]:
    lines = [("cfnade", __version__), ("python", platform.python_version())]
    for name in _LIBRARIES:
        try:
            lines.append((name, importlib.metadata.version(name)))
        except importlib.metadata.PackageNotFoundError:
            lines.append((name, "not installed"))
    return lines


def _machine() -> list[tuple[str, str]]:
    import torch

    cuda = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    return [
        ("processor", platform.processor() or platform.machine()),
        ("threads", str(torch.get_num_threads())),
        ("graphics card", cuda),
    ]


def _cache() -> tuple[str, str]:
    """Return the state of the kernel cache."""
    from cfnade.kernels.warmup import kernel_cache_folder, missing_groups

    missing, folder = missing_groups(), kernel_cache_folder()
    if folder is None:
        return "kernel cache", "none: no folder is writable; set NUMBA_CACHE_DIR to one that is"
    cold = f"cold (to compile at first use: {', '.join(missing)})"
    return "kernel cache", f"{cold if missing else 'warm'}, in {folder}"


def _kernels() -> tuple[str, str]:
    """Run every kernel once; missing ones are compiled."""
    from cfnade.kernels.warmup import GROUPS

    began = time.monotonic()
    compile_kernels()
    for group in GROUPS.values():
        group.work()
    return "kernels", f"work (ready in {time.monotonic() - began:.1f} s)"


def _data() -> list[tuple[str, str]]:
    from cfnade.data.datasets import DATASETS
    from cfnade.data.storage import cache_dir

    places = [(name, published.find()) for name, published in DATASETS.items()]
    lines = [(name, _place(name, path)) for name, path in places if path is not None]
    return [("cache", str(cache_dir())), *lines]


def _place(name: str, path: Path) -> str:
    """Return where a data set is; a folder of Netflix may lack the ratings."""
    from cfnade.data.readers import NETFLIX, published_files
    from cfnade.data.readers.files import open_source

    if name != "netflix":
        return str(path)
    try:
        is_complete = NETFLIX in published_files(open_source(path))
    except DataError:
        is_complete = False
    return str(path) if is_complete else f"{path} (incomplete: no combined_data_*.txt or mv_*.txt)"
