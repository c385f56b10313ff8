"""Named arrays in one file of the safetensors layout, checked when it is read.

    8 bytes   length of the header, little-endian
    header    JSON: each array's type, shape and place; under "__metadata__" texts, among them a
              digest of every array ("digests") and one of all these texts ("check")
    arrays    widest type first, so that each lies aligned

Any safetensors reader opens it; nothing in it is executed. Reading maps it into memory.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cfnade.data.hashing import digest, digest_text
from cfnade.errors import DataError
from cfnade.files import replacing

_TYPES = {"F64": "<f8", "I64": "<i8", "F32": "<f4", "I32": "<i4", "U8": "|u1"}
_CODES = {np.dtype(name): code for code, name in _TYPES.items()}
_DAMAGE = (
    OSError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    OverflowError,
    RecursionError,
)
Arrays = dict[str, npt.NDArray[Any]]


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
