"""What a folder of shards holds, and the two hashes that every reader must agree on.

    manifest.json                   written last: a folder without it is unfinished
    ids/user-000 …, ids/item-000 …  raw ids, rising through all pieces
    rows/user, rows/item            how many ratings each whole row has, by division
    user/part-00 … part-63          rows are users, columns are items
    item/part-00 … part-63          rows are items, columns are users

All but the manifest have the layout of utils/safetensors_io.py. A part holds, for each division
(train, valid, test), `rows`, `columns` (indices in the whole) and `levels`, sorted by row and
column; interactions that weigh differently have `weights`. `train.places` is a rating's place among
the training ratings of its whole row: roles are drawn by it, so any number of ranks draws the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cfnade.data.dataset import Axis
from cfnade.data.scale import FloatArray

FORMAT, VERSION = "cfnade-shards", 1
MANIFEST = "manifest.json"
PARTS: Final = 64
DIVISIONS = ("train", "valid", "test")
SIDES: tuple[Axis, Axis] = ("user", "item")

# splitmix64: its increment and the two factors of its finaliser
_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_BLOCK = 1 << 22  # columns hashed at a time

Uint64s = npt.NDArray[np.uint64]


def mixed_bits(numbers: Uint64s) -> Uint64s:
    """Scramble 64 bits each. Returns (n,)."""
    with np.errstate(over="ignore"):
        z = (numbers ^ (numbers >> np.uint64(30))) * _FIRST
        z = (z ^ (z >> np.uint64(27))) * _SECOND
        return np.asarray(z ^ (z >> np.uint64(31)))


def _seen(indices: npt.NDArray[Any]) -> Uint64s:
    with np.errstate(over="ignore"):
        return np.asarray(indices.astype(np.uint64) + _STEP)


def part_of(columns: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """The part that each column is in. Returns (n,)."""
    return (mixed_bits(_seen(columns)) % np.uint64(PARTS)).astype(np.uint8)


def owned(n_columns: int, rank: int, size: int) -> npt.NDArray[np.int32]:
    """The columns in the parts of one rank, rising. Returns (C,)."""
    parts = [
        np.flatnonzero(part_of(np.arange(first, min(first + _BLOCK, n_columns))) % size == rank)
        + first
        for first in range(0, n_columns, _BLOCK)
    ]
    return np.concatenate([np.empty(0, np.int64), *parts]).astype(np.int32)


def chances(seed: int, users: npt.NDArray[Any], items: npt.NDArray[Any]) -> FloatArray:
    """A number in [0, 1) of each rating, by which it is divided: the same wherever it is seen."""
    start = mixed_bits(_seen(np.array([seed])))
    bits = mixed_bits(mixed_bits(start ^ users.astype(np.uint64)) ^ _seen(items))
    return np.asarray((bits >> np.uint64(11)).astype(np.float64) * 2.0**-53)


def part_file(side: Axis, part: int) -> str:
    return f"{side}/part-{part:02d}.safetensors"


def rows_file(side: Axis) -> str:
    return f"rows/{side}.safetensors"


def ids_file(axis: Axis, piece: int) -> str:
    return f"ids/{axis}-{piece:03d}.safetensors"


def arrays_of(division: str, *, weights: bool) -> Iterator[tuple[str, type[np.generic]]]:
    """The arrays that a part has of a division, and their types."""
    yield "rows", np.int32
    yield "columns", np.int32
    if division == "train":
        yield "places", np.int32
    yield "levels", np.uint8
    if weights:
        yield "weights", np.float32
