"""Columns of ratings that come some at a time, so that a hundred million never lie in memory twice.

An array that is mapped from a file is looked at so that it hardly counts as memory in use. A part
of such an array, or two one after the other, need not be made at all as long as nobody asks for the
whole of it.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

PIECE = 1 << 22
"""Entries of a column that are looked at at a time."""

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Later:
    """A column that can be made: `stretches` gives all of it, from its start, in any lengths."""

    size: int
    dtype: np.dtype[Any]
    stretches: Callable[[], Iterable[Array]]

    def __len__(self) -> int:
        return self.size

    @property
    def shape(self) -> tuple[int]:
        return (self.size,)

    def array(self) -> Array:
        """All of it."""
        out, end = np.empty(self.size, self.dtype), 0
        for stretch in self.stretches():
            out[end : end + len(stretch)] = stretch
            end += len(stretch)
        return out


Column = Array | Later


def in_part(column: Column, parts: npt.NDArray[np.uint8], number: int, size: int) -> Later:
    """The entries, so many, at which `parts` has the number."""

    def stretches() -> Iterator[Array]:
        for stretch, part in zip(pieces(column), pieces(parts), strict=True):
            yield stretch[part == number]

    return Later(size, column.dtype, stretches)


def joined(first: Column, second: Column) -> Later:
    """One column and then the other."""
    kind = np.result_type(first.dtype, second.dtype)
    size = len(first) + len(second)
    return Later(size, kind, lambda: chain(pieces(first), pieces(second)))


def slices(n: int) -> list[slice]:
    """Where the pieces of a column with n entries lie."""
    return [slice(first, first + PIECE) for first in range(0, n, PIECE)]


def pieces(column: Column) -> Iterator[Array]:
    """All of a column, PIECE entries at a time: those of columns of one length go together."""
    if isinstance(column, Later):
        yield from _evenly(column.stretches(), column.dtype)
        return
    mapping = _mapping_of(column)
    for some in slices(len(column)):
        piece = column[some]
        yield piece
        if mapping is not None:
            _let_go(mapping, piece)


def _evenly(stretches: Iterable[Array], kind: np.dtype[Any]) -> Iterator[Array]:
    """The same entries, PIECE at a time."""
    held, missing = list[Array](), PIECE
    for stretch in stretches:
        rest = stretch
        while len(rest) >= missing:
            yield np.concatenate([*held, rest[:missing]], dtype=kind)
            rest, held, missing = rest[missing:], [], PIECE
        held.append(rest)
        missing -= len(rest)
    if missing < PIECE:
        yield np.concatenate(held, dtype=kind)


def _mapping_of(array: Array) -> mmap.mmap | None:
    """The file that an array is mapped from, if it can only be read."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    if not isinstance(base, mmap.mmap) or not hasattr(mmap, "MADV_DONTNEED"):
        return None
    return None if np.frombuffer(base, np.uint8).flags.writeable else base


def _let_go(mapping: mmap.mmap, piece: Array) -> None:
    """Its pages no longer count as this process's memory; whoever needs them reads them again."""
    start = piece.ctypes.data - np.frombuffer(mapping, np.uint8).ctypes.data
    page = start - start % mmap.PAGESIZE
    mapping.madvise(mmap.MADV_DONTNEED, page, start + piece.nbytes - page)
