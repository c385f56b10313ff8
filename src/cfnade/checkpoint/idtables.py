"""Raw ids, titles and genres as Parquet tables: columns id, title, genres, in order of index."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from cfnade.data.fields import POLARS_ERRORS
from cfnade.data.parquet_check import check_parquet
from cfnade.exceptions import CheckpointError

_TYPES = {"id": (pl.Int64, pl.String), "title": (pl.String,), "genres": (pl.String,)}
Arrays = dict[str, npt.NDArray[Any]]


def write_table(path: Path, columns: dict[str, npt.NDArray[Any] | None]) -> None:
    """Save the columns that are there; an array of objects holds texts."""
    try:
        frame = pl.DataFrame(
            {name: _series(array) for name, array in columns.items() if array is not None}
        )
        memory = io.BytesIO()
        frame.write_parquet(memory)
    except (*POLARS_ERRORS, UnicodeError, TypeError) as error:
        raise CheckpointError(f"{path.name}: ids or titles cannot be written: {error}") from error
    path.write_bytes(memory.getbuffer())


def read_table(path: Path) -> Arrays:
    """The saved columns, by name."""
    try:
        data = path.read_bytes()
        check_parquet(memoryview(data))
        frame = pl.read_parquet(io.BytesIO(data))
    except (*POLARS_ERRORS, ValueError) as error:
        raise CheckpointError(f"{path}: cannot be read as a table ({str(error)[:120]})") from error
    sound = "id" in frame.columns and all(
        name in _TYPES and kind in _TYPES[name] and not frame[name].null_count()
        for name, kind in frame.schema.items()
    )
    if not sound:
        raise CheckpointError(
            f"{path}: holds columns {dict(frame.schema)}; a table of ids holds an id and maybe "
            "title and genres, and no gaps"
        )
    arrays = {name: _array(frame[name]) for name in frame.columns}
    ids = arrays["id"]
    if not bool(np.all(ids[1:] > ids[:-1])):
        raise CheckpointError(f"{path}: its ids do not rise")
    return arrays


def _series(array: npt.NDArray[Any]) -> pl.Series:
    if array.dtype == object:
        return pl.Series(array.tolist(), dtype=pl.String)
    return pl.Series(array)


def _array(column: pl.Series) -> npt.NDArray[Any]:
    if column.dtype == pl.Int64:
        return np.array(column.to_numpy())
    texts = np.empty(len(column), object)
    texts[:] = column.to_list()
    return texts
