"""First stage: pieces of files become chunks, ratings by index with raw ids of their own.

A chunk is three files: the raw ids of its users, of its items (rising, with how many ratings each
has), and its ratings as indices into these and into the distinct values. Raw files are read once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from cfnade.data.raw_table import RawTable
from cfnade.data.readers.files import table_kind
from cfnade.data.readers.tables import PARQUET, read_columnar
from cfnade.data.readers.text_blocks import lines_between, lines_of_stream, read_blocks
from cfnade.data.scale import parse_scale
from cfnade.data.validate import encode_ids, keep_positive
from cfnade.distributed.sharding.layout import SIDES
from cfnade.distributed.sharding.plan import BYTES, Piece, ShardPlan
from cfnade.distributed.sharding.workplace import Workplace, id_arrays
from cfnade.exceptions import DataError
from cfnade.utils.text import option


def piece_name(piece: int) -> str:
    return f"pieces/{piece:06d}"


def chunk_name(chunk: str, what: str) -> str:
    return f"chunks/{chunk}-{what}"


def read_piece(place: Workplace, number: int) -> None:
    """Read one piece; what it came to is noted when all of it is written."""
    plan = place.plan()
    chunks, skipped = [], []
    for block, (table, words) in enumerate(_read(plan, plan.pieces[number])):
        chunk = _write(place, f"{number:06d}-{block:04d}", table, plan)
        if chunk is not None:
            chunks.append(chunk)
        if words:
            skipped.append(f"{plan.pieces[number].path}: {words}")
    place.note(piece_name(number), {"chunks": chunks, "skipped": skipped})


def _read(plan: ShardPlan, piece: Piece) -> Iterator[tuple[RawTable, str]]:
    path = Path(piece.path)
    if piece.kind == "table":
        with path.open("rb") as file:
            kind = table_kind(file.read(16)) or PARQUET
        options = replace(plan.reading, time=False)
        rows = piece.first, piece.last
        yield read_columnar(path, piece.path, kind, options, rows), ""
        return
    size = next(size for name, size, _ in plan.inputs if name == piece.path)
    if piece.kind == "stream":
        blocks = lines_of_stream(path, BYTES, piece.member)
    else:
        blocks = lines_between(path, piece.first, piece.last, size)
    yield from read_blocks(path, blocks, plan.reading, piece.member)


def _write(place: Workplace, chunk: str, table: RawTable, plan: ShardPlan) -> dict[str, Any] | None:
    """Write one chunk, unless nothing of it is wanted."""
    least = plan.options.min_rating
    if not table.implicit:
        values = table.frame["rating"].to_numpy()
        if least is not None and values.max() < least:
            return None
    if least is not None:
        table = keep_positive(table, least)
    _refuse_off_scale(table, plan)
    ratings: dict[str, npt.NDArray[Any]] = {}
    told: dict[str, Any] = {"name": chunk, "ratings": len(table)}
    for axis in SIDES:
        index, ids = encode_ids(table.frame[axis])
        counts = np.bincount(index, minlength=len(ids)).astype(np.int64)
        place.write(chunk_name(chunk, axis), {**id_arrays(ids), "counts": counts})
        ratings[axis] = index
        told[axis] = {"ids": len(ids), "texts": ids.dtype == object}
    rated = table.column("rating")
    if rated is None:
        rated = np.ones(len(table), np.uint8)
    values = pl.Series(rated).unique().sort().cast(pl.Float64).to_numpy()
    ratings |= {"values": values, "codes": np.searchsorted(values, rated).astype(np.int32)}
    weights = table.column("weight")
    if weights is not None:
        ratings["weights"] = weights
    place.write(chunk_name(chunk, "ratings"), ratings)
    scale = None if table.scale is None else [table.scale.values, table.scale.edges]
    return told | {"implicit": table.implicit, "scale": scale, "assumed": table.assumed}


def _refuse_off_scale(table: RawTable, plan: ShardPlan) -> None:
    """Where the scale is given, here is the last place that knows the line of a rating."""
    values = table.column("rating")
    if plan.options.scale is None or values is None:
        return
    scale = parse_scale(plan.options.scale)
    _, fits = scale.levels_of(values)
    if not fits.all():
        row = int(np.argmin(fits))
        raise DataError(
            f"{table.locate(row)}: rating {values[row]:g} is off the scale {scale}; give "
            f"the scale that this data uses with {option('scale')}"
        )
