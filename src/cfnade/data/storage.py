"""Data sets on disk, one safetensors file each, and the cache of parsed sources.

    CACHE/parsed/<digest of path and options>.safetensors

A cached file holds names, sizes and times of the files of its source; it is replaced when these
change. It is written atomically: two processes may fill the cache at the same time, and readers see
a complete file or none.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cfnade._typing import Array
from cfnade.data.dataset import TABLES, Dataset, Interactions, Ratings, make_dataset
from cfnade.data.scale import Scale
from cfnade.exceptions import DataError
from cfnade.utils.safetensors_io import (
    digest_text,
    open_arrays,
    pack,
    unpack,
    write_chunks,
)

PARSER_VERSION = 5
"""Increased whenever a reader would return other data for the same file."""

_FORMAT = {"format": "cfnade-ratings", "version": "1"}

log = logging.getLogger(__name__)
Stamp = list[list[Any]]


# -- data sets ------------------------------------------------------------------------------------


def save_dataset(dataset: Dataset, path: Path, note: str = "") -> None:
    """Write a data set and a note to one file, atomically, chunk by chunk."""
    tables: dict[str, Array] = {}
    for name in TABLES:
        if (array := getattr(dataset, name)) is not None:
            tables |= pack(name, array)
    save_columns(
        path,
        dataset.scale,
        dataset.dtypes,
        len(dataset),
        lambda name: (chunk for (chunk,) in dataset.chunks(name)),
        tables,
        source=dataset.source,
        note=note,
    )


def open_dataset(path: Path, *, verify: bool = True) -> tuple[Ratings | Interactions, str]:
    """Map a saved data set into memory; return it and the note that it was saved with.

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


def save_columns(
    path: Path,
    scale: Scale,
    dtypes: Mapping[str, npt.DTypeLike],
    count: int,
    chunks: Callable[[str], Iterable[Array]],
    tables: Mapping[str, Array] | None = None,
    *,
    source: str = "",
    note: str = "",
) -> None:
    """Write a data set whose columns come in chunks, and so may exceed memory.

    Args:
        path: File to write; `Dataset.open` maps it into memory.
        scale: Scale of the levels.
        dtypes: Types of the columns: users, items, levels and, if present, times, weights.
        count: Number of rows.
        chunks: Returns the chunks of a column, by name.
        tables: Ids, titles and genres as `pack` returns them; None: no ids.
        source: Name of the published data set.
        note: Any text.
    """
    if tables is None:
        tables = {"user_ids": np.empty(0, np.int64), "item_ids": np.empty(0, np.int64)}
    specs: dict[str, tuple[npt.DTypeLike, tuple[int, ...]]] = {
        name: (dtype, (count,)) for name, dtype in dtypes.items()
    }
    specs |= {name: (array.dtype, array.shape) for name, array in tables.items()}
    metadata = _FORMAT | {
        "scale": json.dumps(scale.values),
        "edges": json.dumps(scale.edges),
        "source": source,
        "note": note,
    }
    write_chunks(
        path, specs, lambda name: [tables[name]] if name in tables else chunks(name), metadata
    )


# -- cache ----------------------------------------------------------------------------------------


def cache_dir() -> Path:
    """Return the folder of CFNADE_CACHE, or the user's cache folder."""
    if folder := os.environ.get("CFNADE_CACHE"):
        return Path(folder).expanduser()
    import platformdirs

    return platformdirs.user_cache_path("cfnade")


def cached(
    path: Path,
    options: str,
    parse: Callable[[], tuple[Dataset, str]],
    companions: Sequence[Path] = (),
) -> tuple[Dataset, str]:
    """Return the data set of a file or folder; parse it if it is not in the cache.

    Args:
        path: File or folder of the source.
        options: Options of the parser as text; each text has its own entry.
        parse: Parses the source, and returns the data set and a description of the format.
        companions: Other files that the parser reads.

    Returns:
        The data set, mapped into memory if it was in the cache, and the description.
    """
    key = digest_text(f"{PARSER_VERSION} {path.resolve()} {options}")
    file, stamp = cache_dir() / "parsed" / f"{key}.safetensors", _stamp(path, companions)
    if file.exists():
        try:
            stored, note = open_dataset(file)
            content = json.loads(note)
            if content["stamp"] == stamp:
                return stored, str(content["description"])
        except (DataError, ValueError, LookupError, TypeError) as error:
            log.warning("%s: %s; parsing the source again", file, error)
    dataset, description = parse()
    if _stamp(path, companions) == stamp:  # else the source changed while it was parsed
        note = json.dumps({"stamp": stamp, "description": description})
        try:
            save_dataset(dataset, file, note)
        except OSError as error:
            log.warning("%s: the parsed data cannot be cached: %s", file.parent, error)
    return dataset, description


def _stamp(path: Path, companions: Sequence[Path]) -> Stamp:
    """Return name, size and time of each file of the source."""
    files = [path, *companions]
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file())
    stats = [(file, file.stat()) for file in files]
    return [[str(f.relative_to(path.parent)), s.st_size, s.st_mtime_ns] for f, s in stats]
