"""`cfnade doctor`: what this installation is and what it finds."""

from __future__ import annotations

import importlib.metadata
import platform
import time
from pathlib import Path
from typing import Annotated

import typer

from cfnade import __version__
from cfnade.errors import DataError

_LIBRARIES = ("torch", "numba", "numpy", "polars", "narwhals", "rich", "typer", "optuna")


def doctor(
    quick: Annotated[bool, typer.Option("--quick", help="Do not try the kernels.")] = False,
) -> None:
    """Show versions, threads, device, kernels and the data that is found."""
    for name, value in [*_versions(), *_machine(), *([] if quick else [_kernels()]), *_data()]:
        print(f"{name:<18}{value}")


def _versions() -> list[tuple[str, str]]:
    found = [("cfnade", __version__), ("python", platform.python_version())]
    for name in _LIBRARIES:
        try:
            found.append((name, importlib.metadata.version(name)))
        except importlib.metadata.PackageNotFoundError:
            found.append((name, "not installed"))
    return found


def _machine() -> list[tuple[str, str]]:
    import torch

    cuda = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    return [
        ("processor", platform.processor() or platform.machine()),
        ("threads", str(torch.get_num_threads())),
        ("graphics card", cuda),
    ]


def _kernels() -> tuple[str, str]:
    """Train a tiny model for one step: this compiles the kernels if nothing did before."""
    from cfnade.data.splits import split
    from cfnade.data.synthetic import synthetic
    from cfnade.settings import Settings
    from cfnade.training.run import train

    parts = split(synthetic(20, 20, 200, seed=0).ratings, "paper:0")
    began = time.monotonic()
    train(parts, side="user", architecture={"hidden": (8,)}, settings=Settings(epochs=1))
    return "kernels", f"work (ready in {time.monotonic() - began:.1f} s)"


def _data() -> list[tuple[str, str]]:
    from cfnade.data.cache import cache_folder
    from cfnade.data.named import SETS, find

    found = [(name, find(wanted)) for name, wanted in SETS.items()]
    lines = [(name, _place(name, path)) for name, path in found if path is not None]
    return [("cache", str(cache_folder())), *lines]


def _place(name: str, path: Path) -> str:
    """Where a set lies; a folder of Netflix may hold its titles alone."""
    from cfnade.data import netflix
    from cfnade.data.sources import open_source

    if name != "netflix":
        return str(path)
    try:
        whole = bool(netflix.find(open_source(path)))
    except DataError:
        whole = False
    return str(path) if whole else f"{path} (incomplete: no combined_data_*.txt or mv_*.txt)"
