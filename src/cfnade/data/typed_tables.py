"""Tables with typed columns: Parquet and Arrow files, and pandas, polars and pyarrow frames.

`write_parquet` keeps ratings as a plain table (user, item, rating, timestamp, title, genres;
interactions have no rating and perhaps a weight) with what a table cannot say in the file's
metadata, so that reading it gives the same ratings again:

    cfnade.scale    JSON: the values of the levels, those that nobody used as well
    cfnade.edges    JSON: the inner cut points if ratings were binned, else null
    cfnade.source   JSON: the name of the published set
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import narwhals.stable.v1 as nw
import numpy as np
import polars as pl

from cfnade.data.columns import Columns, Where, columns_of, typed_ids
from cfnade.data.dataset import Dataset
from cfnade.data.fields import POLARS_ERRORS
from cfnade.data.parquet_check import MAGIC, check_parquet
from cfnade.data.roles import PLAIN, ReadOptions, Roles, choose
from cfnade.data.scale import INTERACTIONS, Scale
from cfnade.exceptions import DataError
from cfnade.utils.files import atomic_write

_ARROW = b"ARROW1"


def is_table(start: bytes) -> bool:
    """Whether a file that starts so is one of them."""
    return start.startswith((MAGIC, _ARROW))


def read_frame(frame: Any, options: ReadOptions = PLAIN, label: str = "the frame") -> Columns:
    """The ratings of a pandas, polars or pyarrow frame, which messages call `label`."""
    if names := options.of_text():
        raise DataError(f"{names[0]}= is for text files, not for frames; leave it out")
    table, names = _opened(frame)
    roles = _roles(names, options, label)
    columns = {names[i]: _column(table, i, names[i]) for i in _needed(names, roles)}
    return _columns(columns, names, roles, "")


def frame_columns(frame: Any) -> dict[str, pl.Series]:
    """All columns of a frame."""
    table, names = _opened(frame)
    return {name: _column(table, i, name) for i, name in enumerate(names)}


def _opened(frame: Any) -> tuple[nw.DataFrame[Any], list[str]]:
    try:
        table = nw.from_native(frame, eager_only=True)
        return table, [str(name) for name in table.columns]
    except Exception as error:  # each library has its own for a frame that is not one
        raise DataError(
            f"a {type(frame).__name__} is not a table that can be read ({error}); give a pandas, "
            "polars or pyarrow frame (a lazy one must be collected first), an array, a sparse "
            "matrix, a list of tuples or a dict"
        ) from error


def read_table(data: bytes | Path, label: str, options: ReadOptions = PLAIN) -> Columns:
    """The ratings of a Parquet or Arrow (Feather) file, given by its path or content."""
    with _reading(label):
        is_parquet = _checked(data)
        names = list((pl.read_parquet_schema if is_parquet else pl.read_ipc_schema)(_file(data)))
        own = pl.read_parquet_metadata(_file(data)) if is_parquet else {}
    roles = _roles(names, options, label)
    with _reading(label):
        read = pl.read_parquet if is_parquet else pl.read_ipc
        frame = read(_file(data), columns=[names[i] for i in _needed(names, roles)])
    scale, source = (None, "") if options.columns() else _own_metadata(own, label)
    return _columns(frame.to_dict(), names, roles, label, scale, source)


def count_rows(file: Path, label: str) -> int:
    """How many rows a Parquet or Arrow file has."""
    with _reading(label):
        scan = pl.scan_parquet if _checked(file) else pl.scan_ipc
        return int(scan(file).select(pl.len()).collect().item())


def read_rows(file: Path, label: str, options: ReadOptions, first: int, count: int) -> Columns:
    """Some rows of such a file without times and titles: it may be larger than memory."""
    with _reading(label):
        with file.open("rb") as start:
            is_parquet = start.read(4) == MAGIC
        lazy = (pl.scan_parquet if is_parquet else pl.scan_ipc)(file)
        names = list(lazy.collect_schema())
        own = pl.read_parquet_metadata(file) if is_parquet else {}
    roles = replace(_roles(names, options, label), time=None)
    with _reading(label):
        columns = [names[i] for i in sorted(roles.positions())]
        frame = lazy.select(columns).slice(first, count).collect()
    scale, _ = (None, "") if options.columns() else _own_metadata(own, label)
    return _columns(frame.to_dict(), names, roles, label, scale, first=first)


def table_columns(data: bytes, label: str) -> dict[str, pl.Series]:
    """All columns of a Parquet or Arrow file."""
    with _reading(label):
        return (pl.read_parquet if _checked(data) else pl.read_ipc)(_file(data)).to_dict()


def _checked(data: bytes | Path) -> bool:
    """Whether it is Parquet, whose structure is then sound."""
    whole = memoryview(data) if isinstance(data, bytes) else np.memmap(data, np.uint8, "r").data
    is_parquet = whole[:4] == MAGIC
    if is_parquet:
        check_parquet(whole)
    return is_parquet


def _file(data: bytes | Path) -> Any:
    return io.BytesIO(data) if isinstance(data, bytes) else data


@contextmanager
def _reading(label: str) -> Iterator[None]:
    try:
        yield
    except (*POLARS_ERRORS, OSError, DataError) as error:
        raise DataError(
            f"{label}: cannot be read as a table ({str(error)[:200]}); the file may be truncated "
            "or damaged: fetch or write it again"
        ) from error


def write_parquet(ratings: Dataset, path: Path) -> None:
    """Save ratings as a table; ids without a rating have no row in it."""
    columns = {
        "user": pl.Series(ratings.user_ids.tolist()).gather(ratings.users),
        "item": pl.Series(ratings.item_ids.tolist()).gather(ratings.items),
    }
    if not ratings.implicit:
        columns["rating"] = pl.Series(ratings.values)
    if ratings.weights is not None:
        columns["weight"] = pl.Series(np.asarray(ratings.weights))
    if ratings.times is not None:
        columns["timestamp"] = pl.Series(np.asarray(ratings.times))
    for name, texts in (("title", ratings.titles), ("genres", ratings.genres)):
        if texts is not None:
            columns[name] = pl.Series(texts.tolist(), dtype=pl.String).gather(ratings.items)
    metadata = {
        "cfnade.scale": json.dumps(ratings.scale.values),
        "cfnade.edges": json.dumps(ratings.scale.edges),
        "cfnade.source": json.dumps(ratings.source),
    }
    with atomic_write(path) as file:
        pl.DataFrame(columns).write_parquet(file, metadata=metadata)


def _roles(names: list[str], options: ReadOptions, label: str) -> Roles:
    return choose(_given(names), len(names), options, label)


def _given(names: list[str]) -> list[str] | None:
    """None if columns are only numbered."""
    return None if names == [str(i) for i in range(len(names))] else names


def _needed(names: list[str], roles: Roles) -> list[int]:
    return sorted({*roles.positions(), *roles.texts(names).values()})


def _columns(
    columns: dict[str, pl.Series],
    names: list[str],
    roles: Roles,
    label: str,
    scale: Scale | None = None,
    source: str = "",
    first: int = 0,
) -> Columns:
    def where(row: int) -> str:
        return f"{label}, row {first + row}" if label else f"row {first + row}"

    def placed(position: int) -> tuple[pl.Series, Where]:
        name = names[position]
        return columns[name], lambda row: f"{where(row)}, column {name!r}"

    if not len(columns[names[roles.user]]):
        raise DataError(f"{label or 'the frame'}: has columns but no rows; there are no ratings")
    described = {kind: names[place] for kind, place in roles.texts(names).items()}
    return columns_of(
        roles,
        placed,
        typed_ids,
        {kind: columns[name] for kind, name in described.items() if name in columns},
        scale=scale,
        source=source,
        where=where,
        assumed="" if scale == INTERACTIONS else roles.notice(_given(names)),
    )


def _own_metadata(own: dict[str, str], label: str) -> tuple[Scale | None, str]:
    if "cfnade.scale" not in own:
        return None, ""
    try:
        edges, values = json.loads(own["cfnade.edges"]), json.loads(own["cfnade.scale"])
        return Scale.saved(values, edges), str(json.loads(own["cfnade.source"]))
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"{label}: its cfnade.* metadata is damaged ({error}); write it again, or name the "
            "columns (user=, item=, rating=) to read it as any table"
        ) from error


def _column(table: nw.DataFrame[Any], position: int, name: str) -> pl.Series:
    """One column of any library's frame as polars has it."""
    column = table[:, position]
    native = column.to_native()
    try:
        if isinstance(native, pl.Series):
            return native
        if column.implementation.is_pyarrow():
            return pl.Series(native)
        gaps = column.is_null().to_list()
        if not any(gaps) and column.dtype.is_numeric() and column.dtype != nw.Decimal:
            return pl.Series(column.to_numpy())
        if not any(gaps) and column.dtype == nw.Datetime:
            return pl.Series(column.dt.timestamp("us").to_numpy()).cast(pl.Datetime("us"))
        values = zip(column.to_list(), gaps, strict=True)
        return pl.Series([None if gap else value for value, gap in values])
    except (*POLARS_ERRORS, TypeError, ValueError, ArithmeticError) as error:
        raise mixed_types(name, str(error)) from error


def mixed_types(name: str, reason: str) -> DataError:
    """Of a column that polars cannot hold as one."""
    return DataError(
        f"column {name!r} holds values of several types or of one that cannot be read "
        f"({reason[:120]}); convert it to numbers or strings"
    )
