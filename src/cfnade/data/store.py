"""Ratings on disk: one file in the safetensors layout, read by mapping it into memory.

    8 bytes   length of the header, little-endian
    header    JSON: each array's type, shape and place; under "__metadata__" ours, all texts:
              format, version, scale, edges, source, a note, digests of the arrays and of these
    arrays    users, items, levels, times (if known), ids and titles, widest type first

Integer ids are one array; texts are two, all bytes end to end and where each starts. Any
safetensors reader opens the file; nothing in it is executed.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cfnade.data.hashing import digest, digest_text, pack_strings, unpack_strings
from cfnade.data.ratings import Ratings
from cfnade.data.scale import Scale
from cfnade.errors import DataError
from cfnade.files import replacing

FORMAT, VERSION = "cfnade-ratings", "1"

_TYPES = {"I64": "<i8", "I32": "<i4", "U8": "|u1"}
_CODES = {np.dtype(name): code for code, name in _TYPES.items()}
_TEXTS = ("user_ids", "item_ids", "titles", "genres")
Arrays = dict[str, npt.NDArray[Any]]


def write_ratings(path: Path, ratings: Ratings, note: str = "") -> None:
    """Save ratings to one file, atomically, with a note that `read_noted` gives back."""
    arrays = dict(sorted(_arrays(ratings).items(), key=lambda pair: -pair[1].itemsize))
    meta = {
        "format": FORMAT,
        "version": VERSION,
        "scale": json.dumps(ratings.scale.values),
        "edges": json.dumps(ratings.scale.edges),
        "source": ratings.source,
        "note": note,
        "digests": json.dumps({name: digest(array) for name, array in arrays.items()}),
    }
    meta["check"] = _check(meta)
    header = _header(arrays, meta)
    with replacing(path) as file:
        file.write(len(header).to_bytes(8, "little"))
        file.write(header)
        for array in arrays.values():
            file.write(np.ascontiguousarray(array).view(np.uint8).data)


def read_ratings(path: Path) -> Ratings:
    """Map a saved file into memory, checking every array against its digest."""
    return read_noted(path)[0]


def read_noted(path: Path) -> tuple[Ratings, str]:
    """The saved ratings and the note that was saved with them."""
    try:
        arrays, meta = _map(path)
        if meta.get("format") != FORMAT or meta.get("version") != VERSION:
            raise DataError("it is not a ratings file of this version")
        if meta.get("check") != _check(meta):
            raise DataError("its header is damaged")
        digests = json.loads(meta["digests"])
        damaged = [name for name, array in arrays.items() if digests.get(name) != digest(array)]
        if damaged:
            raise DataError(f"{', '.join(damaged)}: damaged")
        return _ratings(arrays, meta), meta["note"]
    except (DataError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path}: cannot be read as saved ratings: {error}") from error


def _header(arrays: Arrays, meta: dict[str, str]) -> bytes:
    entries: dict[str, Any] = {"__metadata__": meta}
    start = 0
    for name, array in arrays.items():
        end = start + array.nbytes
        place = {"dtype": _CODES[array.dtype], "shape": list(array.shape)}
        entries[name] = place | {"data_offsets": [start, end]}
        start = end
    header = json.dumps(entries).encode()
    return header + b" " * (-len(header) % 8)  # so that the arrays lie aligned


def _map(path: Path) -> tuple[Arrays, dict[str, str]]:
    whole = np.memmap(path, np.uint8, "r")
    length = int.from_bytes(whole[:8].tobytes(), "little")
    if length > len(whole) - 8:
        raise DataError("it ends inside its header")
    entries = json.loads(whole[8 : 8 + length].tobytes())
    body, arrays = whole[8 + length :], {}
    for name, place in entries.items():
        if name != "__metadata__":
            start, end = place["data_offsets"]
            dtype, shape = np.dtype(_TYPES[place["dtype"]]), tuple(place["shape"])
            if end > len(body) or end - start != math.prod(shape) * dtype.itemsize:
                raise DataError("it is truncated")
            arrays[name] = body[start:end].view(np.ndarray).view(dtype).reshape(shape)
    return arrays, entries["__metadata__"]


def _check(meta: dict[str, str]) -> str:
    return digest_text(json.dumps({k: v for k, v in sorted(meta.items()) if k != "check"}))


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
