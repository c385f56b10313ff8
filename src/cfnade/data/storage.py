"""Data sets on disk: one safetensors file each, mapped into memory when opened."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from cfnade._typing import Array
from cfnade.data.dataset import TABLES, Dataset, Interactions, Ratings, make_dataset
from cfnade.data.scale import Scale
from cfnade.exceptions import DataError
from cfnade.utils.safetensors_io import open_arrays, pack, unpack, write_chunks

_FORMAT = {"format": "cfnade-ratings", "version": "1"}


def save_dataset(dataset: Dataset, path: Path, description: str = "") -> None:
    """Write a data set to one file, atomically, chunk by chunk."""
    tables: dict[str, Array] = {}
    for name in TABLES:
        if (array := getattr(dataset, name)) is not None:
            tables |= pack(name, array)
    shapes: dict[str, tuple[npt.DTypeLike, tuple[int, ...]]] = {
        name: (dataset.dtype(name), (len(dataset),)) for name in dataset.columns
    }
    shapes |= {name: (array.dtype, array.shape) for name, array in tables.items()}

    def chunks(name: str) -> Iterable[Array]:
        return [tables[name]] if name in tables else (chunk for (chunk,) in dataset.chunks(name))

    write_chunks(path, shapes, chunks, _metadata(dataset.scale, dataset.source, description))


def open_dataset(path: Path, *, verify: bool = True) -> tuple[Ratings | Interactions, str]:
    """Map a saved data set into memory; return it and the description it was saved with.

    Without `verify`, the arrays are not compared with their digests.
    """
    try:
        arrays, meta = open_arrays(path, verify=verify)
        if any(meta.get(key) != value for key, value in _FORMAT.items()):
            raise DataError("it is not a ratings file of this version")
        for name in TABLES:
            if f"{name}.bytes" in arrays:
                arrays[name] = unpack(name, arrays)
                del arrays[f"{name}.bytes"], arrays[f"{name}.starts"]
        scale = Scale.saved(json.loads(meta["scale"]), json.loads(meta["edges"]))
        dataset = make_dataset(scale=scale, source=meta["source"], **arrays)
        return dataset, meta["note"]
    except (ValueError, LookupError, TypeError) as error:
        raise DataError(f"{path}: cannot be read as saved ratings: {error}") from error


def save_chunks(
    path: Path,
    scale: Scale,
    count: int,
    chunks: Callable[[str], Iterable[Array]],
    *,
    weighted: bool = False,
) -> None:
    """Write a data set without ids whose columns come in chunks, by name.

    Args:
        path: File to write; `Dataset.open` maps it into memory.
        scale: Scale of the levels.
        count: Number of rows.
        chunks: Returns the chunks of a column: users, items, levels or weights.
        weighted: Whether there are weights.
    """
    shapes: dict[str, tuple[npt.DTypeLike, tuple[int, ...]]] = {
        "users": (np.int32, (count,)),
        "items": (np.int32, (count,)),
        "levels": (np.uint8, (count,)),
    }
    if weighted:
        shapes["weights"] = (np.float32, (count,))
    none = {"user_ids": (np.int64, (0,)), "item_ids": (np.int64, (0,))}
    write_chunks(
        path,
        shapes | none,
        lambda name: () if name in none else chunks(name),
        _metadata(scale, "", ""),
    )


def _metadata(scale: Scale, source: str, description: str) -> dict[str, str]:
    return _FORMAT | {
        "scale": json.dumps(scale.values),
        "edges": json.dumps(scale.edges),
        "source": source,
        "note": description,
    }
