"""Ratings on disk, as arrays.py lays them out, read by mapping them into memory.

The arrays are users, items, levels, times (if known), user_ids, item_ids, titles and genres (if
known). Integer ids are one array; texts are two, `NAME.bytes` with all bytes end to end and
`NAME.starts` with where each text starts. The header's texts are format, version, scale, edges,
source and a note.
"""

from __future__ import annotations

import json
from pathlib import Path

from cfnade.data.arrays import Arrays, read_arrays, write_arrays
from cfnade.data.hashing import pack_strings, unpack_strings
from cfnade.data.ratings import Ratings
from cfnade.data.scale import Scale
from cfnade.errors import DataError

FORMAT, VERSION = "cfnade-ratings", "1"
_TEXTS = ("user_ids", "item_ids", "titles", "genres")


def write_ratings(path: Path, ratings: Ratings, note: str = "") -> None:
    """Save ratings to one file, atomically, with a note that `read_noted` gives back."""
    meta = {
        "format": FORMAT,
        "version": VERSION,
        "scale": json.dumps(ratings.scale.values),
        "edges": json.dumps(ratings.scale.edges),
        "source": ratings.source,
        "note": note,
    }
    write_arrays(path, _arrays(ratings), meta)


def read_ratings(path: Path) -> Ratings:
    """Map a saved file into memory, checking every array against its digest."""
    return read_noted(path)[0]


def read_noted(path: Path) -> tuple[Ratings, str]:
    """The saved ratings and the note that was saved with them."""
    try:
        arrays, meta = read_arrays(path)
        if meta.get("format") != FORMAT or meta.get("version") != VERSION:
            raise DataError("it is not a ratings file of this version")
        return _ratings(arrays, meta), meta["note"]
    except (ValueError, LookupError, TypeError) as error:
        raise DataError(f"{path}: cannot be read as saved ratings: {error}") from error


def _arrays(ratings: Ratings) -> Arrays:
    arrays: Arrays = {name: getattr(ratings, name) for name in ("users", "items", "levels")}
    if ratings.times is not None:
        arrays["times"] = ratings.times
    for name in _TEXTS:
        array = getattr(ratings, name)
        if array is not None and array.dtype == object:
            arrays[f"{name}.bytes"], arrays[f"{name}.starts"] = pack_strings(array)
        elif array is not None:
            arrays[name] = array
    return arrays


def _ratings(arrays: Arrays, meta: dict[str, str]) -> Ratings:
    for name in _TEXTS:
        if f"{name}.bytes" in arrays:
            texts = arrays.pop(f"{name}.bytes"), arrays.pop(f"{name}.starts")
            arrays[name] = unpack_strings(*texts)
    edges = json.loads(meta["edges"])
    scale = Scale(tuple(json.loads(meta["scale"])), None if edges is None else tuple(edges))
    return Ratings(scale=scale, source=meta["source"], **arrays)
