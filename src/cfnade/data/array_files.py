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
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import xxhash

from cfnade.exceptions import DataError
from cfnade.utils.files import atomic_write

Arrays = dict[str, npt.NDArray[Any]]

_TYPES = {"F64": "<f8", "I64": "<i8", "F32": "<f4", "I32": "<i4", "F16": "<f2", "U8": "|u1"}
_CODES = {np.dtype(name): code for code, name in _TYPES.items()}
_DAMAGE = (
    *(OSError, ValueError, LookupError, TypeError),
    *(AttributeError, OverflowError, RecursionError),
)


# -- digests: XXH3, 128 bits; they tell copies apart, they do not stop a forger -------------------


def digest(array: npt.NDArray[Any]) -> str:
    """32 hex digits of an array's type, shape and content."""
    if array.dtype == object:
        data, starts = pack_texts(array)
        return digest_text(f"strings {digest(data)} {digest(starts)}")
    state = _digest_of(array)
    state.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return state.hexdigest()


def digest_chunks(dtype: np.dtype[Any], length: int, chunks: Iterable[npt.NDArray[Any]]) -> str:
    """The same 32 hex digits of an array of one dimension that comes in chunks."""
    state = xxhash.xxh3_128(f"{dtype.str} {(length,)} ".encode())
    for chunk in chunks:
        state.update(np.ascontiguousarray(chunk).view(np.uint8).data)
    return state.hexdigest()


def _digest_of(array: npt.NDArray[Any]) -> xxhash.xxh3_128:
    """A digest that has seen an array's type and shape, and waits for its content."""
    return xxhash.xxh3_128(f"{array.dtype.str} {array.shape} ".encode())


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


def packed(name: str, array: npt.NDArray[Any]) -> Arrays:
    """What an array is stored as: itself, or the two arrays of its texts."""
    if array.dtype != object:
        return {name: array}
    data, starts = pack_texts(array)
    return {f"{name}.bytes": data, f"{name}.starts": starts}


def unpacked(name: str, arrays: Arrays) -> npt.NDArray[Any]:
    """The inverse of `packed`."""
    if name in arrays:
        return arrays[name]
    return unpack_texts(arrays[f"{name}.bytes"], arrays[f"{name}.starts"])


def pack_texts(
    strings: npt.NDArray[np.object_],
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """All strings end to end as UTF-8, and where each starts. Returns (bytes,), (n+1,)."""
    encoded = [text.encode("utf-8", "surrogatepass") for text in strings.tolist()]
    starts = np.zeros(len(encoded) + 1, np.int64)
    np.cumsum(np.array([len(text) for text in encoded], np.int64), out=starts[1:])
    return np.frombuffer(b"".join(encoded), np.uint8), starts


def unpack_texts(
    data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64]
) -> npt.NDArray[np.object_]:
    """The inverse of `pack_texts`. Returns (n,)."""
    raw, bounds = data.tobytes(), starts.tolist()
    strings = np.empty(len(bounds) - 1, object)
    strings[:] = [raw[a:b].decode("utf-8", "surrogatepass") for a, b in itertools.pairwise(bounds)]
    return strings


# -- arrays ---------------------------------------------------------------------------------------


def write_arrays(
    path: Path, arrays: Mapping[str, npt.NDArray[Any]], meta: Mapping[str, str]
) -> None:
    """Save arrays and texts to one file, atomically."""
    shapes = {name: (array.dtype, array.shape) for name, array in arrays.items()}
    write_streamed(path, shapes, lambda name: [arrays[name]], meta)


def write_streamed(
    path: Path,
    shapes: Mapping[str, tuple[npt.DTypeLike, tuple[int, ...]]],
    pieces: Callable[[str], Iterable[npt.NDArray[Any]]],
    meta: Mapping[str, str],
) -> str:
    """The same of arrays that come piece by piece, so that none need fit into memory.

    Returns the check of its header, which no other content has.
    """
    # Arrays of one stored zero stand for the real ones: a header asks for types and shapes only.
    stand_ins = {
        name: np.broadcast_to(np.zeros((), kind), shape) for name, (kind, shape) in shapes.items()
    }
    ordered = dict(sorted(stand_ins.items(), key=lambda pair: (-pair[1].itemsize, pair[0])))
    unknown = _texts(meta, dict.fromkeys(ordered, "0" * 32))
    with atomic_write(path) as file:
        file.write(bytes(8) + _header(ordered, unknown))
        digests = {}
        for name, array in ordered.items():
            state = _digest_of(array)
            for piece in pieces(name):
                content = np.ascontiguousarray(piece, array.dtype).reshape(-1).view(np.uint8).data
                state.update(content)
                file.write(content)
            digests[name] = state.hexdigest()
        texts = _texts(meta, digests)
        header = _header(ordered, texts)  # as long as the first: digests all have one length
        file.seek(0)
        file.write(len(header).to_bytes(8, "little") + header)
    return texts["check"]


def _texts(meta: Mapping[str, str], digests: Mapping[str, str]) -> dict[str, str]:
    texts = {**meta, "digests": json.dumps(digests)}
    return texts | {"check": _check(texts)}


def read_arrays(path: Path, *, verified: bool = False) -> tuple[Arrays, dict[str, str]]:
    """Map a saved file into memory, checking every byte against its digest.

    Of one that this process has `verified` before, only the header is checked. Whatever is wrong
    with the file is a DataError that does not name it: callers do.
    """
    try:
        arrays, texts = _map(path, "r")
        if texts.get("check") != _check(texts):
            raise DataError("its header is damaged")
        digests = json.loads(texts["digests"])
        damaged = [
            name
            for name, array in arrays.items()
            if not verified and digests.get(name) != digest(array)
        ]
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


def mapped_arrays(path: Path, *, writable: bool = False) -> tuple[Arrays, dict[str, str]]:
    """The arrays and the texts of any safetensors file, mapped into memory; none is checked.

    Who writes to one that is `writable` has a copy of that page: the file stays as it is.
    """
    try:
        return _map(path, "c" if writable else "r")
    except _DAMAGE as error:
        raise DataError(str(error)) from error


def _map(path: Path, mode: Literal["r", "c"]) -> tuple[Arrays, dict[str, str]]:
    whole = np.memmap(path, np.uint8, mode)
    length = int.from_bytes(whole[:8].tobytes(), "little")
    if length > len(whole) - 8:
        raise DataError("it ends inside its header")
    entries = json.loads(whole[8 : 8 + length].tobytes())
    body, arrays = whole[8 + length :], {}
    for name, place in entries.items():
        if name != "__metadata__":
            start, end = place["data_offsets"]
            dtype, shape = np.dtype(_TYPES[place["dtype"]]), tuple(place["shape"])
            size = math.prod(shape) * dtype.itemsize
            if not 0 <= start <= end <= len(body) or end - start != size:
                raise DataError("it is truncated")
            arrays[name] = body[start:end].view(np.ndarray).view(dtype).reshape(shape)
    return arrays, entries.get("__metadata__", {})


def _check(texts: Mapping[str, str]) -> str:
    return digest_text(json.dumps({k: v for k, v in sorted(texts.items()) if k != "check"}))
