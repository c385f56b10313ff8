"""First stage: pieces of files become chunks, ratings by index with raw ids of their own.

A chunk is three files: the raw ids of its users, of its items (rising, with how many ratings each
has), and its ratings as indices into these and into the distinct values. Raw files are read once.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from cfnade.data.build import index_of
from cfnade.data.columns import Columns, finite
from cfnade.data.interactions import liked
from cfnade.data.scale import given_scale
from cfnade.data.typed_tables import read_rows
from cfnade.exceptions import DataError
from cfnade.shards.layout import SIDES
from cfnade.shards.plan import BYTES, Piece, ShardPlan
from cfnade.shards.texts import lines_between, lines_of_stream, read_blocks
from cfnade.shards.workplace import Workplace, id_arrays


def piece_name(piece: int) -> str:
    return f"pieces/{piece:06d}"


def chunk_name(chunk: str, what: str) -> str:
    return f"chunks/{chunk}-{what}"


def read_piece(place: Workplace, number: int) -> None:
    """Read one piece; what it came to is noted when all of it is written."""
    plan = place.plan()
    chunks, skipped = [], []
    for block, (columns, words) in enumerate(_read(plan, plan.pieces[number])):
        chunk = _write(place, f"{number:06d}-{block:04d}", columns, plan)
        if chunk is not None:
            chunks.append(chunk)
        if words:
            skipped.append(f"{plan.pieces[number].path}: {words}")
    place.note(piece_name(number), {"chunks": chunks, "skipped": skipped})


def _read(plan: ShardPlan, piece: Piece) -> Iterator[tuple[Columns, str]]:
    path = Path(piece.path)
    if piece.kind == "table":
        count = piece.last - piece.first
        yield read_rows(path, piece.path, plan.reading, piece.first, count), ""
        return
    size = next(size for name, size, _ in plan.inputs if name == piece.path)
    if piece.kind == "stream":
        blocks = lines_of_stream(path, BYTES, piece.member)
    else:
        blocks = lines_between(path, piece.first, piece.last, size)
    yield from read_blocks(path, blocks, plan.reading, piece.member)


def _write(
    place: Workplace, chunk: str, columns: Columns, plan: ShardPlan
) -> dict[str, Any] | None:
    """Write one chunk, unless nothing of it is wanted."""
    finite(columns.values, "rating", columns.where)
    likes = plan.options.likes
    if likes is not None:
        if not columns.implicit and columns.values.max() < likes:
            return None
        columns = liked(columns, likes)
    _refuse_off_scale(columns, plan)
    ratings: dict[str, npt.NDArray[Any]] = {}
    told: dict[str, Any] = {"name": chunk, "ratings": len(columns.values)}
    for axis, raw in zip(SIDES, (columns.users, columns.items), strict=True):
        index, ids = index_of(raw)
        counts = np.bincount(index, minlength=len(ids)).astype(np.int64)
        place.write(chunk_name(chunk, axis), {**id_arrays(ids), "counts": counts})
        ratings[axis] = index
        told[axis] = {"ids": len(ids), "texts": ids.dtype == object}
    values = pl.Series(columns.values).unique().sort().cast(pl.Float64).to_numpy()
    ratings |= {"values": values, "codes": np.searchsorted(values, columns.values).astype(np.int32)}
    if columns.weights is not None:
        ratings["weights"] = columns.weights
    place.write(chunk_name(chunk, "ratings"), ratings)
    scale = None if columns.scale is None else [columns.scale.values, columns.scale.edges]
    return told | {"implicit": columns.implicit, "scale": scale, "assumed": columns.assumed}


def _refuse_off_scale(columns: Columns, plan: ShardPlan) -> None:
    """Where the scale is given, here is the last place that knows the line of a rating."""
    if plan.options.scale is None or columns.implicit:
        return
    scale = given_scale(plan.options.scale)
    _, fits = scale.levels_of(columns.values)
    if not fits.all():
        row = int(np.argmin(fits))
        raise DataError(
            f"{columns.where(row)}: rating {columns.values[row]:g} is off the scale {scale}; give "
            "the scale that this data uses with scale="
        )
