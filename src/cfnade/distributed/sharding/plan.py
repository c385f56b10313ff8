"""The plan of a sharding job: which files are read in which pieces, and how they are understood.

It is made once and kept in the folder, so that workers anywhere and a later run do the same job.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Literal

import polars as pl
from annotated_types import Ge, Le, Lt

from cfnade.data.dataset import Axis
from cfnade.data.load import LoadOptions
from cfnade.data.readers.files import (
    compression_of,
    foreign_format,
    is_document,
    is_spreadsheet,
    open_source,
    ratings_file,
    table_kind,
)
from cfnade.data.readers.tables import ARROW, PARQUET
from cfnade.data.readers.text import POLARS_ERRORS
from cfnade.data.readers.text_blocks import is_whole_stream
from cfnade.data.validate import Duplicates
from cfnade.distributed.sharding.layout import SIDES
from cfnade.exceptions import DataError
from cfnade.utils.files import write_text
from cfnade.utils.text import option
from cfnade.utils.validation import options

ROWS = 1 << 21
"""Rows of a table that a task reads at a time."""
BYTES = 1 << 25
"""The same of text."""

Kind = Literal["table", "text", "stream"]
Input = tuple[str, int, int]


@options(DataError)
class ShardOptions:
    """What ratings mean, and how they are divided."""

    side: Literal["user", "item", "both"] = "both"
    """What rows may be: "user" and "item" halve the space, if one is enough."""
    valid: Annotated[float, Ge(0), Lt(1)] = 0.05
    test: Annotated[float, Ge(0), Lt(1)] = 0.0
    seed: Annotated[int, Ge(0), Le(2**63 - 1)] = 0
    scale: str | None = None
    bins: int | None = None
    duplicates: Duplicates = "error"
    min_rating: float | None = None

    def __post_init__(self) -> None:
        self.meaning()

    @property
    def sides(self) -> tuple[Axis, ...]:
        return tuple(side for side in SIDES if self.side in (side, "both"))

    def meaning(self) -> LoadOptions:
        """What ratings mean, as the reader of one file has it."""
        return LoadOptions(
            scale=self.scale,
            bins=self.bins,
            duplicates=self.duplicates,
            min_rating=self.min_rating,
        )


@dataclass(frozen=True)
class Piece:
    """Rows (of a table) or bytes (of text) first ≤ i < last of a file."""

    path: str
    kind: Kind
    first: int
    last: int
    member: str = ""
    """The file in a zip archive."""


@dataclass(frozen=True)
class ShardPlan:
    """Everything that the result depends on."""

    inputs: tuple[Input, ...]
    """Each file's path, size and time of change: a file that changed makes another job."""
    pieces: tuple[Piece, ...]
    options: ShardOptions
    reading: LoadOptions

    def save(self, path: Path) -> None:
        write_text(path, json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> ShardPlan:
        try:
            told = json.loads(path.read_text())
            return cls(
                tuple((str(a), int(b), int(c)) for a, b, c in told["inputs"]),
                tuple(Piece(**piece) for piece in told["pieces"]),
                ShardOptions(**told["options"]),
                LoadOptions(**told["reading"]),
            )
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise DataError(
                f"{path}: is damaged ({error}); remove its folder and start again"
            ) from error

    def difference(self, other: ShardPlan) -> str:
        """In words what makes another job of it; empty if nothing does."""
        if self.inputs != other.inputs:
            changed = {path for path, _, _ in set(self.inputs) ^ set(other.inputs)}
            return f"{min(changed)} is new, gone or changed"
        for mine, theirs in ((self.options, other.options), (self.reading, other.reading)):
            for field in fields(mine):
                old, new = getattr(mine, field.name), getattr(theirs, field.name)
                if old != new:
                    return f"{field.name} was {old!r} and is {new!r}"
        return ""


def plan_of(data: Sequence[str | Path], options: ShardOptions, reading: LoadOptions) -> ShardPlan:
    """The plan for these files and folders."""
    files = list(files_in(data))
    inputs = tuple(map(as_input, files))
    pieces = tuple(piece for file in files for piece in _pieces(file, reading))
    if not pieces:
        raise DataError(f"{', '.join(map(str, data))}: no ratings in it")
    return ShardPlan(inputs, pieces, options, reading)


def as_input(file: Path) -> Input:
    """What a file is known by."""
    return str(file), file.stat().st_size, file.stat().st_mtime_ns


def files_in(data: Sequence[str | Path]) -> Iterator[Path]:
    """Files as given, those of folders by name; each once."""
    met: set[Path] = set()
    for one in data:
        path = Path(one).expanduser()
        if path.is_dir():
            files = sorted(file for file in path.rglob("*") if _is_part(file, path))
            if not files:
                raise DataError(f"{path}: holds no files; give a folder with Parquet or CSV parts")
        elif path.is_file():
            files = [path]
        else:
            raise DataError(f"{path}: there is no such file or folder; check the path")
        for file in files:
            file = file.resolve()
            if file in met:
                raise DataError(f"{file}: is given twice; give it once")
            met.add(file)
            yield file


def _is_part(file: Path, folder: Path) -> bool:
    """Whether it is data: engines leave _SUCCESS and hidden files beside what they write."""
    hidden = any(name.startswith(("_", ".")) for name in file.relative_to(folder).parts)
    return file.is_file() and not hidden and not is_document(file.name)


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


def _member(archive: Path, reading: LoadOptions) -> str:
    """Return the file of ratings in a zip archive: a text that is read as a stream."""
    source = open_source(archive)
    member = ratings_file(source, reading)
    head = source.head(member)
    kind = table_kind(head)
    kind = foreign_format(head) if kind is None else f"a {kind} table"
    if kind is not None:
        raise DataError(
            f"{source.label(member)}: is {kind}; only text can be read from a zip archive in "
            "pieces: unpack it and give the file"
        )
    is_whole_stream(archive, reading, member)  # which refuses texts that no task can read
    return member


def _pieces(file: Path, reading: LoadOptions) -> Iterator[Piece]:
    path = str(file)
    with file.open("rb") as opened:
        start = opened.read(512)
    size = file.stat().st_size
    kind = table_kind(start)
    if compression_of(file) == "zip" and not is_spreadsheet(file):
        yield Piece(path, "stream", 0, size, _member(file, reading))
    elif kind in (PARQUET, ARROW):
        if names := reading.text_options():
            raise DataError(
                f"{file}: {option(names[0])} is for text, and this is a table; leave it out"
            )
        rows = _count_rows(file, kind)
        yield from (Piece(path, "table", a, min(a + ROWS, rows)) for a in range(0, rows, ROWS))
    elif kind is not None:
        raise DataError(f"{file}: this is {kind}; save the ratings as csv or Parquet")
    elif foreign := foreign_format(start):
        raise DataError(f"{file}: this is {foreign}")
    elif size and is_whole_stream(file, reading):
        yield Piece(path, "stream", 0, size)
    else:
        yield from (Piece(path, "text", a, min(a + BYTES, size)) for a in range(0, size, BYTES))
