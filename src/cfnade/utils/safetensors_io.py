"""Safetensors files with digests: arrays are written in chunks and mapped into memory when opened.

    8 bytes   length of the header, little-endian
    header    JSON: dtype, shape and offsets of each array; "__metadata__" holds texts, among them
              the digest of every array ("digests") and the digest of all texts ("check")
    arrays    widest dtype first, so that each is aligned

Any safetensors reader opens such a file. The library is not used because it copies NumPy arrays
instead of mapping them, and cannot write arrays that exceed memory.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from cfnade._typing import Array
from cfnade.exceptions import DataError
from cfnade.utils.files import atomic_write

Arrays = dict[str, Array]
Metadata = dict[str, str]
Specs = Mapping[str, tuple[npt.DTypeLike, tuple[int, ...]]]
"""Dtype and shape of each array."""

_DTYPES = {"F64": "<f8", "I64": "<i8", "F32": "<f4", "I32": "<i4", "U8": "|u1"}
_CODES = {np.dtype(name): code for code, name in _DTYPES.items()}
_DAMAGE = OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError
"""What reading a damaged header can raise."""


# -- files ----------------------------------------------------------------------------------------


def open_arrays(
    path: Path, *, verify: bool = True, writable: bool = False
) -> tuple[Arrays, Metadata]:
    """Map all arrays of a file into memory.

    Args:
        path: A file of `write_arrays` or `write_chunks`.
        verify: Compare every array with its digest. The digest of the metadata is always compared.
        writable: Map copy-on-write: writing to an array copies the page, the file never changes.

    Raises:
        DataError: The file is missing or damaged. The message does not name the file.
    """
    try:
        arrays, metadata = _map(path, writable)
        digests = json.loads(metadata["digests"])
        if metadata["check"] != _with_digests(metadata, digests)["check"]:
            raise DataError("its header is damaged", path=path)
        damaged = [
            name for name, array in arrays.items() if verify and digests.get(name) != digest(array)
        ]
    except DataError:
        raise
    except _DAMAGE as error:
        raise DataError(str(error), path=path) from error
    if damaged or set(digests) != set(arrays):
        raise DataError(f"{', '.join(damaged) or 'an array'}: damaged", path=path)
    return arrays, metadata


def write_arrays(path: Path, arrays: Mapping[str, Array], metadata: Mapping[str, str]) -> None:
    """Write arrays and texts to one file, atomically."""
    specs = {name: (array.dtype, array.shape) for name, array in arrays.items()}
    write_chunks(path, specs, lambda name: [arrays[name]], metadata)


def write_chunks(
    path: Path,
    specs: Specs,
    chunks: Callable[[str], Iterable[Array]],
    metadata: Mapping[str, str],
) -> str:
    """Write arrays that come in chunks, and so may exceed memory, to one file, atomically.

    Args:
        path: The file to write.
        specs: Dtype and shape of each array.
        chunks: Returns the chunks of an array, by name; they are written one after the other.
        metadata: Texts, which `open_arrays` returns with "digests" and "check".

    Returns:
        The digest of the metadata, which identifies the content of the file.
    """
    dtypes = {name: np.dtype(dtype) for name, (dtype, _) in specs.items()}
    names = sorted(specs, key=lambda name: (-dtypes[name].itemsize, name))
    ordered = {name: (dtypes[name], specs[name][1]) for name in names}
    placeholder = _with_digests(metadata, dict.fromkeys(names, "0" * 32))
    with atomic_write(path) as file:
        file.write(bytes(8) + _encode_header(ordered, placeholder))
        digests = {}
        for name, (dtype, shape) in ordered.items():
            state = _new_digest(dtype, shape)
            for chunk in chunks(name):
                content = np.ascontiguousarray(chunk, dtype).data
                state.update(content)
                file.write(content)
            digests[name] = state.hexdigest()
        complete = _with_digests(metadata, digests)
        header = _encode_header(ordered, complete)  # as long as the first: digests have one length
        file.seek(0)
        file.write(len(header).to_bytes(8, "little") + header)
    return complete["check"]


def _map(path: Path, writable: bool) -> tuple[Arrays, Metadata]:
    content = np.memmap(path, np.uint8, "c" if writable else "r")
    length = int.from_bytes(content[:8].tobytes(), "little")
    if length > len(content) - 8:
        raise DataError("it ends inside its header")
    entries = json.loads(content[8 : 8 + length].tobytes())
    body, arrays = content[8 + length :], {}
    for name, entry in entries.items():
        if name != "__metadata__":
            start, end = entry["data_offsets"]
            dtype, shape = np.dtype(_DTYPES[entry["dtype"]]), tuple(entry["shape"])
            size = math.prod(shape) * dtype.itemsize
            if not 0 <= start <= end <= len(body) or end - start != size:
                raise DataError("it is truncated")
            arrays[name] = body[start:end].view(np.ndarray).view(dtype).reshape(shape)
    return arrays, entries.get("__metadata__", {})


def _encode_header(
    specs: Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]], metadata: Metadata
) -> bytes:
    entries: dict[str, Any] = {"__metadata__": metadata}
    start = 0
    for name, (dtype, shape) in specs.items():
        end = start + math.prod(shape) * dtype.itemsize
        entries[name] = {
            "dtype": _CODES[dtype],
            "shape": list(shape),
            "data_offsets": [start, end],
        }
        start = end
    header = json.dumps(entries).encode()
    return header + b" " * (-len(header) % 8)


def _with_digests(metadata: Mapping[str, str], digests: Mapping[str, str]) -> Metadata:
    """Return the texts with the digests of the arrays, and with the digest of all texts."""
    complete = {**metadata, "digests": json.dumps(digests)}
    complete.pop("check", None)
    return complete | {"check": digest_text(json.dumps(dict(sorted(complete.items()))))}


# -- digests: 128 bits of XXH3, against damage but not against forgery ----------------------------


def digest(array: Array) -> str:
    """Return 32 hex digits of an array's dtype, shape and content."""
    if array.dtype == object:
        data, starts = _pack_strings(array)
        return digest_text(f"strings {digest(data)} {digest(starts)}")
    return digest_chunks(array.dtype, array.shape, [array])


