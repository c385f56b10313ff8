"""Tables of a checkpoint, read and held against what model.json says of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from cfnade.data.array_files import mapped_arrays
from cfnade.exceptions import CheckpointError, DataError, ModelError
from cfnade.implicit import InteractionModel, saved_model, saved_spec
from cfnade.implicit.base import Arrays as Tables
from cfnade.sides.saved import Expected


def read_tables(path: Path) -> Tables:
    """All arrays of a file, mapped into memory; float16 becomes float32, a copy.

    Processes that load the same model share its pages, and where the file system keeps large ones
    a table is read faster than from memory that was asked for in small ones. Who writes to an array
    has a copy of that page. Files are replaced, never written to (folders.py).
    """
    try:
        arrays, _ = mapped_arrays(path, writable=True)
    except DataError as error:
        raise CheckpointError(f"{path}: cannot be read as safetensors ({error})") from error
    return {
        name: array.astype(np.float32) if array.dtype == np.float16 else array
        for name, array in arrays.items()
    }


def read_choice(described: Mapping[str, Any] | None, path: Path | None) -> InteractionModel | None:
    """What is picked, if the model knows that."""
    if described is None:
        return None
    if path is None:
        raise ModelError("it knows what is picked, but lists no file of that")
    tables = read_tables(path)
    expected = {
        name: Expected(np.dtype(spec.dtype), spec.shape)
        for name, spec in saved_spec(described).items()
    }
    check_tables(path, tables, expected)
    return saved_model(described, tables)


def check_tables(path: Path, tables: Tables, expected: Mapping[str, Expected]) -> None:
    """Refuse arrays of other names, types or shapes than wanted."""
    if set(tables) != set(expected):
        raise CheckpointError(
            f"{path}: holds the arrays {sorted(tables)}; model.json describes {sorted(expected)}"
        )
    for name, table in tables.items():
        wanted = expected[name]
        if (table.dtype, table.shape) != wanted:
            raise CheckpointError(
                f"{path}: {name} is {table.dtype} of shape {table.shape}; model.json describes "
                f"{wanted.dtype} of shape {wanted.shape}"
            )
