"""Fast content hashes (XXH3, 128 bits): they tell copies apart, they do not stop a forger."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash


def digest(array: npt.NDArray[Any]) -> str:
    """32 hex digits of an array's type, shape and content."""
    if array.dtype == object:
        data, offsets = pack_strings(array)
        return digest_text(f"strings {digest(data)} {digest(offsets)}")
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


def pack_strings(
    strings: npt.NDArray[np.object_],
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """All strings end to end as UTF-8, and where each starts. Returns (bytes,), (n+1,)."""
    encoded = [text.encode("utf-8", "surrogatepass") for text in strings.tolist()]
    offsets = np.zeros(len(encoded) + 1, np.int64)
    np.cumsum(np.array([len(text) for text in encoded], np.int64), out=offsets[1:])
    return np.frombuffer(b"".join(encoded), np.uint8), offsets


def unpack_strings(
    data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]
) -> npt.NDArray[np.object_]:
    """The inverse of `pack_strings`. Returns (n,)."""
    raw, bounds = data.tobytes(), offsets.tolist()
    strings = np.empty(len(bounds) - 1, object)
    strings[:] = [raw[a:b].decode("utf-8", "surrogatepass") for a, b in itertools.pairwise(bounds)]
    return strings