def digest_chunks(dtype: np.dtype[Any], shape: tuple[int, ...], chunks: Iterable[Array]) -> str:
    """Return the same digits for an array that comes in chunks."""
    state = _new_digest(dtype, shape)
    for chunk in chunks:
        state.update(np.ascontiguousarray(chunk).data)
    return state.hexdigest()


def digest_text(text: str) -> str:
    """Return 32 hex digits of a text."""
    return xxhash.xxh3_128_hexdigest(text.encode("utf-8", "surrogatepass"))


def digest_file(path: Path) -> str:
    """Return 32 hex digits of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, xxhash.xxh3_128).hexdigest()


def _new_digest(dtype: np.dtype[Any], shape: tuple[int, ...]) -> xxhash.xxh3_128:
    return xxhash.xxh3_128(f"{dtype.str} {tuple(shape)} ".encode())


# -- strings --------------------------------------------------------------------------------------


def pack(name: str, array: Array) -> Arrays:
    """Return what an array is stored as: itself, or for strings `NAME.bytes` and `NAME.starts`."""
    if array.dtype != object:
        return {name: array}
    data, starts = _pack_strings(array)
    return {f"{name}.bytes": data, f"{name}.starts": starts}


def unpack(name: str, arrays: Mapping[str, Array]) -> Array:
    """Return the array that `pack` stored under this name."""
    if name in arrays:
        return arrays[name]
    raw = arrays[f"{name}.bytes"].tobytes()
    bounds = arrays[f"{name}.starts"].tolist()
    strings = np.empty(len(bounds) - 1, object)
    strings[:] = [raw[a:b].decode("utf-8", "surrogatepass") for a, b in itertools.pairwise(bounds)]
    return strings


def _pack_strings(strings: Array) -> tuple[Array, Array]:
    """Return all strings concatenated as UTF-8 (bytes,), and where each starts (n+1,)."""
    encoded = [text.encode("utf-8", "surrogatepass") for text in strings.tolist()]
    starts = np.zeros(len(encoded) + 1, np.int64)
    np.cumsum(np.array([len(text) for text in encoded], np.int64), out=starts[1:])
    return np.frombuffer(b"".join(encoded), np.uint8), starts
