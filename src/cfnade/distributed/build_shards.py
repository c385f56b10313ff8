"""Partition ratings by column with SQL, on DuckDB or Spark; the result is Parquet files.

    work/chunks/00000-0000.parquet    rows of the inputs: user_id, item_id, rating, weight, source
    work/chunks/00000.json            the file is read: its chunks and what they hold
    work/tables.duckdb                users, items, cells (Spark: folders work/users …)
    work/parts                        partitions that are not complete

Each file is read once and each statement runs once: a job that stopped continues at the first file
or statement without a result.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import polars as pl
from annotated_types import Ge, Le, Lt

from cfnade.data.dataset import Axis
from cfnade.data.load import LoadOptions
from cfnade.data.raw_table import RawTable
from cfnade.data.scale import INTERACTIONS, Scale, bin_scale, infer_scale, parse_scale
from cfnade.data.validate import Duplicates, keep_positive
from cfnade.distributed.input_files import (
    check_file,
    file_stamps,
    iter_tables,
    job_difference,
    list_files,
)
from cfnade.distributed.shards import AXES, MANIFEST, PARTS, SPLITS, ShardedRatings, manifest_of
from cfnade.distributed.sql import SqlEngine, open_sql
from cfnade.exceptions import DataError
from cfnade.utils.files import atomic_write, write_text
from cfnade.utils.validation import options

WORK, JOB = "work", "job.json"
_MOST = 2**31 - 1
_HASHES = 16**8  # values of the first eight hexadecimal digits of an MD5 sum

Note = dict[str, Any]


@options(DataError, "shard option")
class ShardOptions:
    """What ratings mean, and how they are split."""

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
        LoadOptions(
            scale=self.scale,
            bins=self.bins,
            duplicates=self.duplicates,
            min_rating=self.min_rating,
        )

    @property
    def sides(self) -> tuple[Axis, ...]:
        return tuple(axis for axis in AXES if self.side in (axis, "both"))


def build_shards(
    inputs: Sequence[str | Path],
    out: str | Path,
    shard_options: ShardOptions | None = None,
    loading: LoadOptions | None = None,
    *,
    engine: str = "local",
    n_workers: int | None = None,
    memory_limit: str = "2GB",
    overwrite: bool = False,
    log: Callable[[str], None] = lambda _: None,
) -> ShardedRatings:
    """Write ratings as Parquet partitions by column.

    Args:
        inputs: Parquet, Arrow, text or zip files, or folders of them.
        out: The folder to write. An interrupted job in it continues.
        shard_options: Meaning and split of the ratings.
        loading: How files are read.
        engine: "local" (DuckDB on this machine) or "spark".
        n_workers: Threads of DuckDB, tasks of Spark at a time; by default all processors.
        memory_limit: Memory that DuckDB may use; larger tables go to disk.
        overwrite: Replace shards and unfinished jobs in the folder.
        log: Receives a line about each thing that the reader skipped or assumed.

    Raises:
        DataError: An input is invalid, or the folder holds something else.
    """
    shard_options, loading = shard_options or ShardOptions(), loading or LoadOptions()
    folder = Path(out).absolute()
    files = list(list_files(inputs))
    for file in files:  # before anything is removed
        check_file(file, loading)
    job = _job(files, shard_options, loading)
    if overwrite:
        clear(folder)
    if (folder / MANIFEST).exists():
        shards = ShardedRatings.open(folder)
        _check_same_job(folder, shards.job, job)
        log(f"{out}: is complete")
        return shards
    _begin(folder, job)
    with closing(open_sql(engine, folder / WORK, n_workers, memory_limit)) as sql:
        entries = _write(sql, folder, files, shard_options, loading, log)
    manifest = manifest_of(folder, sides=shard_options.sides, job=job, **entries)
    write_text(folder / MANIFEST, json.dumps(manifest, indent=1) + "\n")
    shutil.rmtree(folder / WORK)
    return ShardedRatings.open(folder)


def _write(
    sql: SqlEngine,
    folder: Path,
    files: Sequence[Path],
    shard_options: ShardOptions,
    loading: LoadOptions,
    log: Callable[[str], None],
) -> Note:
    """Read the files, run the statements and write all files; return entries of the manifest."""
    tasks = [
        (folder / WORK, number, file, shard_options, loading) for number, file in enumerate(files)
    ]
    notes = sql.read_files(_read_file, tasks)
    chunks = [chunk for note in notes for chunk in note["chunks"]]
    assumptions = [chunk["assumed"] for chunk in chunks if chunk["assumed"]]
    for line in [*(line for note in notes for line in note["skipped"]), *assumptions[:1]]:
        log(line)
    if not chunks and shard_options.min_rating is not None:
        raise DataError(
            f"min_rating={shard_options.min_rating:g}: no rating is as high; give a lower one"
        )
    if not chunks:
        raise DataError(f"{files[0]} …: no ratings in {len(files)} files")
    facts = _facts(chunks, shard_options, sql)
    _create_tables(sql, facts, shard_options)
    counts = dict(sql.rows("SELECT split, count(*) FROM cells GROUP BY split"))
    sizes = {split: int(counts.get(number, 0)) for number, split in enumerate(SPLITS)}
    if not sizes["train"]:
        raise DataError(
            f"no rating is left to train on of {sum(sizes.values()):,}; give smaller valid= "
            "and test="
        )
    weighted = facts.implicit and bool(sql.rows("SELECT 1 FROM cells WHERE weight <> 1 LIMIT 1"))
    for axis in shard_options.sides:
        _write_parts(sql, folder, axis, weighted)
    for axis in AXES:
        _publish(sql, folder / "ids" / axis, f"SELECT idx, id FROM {axis}s ORDER BY idx")
    return {
        "sizes": sizes,
        "counts": {axis: int(sql.rows(f"SELECT count(*) FROM {axis}s")[0][0]) for axis in AXES},
        "scale": facts.scale,
        "weighted": weighted,
    }


# -- the folder -----------------------------------------------------------------------------------


def _job(files: Sequence[Path], shard_options: ShardOptions, loading: LoadOptions) -> Note:
    """Return all that the result depends on."""
    return {
        "options": asdict(shard_options),
        "loading": asdict(loading),
        "inputs": file_stamps(files),
    }


def _begin(folder: Path, job: Note) -> None:
    """Record the job in an empty folder, or raise unless the folder holds the same job."""
    file = folder / WORK / JOB
    if file.exists():
        try:
            earlier = json.loads(file.read_text())
        except ValueError as error:
            raise DataError(f"{file}: is damaged; give --overwrite to start again") from error
        if any((folder / WORK / "chunks").glob("*.json")):
            _check_same_job(folder, earlier, job)
            return
        clear(folder)  # it failed before it wrote anything
    elif any(file.name[0] != "." for file in folder.glob("*")):
        raise DataError(
            f"{folder}: is not empty and holds no shards; give an empty folder with --out"
        )
    write_text(file, json.dumps(job) + "\n")


def _check_same_job(folder: Path, earlier: Note, job: Note) -> None:
    if difference := job_difference(earlier, job):
        raise DataError(
            f"{folder}: holds another job: {difference}; give --overwrite to replace it, or "
            "another folder with --out"
        )


def clear(folder: Path) -> None:
    """Remove what a job writes and nothing else; the manifest first."""
    (folder / MANIFEST).unlink(missing_ok=True)
    for name in (WORK, "ids", *AXES):
        shutil.rmtree(folder / name, ignore_errors=True)


# -- reading --------------------------------------------------------------------------------------


def _read_file(
    work: Path, number: int, file: Path, options: ShardOptions, loading: LoadOptions
) -> Note:
    """Write the rows of a file as chunks; return what they hold, now or from an earlier run."""
    note_file = work / "chunks" / f"{number:05d}.json"
    if note_file.exists():
        return dict(json.loads(note_file.read_text()))
    scale = None if options.scale is None else parse_scale(options.scale)
    chunks, skipped, position = [], [], number << 40
    for block, (table, description) in enumerate(iter_tables(file, loading)):
        if description:
            skipped.append(f"{file}: {description}")
        checked = _check_block(table, options, scale)
        if checked is None:
            continue
        name, frame = f"{number:05d}-{block:04d}.parquet", checked.frame
        with atomic_write(work / "chunks" / name) as target:
            _plain_columns(frame, position).write_parquet(target, compression="lz4")
        position += len(checked)
        chunk: Note = {"name": name, "file": str(file), "assumed": table.assumed}
        chunk["kinds"] = {axis: "text" if _is_text(frame[axis]) else "integer" for axis in AXES}
        chunk["scale"] = table.scale and [table.scale.values, table.scale.edges]
        chunk |= {"implicit": checked.implicit, "weighted": "weight" in frame.columns}
        chunks.append(chunk)
    note: Note = {"chunks": chunks, "skipped": skipped}
    write_text(note_file, json.dumps(note))
    return note


def _is_text(ids: pl.Series) -> bool:
    return not ids.dtype.is_integer()


def _check_block(table: RawTable, options: ShardOptions, scale: Scale | None) -> RawTable | None:
    """Return the rows that count; None if there are none."""
    if not table.implicit:
        values = table.frame["rating"].to_numpy()
        if scale is not None:
            _, fits = scale.levels_of(values)
            if not fits.all():
                row = int(np.argmin(fits))
                raise DataError(
                    f"{table.locate(row)}: rating {values[row]:g} is off the scale {scale}; give "
                    "the scale that this data uses with scale="
                )
        if options.min_rating is not None and not (values >= options.min_rating).any():
            return None
    if options.min_rating is not None:
        table = keep_positive(table, options.min_rating)
    return table if len(table) else None


def _plain_columns(frame: pl.DataFrame, first: int) -> pl.DataFrame:
    """Return the columns that the statements use; `source` counts rows from `first`."""
    ids = {
        f"{axis}_id": pl.col(axis).cast(pl.String if _is_text(frame[axis]) else pl.Int64)
        for axis in AXES
    }
    numbers = {
        name: (pl.col(name) if name in frame.columns else pl.lit(1.0)).cast(pl.Float64)
        for name in ("rating", "weight")
    }
    source = pl.int_range(first, first + len(frame), dtype=pl.Int64)
    return frame.select(**ids, **numbers, source=source)


# -- what all files hold together -----------------------------------------------------------------


class _Facts(NamedTuple):
    """What the statements depend on."""

    relation: str
    """SQL for the rows of all files."""
    scale: Scale
    implicit: bool
    has_weights: bool


def _facts(chunks: Sequence[Note], options: ShardOptions, sql: SqlEngine) -> _Facts:
    implicit = _agreed(chunks, "implicit", _MIXED_RATINGS)
    has_weights = _agreed(chunks, "weighted", _MIXED_WEIGHTS) and implicit
    relation = sql.ratings(chunks)
    scale = INTERACTIONS if implicit else _find_scale(chunks, relation, options, sql)
    return _Facts(relation, scale, implicit, has_weights)


def _find_scale(
    chunks: Sequence[Note], relation: str, options: ShardOptions, sql: SqlEngine
) -> Scale:
    """Return the scale as given, as all files state it, or the grid that holds all ratings."""
    if options.scale is not None:
        return parse_scale(options.scale)
    if options.bins is not None:
        low, high = sql.rows(f"SELECT min(rating), max(rating) FROM {relation}")[0]
        return bin_scale(options.bins, float(low), float(high))
    stated = {repr(chunk["scale"]): chunk["scale"] for chunk in chunks}
    if len(stated) == 1 and (saved := next(iter(stated.values()))) is not None:
        return Scale.saved(*saved)
    distinct = sql.rows(f"SELECT DISTINCT rating FROM {relation}")
    return infer_scale(np.array([value for (value,) in distinct], np.float64))


_MIXED_RATINGS = (
    "{without} has ratings and {with_} has none; name the column with rating=, or take all as "
    "interactions with implicit=True"
)
_MIXED_WEIGHTS = (
    "{with_} has a column of weights and {without} has none; name it with weight=, or leave it out "
    "with weight=False"
)


def _agreed(chunks: Sequence[Note], name: str, message: str) -> bool:
    """Return the value of a flag that all chunks must share."""
    having = [chunk["file"] for chunk in chunks if chunk[name]]
    lacking = [chunk["file"] for chunk in chunks if not chunk[name]]
    if having and lacking:
        raise DataError(message.format(with_=having[0], without=lacking[0]))
    return bool(having)


# -- statements -----------------------------------------------------------------------------------


def _create_tables(sql: SqlEngine, facts: _Facts, options: ShardOptions) -> None:
    for axis in AXES:
        sql.number_ids(f"{axis}s", f"SELECT DISTINCT {axis}_id AS id FROM {facts.relation}")
        count = int(sql.rows(f"SELECT count(*) FROM {axis}s")[0][0])
        if count > _MOST:
            raise DataError(f"{count:,} {axis}s: at most {_MOST:,} can be numbered")
    sql.create("cells", _cells(facts, options))
    if not facts.implicit and options.duplicates == "error":
        _refuse_duplicates(sql)


def _cells(facts: _Facts, options: ShardOptions) -> str:
    """Return the statement that makes each (user, item) pair one row."""
    cuts = _cuts(facts.scale)
    level = _steps("r.rating", cuts)
    values = facts.scale.array()
    settled = {
        "error": "min(level)",
        "first": "min_by(level, source)",
        "last": "max_by(level, source)",
        "mean": _steps(f"avg({_lookup('level', values)})", cuts),
    }["error" if facts.implicit else options.duplicates]
    test, valid = (
        min(round(share * _HASHES), _HASHES - 1)
        for share in (options.test, options.test + (1 - options.test) * options.valid)
    )
    digest = f"substr(md5(concat_ws(':', '{options.seed}', r.user_id, r.item_id)), 1, 8)"
    split = f"CASE WHEN {digest} < '{test:08x}' THEN 2 WHEN {digest} < '{valid:08x}' THEN 1 ELSE 0"
    rows = f"""
        SELECT CAST(u.idx AS INT) AS user_idx, CAST(i.idx AS INT) AS item_idx,
          CAST({level} AS SMALLINT) AS level, CAST({split} END AS SMALLINT) AS split,
          r.weight, r.source
        FROM {facts.relation} r JOIN users u ON r.user_id = u.id JOIN items i ON r.item_id = i.id"""
    more = ""
    if facts.implicit:
        weight = "sum(weight)" if facts.has_weights else "count(*)"
        more = f", CAST({weight} AS FLOAT) AS weight"
    elif options.duplicates == "error":
        more = ", max(level) AS highest"
    return f"""
        SELECT user_idx, item_idx, CAST({settled} AS SMALLINT) AS level, min(split) AS split{more}
        FROM ({rows}) pairs GROUP BY user_idx, item_idx"""


def _cuts(scale: Scale) -> list[float]:
    """Return the ratings from which each level but the lowest holds, as Scale.nearest has them."""
    grid = scale.array()
    return list(((grid[1:] + grid[:-1]) / 2).tolist() if scale.edges is None else scale.edges)


def _steps(value: str, cuts: Sequence[float]) -> str:
    """Return SQL for how many of the ascending cuts a value reaches."""
    if not cuts:
        return "0"
    whens = [
        f"WHEN {value} >= CAST({cut!r} AS DOUBLE) THEN {level}"
        for level, cut in reversed(list(enumerate(cuts, 1)))
    ]
    return f"CASE {' '.join(whens)} ELSE 0 END"


def _lookup(level: str, values: Any) -> str:
    whens = [f"WHEN {k} THEN CAST({float(v)!r} AS DOUBLE)" for k, v in enumerate(values)]
    return f"CASE {level} {' '.join(whens)} END"


def _refuse_duplicates(sql: SqlEngine) -> None:
    """Raise if a pair has different ratings; identical ones count once."""
    differ = "FROM cells WHERE level <> highest"
    repeated = sql.rows(
        f"SELECT u.id, i.id FROM (SELECT user_idx, item_idx {differ} LIMIT 1) c "
        "JOIN users u ON c.user_idx = u.idx JOIN items i ON c.item_idx = i.idx"
    )
    if repeated:
        (user, item), count = repeated[0], int(sql.rows(f"SELECT count(*) {differ}")[0][0])
        raise DataError(
            f"user {user} rated item {item} again; {count:,} such pairs. Choose what counts with "
            'duplicates="last"; first and mean are the others'
        )


def _write_parts(sql: SqlEngine, folder: Path, axis: Axis, weighted: bool) -> None:
    """Write the partitions whose rows are users or items: part p has the columns c % 64 == p."""
    row, column = f"{axis}_idx", "item_idx" if axis == "user" else "user_idx"
    weight = ", weight" if weighted else ""
    names = " ".join(f"WHEN {number} THEN '{split}'" for number, split in enumerate(SPLITS))
    query = f"""
        SELECT {row} AS row_idx, {column} AS column_idx, level{weight},
          CASE split {names} END AS split, {column} % {PARTS} AS part,
          CAST(row_number() OVER (PARTITION BY {row}, split ORDER BY {column}) - 1 AS INT)
            AS position_in_row
        FROM cells"""
    _publish(sql, folder / axis, query, ("split", "part"))


def _publish(sql: SqlEngine, folder: Path, query: str, partitions: Sequence[str] = ()) -> None:
    """Write a query's rows as a folder of Parquet files that is complete or not there."""
    if folder.exists():
        return
    unfinished = sql.work / "parts" / folder.name
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.parent.mkdir(parents=True, exist_ok=True)
    sql.write(query, unfinished, partitions)
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished.rename(folder)
