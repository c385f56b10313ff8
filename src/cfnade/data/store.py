"""Arrays, and ratings as arrays, in one file of the safetensors layout, checked when it is read.

    8 bytes   length of the header, little-endian
    header    JSON: each array's type, shape and place; under "__metadata__" texts, among them a
              digest of every array ("digests") and one of all these texts ("check")
    arrays    widest type first, so that each lies aligned

Any safetensors reader opens it; nothing in it is executed. Reading maps it into memory.

Ratings are the arrays users, items, levels, times (if known), weights (of interactions, if they
differ), user_ids, item_ids, titles and genres (if known). Integer ids are one array; texts are two,
`NAME.bytes` with all bytes end to end and `NAME.starts` with where each text starts. Their header's
texts are format, version, scale, edges, source and a note.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from cfnade.data.ratings import Ratings
from cfnade.data.scale import Scale
from cfnade.errors import DataError
from cfnade.files import replacing

Arrays = dict[str, npt.NDArray[Any]]

_RATINGS, _VERSION = "cfnade-ratings", "1"
_TEXTS = ("user_ids", "item_ids", "titles", "genres")
_TYPES = {"F64": "<f8", "I64": "<i8", "F32": "<f4", "I32": "<i4", "U8": "|u1"}
_CODES = {np.dtype(name): code for code, name in _TYPES.items()}
_DAMAGE = (
    *(OSError, ValueError, LookupError, TypeError),
    *(AttributeError, OverflowError, RecursionError),
)


# -- digests: XXH3, 128 bits; they tell copies apart, they do not stop a forger -------------------


def digest(array: npt.NDArray[Any]) -> str:
    """32 hex digits of an array's type, shape and content."""
    if array.dtype == object:
        data, starts = _pack(array)
        return digest_text(f"strings {digest(data)} {digest(starts)}")
    state = xxhash.xxh3_128(f"{array.dtype.str} {array.shape} ".encode())
    state.update(np.ascontiguousarray(array).view(np.uint8).data)
    return state.hexdigest()


def digest_text(text: str) -> str:
    """32 hex digits of a text."""
    return xxhash.xxh3_128_hexdigest(text.encode("utf-8", "surrogatepass"))


def digest_file(path: Path) -> str:
    """32 hex digits of a file's content."""
    state = xxhash.xxh3_128()
    with path.open("rb") as file:
        while chunk := file.read(1 << 22):
            state.update(chunk)
    return state.hexdigest()


# -- ratings --------------------------------------------------------------------------------------


def write_ratings(path: Path, ratings: Ratings, note: str = "") -> None:
    """Save ratings to one file, atomically, with a note that `read_noted` gives back."""
    meta = {
        "format": _RATINGS,
        "version": _VERSION,
        "scale": json.dumps(ratings.scale.values),
        "edges": json.dumps(ratings.scale.edges),
        "source": ratings.source,
        "note": note,
    }
    arrays: Arrays = {}
    for name in ("users", "items", "levels", "times", "weights", *_TEXTS):
        array = getattr(ratings, name)
        if array is not None and array.dtype == object:
            arrays[f"{name}.bytes"], arrays[f"{name}.starts"] = _pack(array)
        elif array is not None:
            arrays[name] = array
    write_arrays(path, arrays, meta)


def read_ratings(path: Path) -> Ratings:
    """Map a saved file into memory, checking every array against its digest."""
    return read_noted(path)[0]


def read_noted(path: Path) -> tuple[Ratings, str]:
    """The saved ratings and the note that was saved with them."""
    try:
        arrays, meta = read_arrays(path)
        if meta.get("format") != _RATINGS or meta.get("version") != _VERSION:
            raise DataError("it is not a ratings file of this version")
        for name in _TEXTS:
            if f"{name}.bytes" in arrays:
                arrays[name] = _unpack(arrays.pop(f"{name}.bytes"), arrays.pop(f"{name}.starts"))
        edges = json.loads(meta["edges"])
        scale = Scale(tuple(json.loads(meta["scale"])), None if edges is None else tuple(edges))
        return Ratings(scale=scale, source=meta["source"], **arrays), meta["note"]
    except (ValueError, LookupError, TypeError) as error:
        raise DataError(f"{path}: cannot be read as saved ratings: {error}") from error


def _pack(
    strings: npt.NDArray[np.object_],
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """All strings end to end as UTF-8, and where each starts. Returns (bytes,), (n+1,)."""
    encoded = [text.encode("utf-8", "surrogatepass") for text in strings.tolist()]
    starts = np.zeros(len(encoded) + 1, np.int64)
    np.cumsum(np.array([len(text) for text in encoded], np.int64), out=starts[1:])
    return np.frombuffer(b"".join(encoded), np.uint8), starts


def _unpack(data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64]) -> npt.NDArray[np.object_]:
    """The inverse of `_pack`. Returns (n,)."""
    raw, bounds = data.tobytes(), starts.tolist()
    strings = np.empty(len(bounds) - 1, object)
    strings[:] = [raw[a:b].decode("utf-8", "surrogatepass") for a, b in itertools.pairwise(bounds)]
    return strings


# -- arrays ---------------------------------------------------------------------------------------


def write_arrays(
    path: Path, arrays: Mapping[str, npt.NDArray[Any]], meta: Mapping[str, str]
) -> None:
    """Save arrays and texts to one file, atomically."""
    ordered = {
        name: np.ascontiguousarray(array)
        for name, array in sorted(arrays.items(), key=lambda pair: (-pair[1].itemsize, pair[0]))
    }
    digests = {name: digest(array) for name, array in ordered.items()}
    texts = {**meta, "digests": json.dumps(digests)}
    texts["check"] = _check(texts)
    header = _header(ordered, texts)
    with replacing(path) as file:
        file.write(len(header).to_bytes(8, "little"))
        file.write(header)
        for array in ordered.values():
            file.write(array.reshape(-1).view(np.uint8).data)


def read_arrays(path: Path) -> tuple[Arrays, dict[str, str]]:
    """Map a saved file into memory, checking every byte against its digest.

    Whatever is wrong with the file is a DataError that does not name it: callers do.
    """
    try:
        arrays, texts = _map(path)
        if texts.get("check") != _check(texts):
            raise DataError("its header is damaged")
        digests = json.loads(texts["digests"])
        damaged = [name for name, array in arrays.items() if digests.get(name) != digest(array)]
    except DataError:
        raise
    except _DAMAGE as error:
        raise DataError(str(error)) from error
    if damaged or set(digests) != set(arrays):
        raise DataError(f"{', '.join(damaged) or 'an array'}: damaged")
    return arrays, texts


def _header(arrays: Arrays, texts: dict[str, str]) -> bytes:
    entries: dict[str, Any] = {"__metadata__": texts}
    start = 0
    for name, array in arrays.items():
        end = start + array.nbytes
        place = {"dtype": _CODES[array.dtype], "shape": list(array.shape)}
        entries[name] = place | {"data_offsets": [start, end]}
        start = end
    header = json.dumps(entries).encode()
    return header + b" " * (-len(header) % 8)


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


def _check(texts: Mapping[str, str]) -> str:
    return digest_text(json.dumps({k: v for k, v in sorted(texts.items()) if k != "check"}))
