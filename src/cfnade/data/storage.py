"""Data sets on disk, one safetensors file each, and the cache of parsed sources.

    CACHE/parsed/<digest of path and options>.json         file name, sizes and times of the source
    CACHE/parsed/<digest of content and options>.safetensors

The first file is found by the path of a source, the second by its content, so a source that was
moved is not parsed again. Both are written atomically: two processes may fill the cache at the same
time, and readers see a complete file or none.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cfnade._typing import Array
from cfnade.data.dataset import TABLES, Dataset, Interactions, Ratings, make_dataset
from cfnade.data.scale import Scale
from cfnade.exceptions import DataError
from cfnade.utils.files import write_text
from cfnade.utils.safetensors_io import (
    digest_file,
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


def save_dataset(dataset: Dataset, path: Path, description: str = "") -> None:
    """Write a data set to one file, atomically, chunk by chunk."""
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
        description=description,
    )


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


def save_columns(
    path: Path,
    scale: Scale,
    dtypes: Mapping[str, npt.DTypeLike],
    count: int,
    chunks: Callable[[str], Iterable[Array]],
    tables: Mapping[str, Array] | None = None,
    *,
    source: str = "",
    description: str = "",
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
        description: What was recognized when the source was parsed.
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
        "note": description,
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
        options: Options of the parser as text; each text has an entry of its own.
        parse: Parses the source, and returns the data set and a description of the format.
        companions: Other files that the parser reads.

    Returns:
        The data set, mapped into memory if it was in the cache, and the description.
    """
    folder = cache_dir() / "parsed"
    key = f"{PARSER_VERSION} {options}"
    entry = folder / f"{digest_text(f'{path.resolve()} {key}')}.json"
    stamp, name = _stamp(path, companions), ""
    with suppress(OSError, ValueError, LookupError, TypeError):
        content = json.loads(entry.read_text())
        name = str(content["file"]) if content["stamp"] == stamp else ""
    is_current = bool(name)
    if not is_current:  # perhaps the source was moved, or only its time changed
        digests = [digest_file(path.parent / name) + name for name, *_ in stamp]
        name = f"{digest_text(f'{digest_text(chr(10).join(digests))} {key}')}.safetensors"
    stored = None
    if (folder / name).exists():
        try:
            stored = open_dataset(folder / name)
        except DataError as error:
            log.warning("%s; parsing the source again", error)
    if is_current and stored:
        return stored
    dataset, description = stored or parse()
    if _stamp(path, companions) == stamp:  # else the source changed while it was parsed
        try:
            if stored is None:
                save_dataset(dataset, folder / name, description)
            write_text(entry, json.dumps({"file": name, "stamp": stamp}))
        except OSError as error:
            log.warning("%s: the parsed data cannot be cached: %s", folder, error)
    return dataset, description


def _stamp(path: Path, companions: Sequence[Path]) -> Stamp:
    """Return name, size and time of each file of the source."""
    files = [path, *companions]
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file())
    stats = [(file, file.stat()) for file in files]
    return [[str(f.relative_to(path.parent)), s.st_size, s.st_mtime_ns] for f, s in stats]
