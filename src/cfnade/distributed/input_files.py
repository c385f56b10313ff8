"""Read ratings files that are larger than memory as blocks of validated rows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from cfnade.data.load import LoadOptions
from cfnade.data.raw_table import RawTable
from cfnade.data.readers import foreign_format, is_document, ratings_file, table_kind
from cfnade.data.readers.files import open_source
from cfnade.data.readers.tables import ARROW, PARQUET, read_columnar
from cfnade.data.readers.text import POLARS_ERRORS
from cfnade.data.readers.text_blocks import check_encoding, read_blocks
from cfnade.exceptions import DataError

ROWS = 1 << 21
"""Rows of a table that are read at a time."""
BYTES = 1 << 25
"""Bytes of a text that are read at a time."""


def list_files(data: Sequence[str | Path]) -> Iterator[Path]:
    """Yield the files as given, and those of folders by name; each once."""
    seen: set[Path] = set()
    for entry in data:
        path = Path(entry).expanduser()
        if path.is_dir():
            files = sorted(file for file in path.rglob("*") if _is_data(file, path))
            if not files:
                raise DataError(f"{path}: holds no files; give a folder with Parquet or CSV parts")
        elif path.is_file():
            files = [path]
        else:
            raise DataError(f"{path}: there is no such file or folder; check the path")
        for file in files:
            file = file.resolve()
            if file in seen:
                raise DataError(f"{file}: is given twice; give it once")
            seen.add(file)
            yield file


def _is_data(file: Path, folder: Path) -> bool:
    """Return whether a file holds data: engines add _SUCCESS and hidden files."""
    hidden = any(name.startswith(("_", ".")) for name in file.relative_to(folder).parts)
    return file.is_file() and not hidden and not is_document(file.name)


def check_file(file: Path, loading: LoadOptions) -> None:
    """Raise DataError for a file that cannot be read in blocks, before any file is read."""
    source = open_source(file)
    name = ratings_file(source, loading)
    head = source.head(name)
    kind = table_kind(head)
    is_plain = source.plain_path(name) is not None
    if is_plain and kind in (PARQUET, ARROW):
        loading.check_not_text(f"{file}: a {kind} table")
        _count_rows(file, kind)
    elif format_name := kind or foreign_format(head):
        if is_plain:
            raise DataError(f"{file}: this is {format_name}; save the ratings as csv or Parquet")
        raise DataError(
            f"{source.label(name)}: is {format_name}; only text can be read from a compressed file "
            "in blocks: unpack it and give the file"
        )
    elif head:
        check_encoding(source, name, loading)


def iter_tables(file: Path, loading: LoadOptions) -> Iterator[tuple[RawTable, str]]:
    """Yield the rows of a file in blocks, each with a description of the lines it skipped."""
    source = open_source(file)
    name = ratings_file(source, loading)
    kind = table_kind(source.head(name))
    if kind not in (PARQUET, ARROW):
        yield from read_blocks(source, name, loading, BYTES)
        return
    options = replace(loading, time=False)
    count = _count_rows(file, kind)
    for first in range(0, count, ROWS):
        rows = first, min(first + ROWS, count)
        yield read_columnar(file, str(file), kind, options, rows), ""


def _count_rows(file: Path, kind: str) -> int:
    try:
        scan = pl.scan_parquet if kind == PARQUET else pl.scan_ipc
        rows: int = scan(file).select(pl.len()).collect().item()
        return rows
    except (*POLARS_ERRORS, OSError) as error:
        raise DataError(
            f"{file}: cannot be read as a table ({str(error)[:200]}); the file may be truncated or "
            "damaged: fetch or write it again"
        ) from error


# -- jobs -----------------------------------------------------------------------------------------


def file_stamps(files: Iterable[Path]) -> list[list[Any]]:
    """Return names, sizes and times of files: a job that reads changed files is another job."""
    return [[str(file), file.stat().st_size, file.stat().st_mtime_ns] for file in files]


def job_difference(saved: Mapping[str, Any], job: Mapping[str, Any]) -> str:
    """Return in what a job differs from a saved one; empty if it is the same."""
    for name, value in json.loads(json.dumps(job)).items():  # tuples as lists
        before = saved.get(name)
        if name == "inputs" and isinstance(value, list) and isinstance(before, list):
            changed = sorted({tuple(entry) for entry in before} ^ {tuple(e) for e in value})
            if changed:
                return f"{changed[0][0]} is new, gone or changed"
        elif isinstance(value, dict) and isinstance(before, dict):
            if difference := job_difference(before, value):
                return difference
        elif before != value:
            return f"{name} was {before!r} and is {value!r}"
    return ""
