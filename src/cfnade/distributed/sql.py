"""What runs the statements of build_shards: DuckDB on this machine, or Spark."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cfnade.exceptions import CfnadeError, DataError
from cfnade.utils.validation import check_choice

Note = dict[str, Any]


class SqlEngine(ABC):
    """Runs statements; tables that exist are not created again."""

    def __init__(self, work: Path) -> None:
        self.work = work

    @abstractmethod
    def read_files(self, read: Callable[..., Note], tasks: Sequence[tuple[Any, ...]]) -> list[Note]:
        """Return read(*task) of every task, in order."""

    @abstractmethod
    def create(self, name: str, query: str) -> None:
        """Create a table from a query, unless it exists."""

    @abstractmethod
    def number_ids(self, name: str, query: str) -> None:
        """Create a table of ids in ascending order with their place `idx`, unless it exists."""

    @abstractmethod
    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""

    @abstractmethod
    def write(self, query: str, folder: Path, partitions: Sequence[str]) -> None:
        """Write the rows of a query as Parquet files into a new folder."""

    @abstractmethod
    def scan(self, files: Sequence[Path]) -> str:
        """Return SQL for the rows of Parquet files."""

    @abstractmethod
    def close(self) -> None:
        """Release what the engine holds."""

    def ratings(self, chunks: Sequence[Note]) -> str:
        """Return SQL for the rows of all chunks; ids become text if they are text in any chunk."""
        groups: dict[tuple[str, str], list[Path]] = {}
        for chunk in chunks:
            kinds = chunk["kinds"]["user"], chunk["kinds"]["item"]
            groups.setdefault(kinds, []).append(self.work / "chunks" / chunk["name"])
        ids = [
            f"CAST({axis}_id AS STRING) AS {axis}_id" if len(set(kinds)) > 1 else f"{axis}_id"
            for axis, kinds in zip(("user", "item"), zip(*groups, strict=True), strict=True)
        ]
        columns = ", ".join([*ids, "rating", "weight", "source"])
        selects = (f"SELECT {columns} FROM {self.scan(files)}" for files in groups.values())
        return f"({' UNION ALL '.join(selects)})"


class DuckDb(SqlEngine):
    """Tables in a file under work/, so that a later run finds them."""

    def __init__(self, work: Path, n_threads: int | None, memory_limit: str) -> None:
        try:
            import duckdb
        except ImportError as error:
            raise CfnadeError(
                f"sharding needs DuckDB ({error}); install it with: pip install 'cfnade[shard]'"
            ) from error
        super().__init__(work)
        self._error = duckdb.Error
        settings: dict[str, str | bool | int | float | list[str]] = {
            "memory_limit": memory_limit,
            "temp_directory": str(work / "spill"),
            "preserve_insertion_order": "false",  # or writing partitions holds all rows
            "partitioned_write_max_open_files": "256",
        }
        if n_threads is not None:
            settings["threads"] = str(n_threads)
        try:
            self._connection = duckdb.connect(work / "tables.duckdb", config=settings)
        except duckdb.Error as error:
            raise DataError(
                f"{work}: DuckDB cannot open its tables ({_first_line(error)}); give --overwrite "
                "to start again"
            ) from error

    def read_files(self, read: Callable[..., Note], tasks: Sequence[tuple[Any, ...]]) -> list[Note]:
        return [read(*task) for task in tasks]

    def create(self, name: str, query: str) -> None:
        self._run(f"CREATE TABLE IF NOT EXISTS {name} AS {query}")

    def number_ids(self, name: str, query: str) -> None:
        numbered = f"SELECT id, row_number() OVER (ORDER BY id) - 1 AS idx FROM ({query})"
        self.create(name, numbered)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return list(self._run(query).fetchall())

    def write(self, query: str, folder: Path, partitions: Sequence[str]) -> None:
        parts = f", PARTITION_BY ({', '.join(partitions)})" if partitions else ""
        target = folder if partitions else folder / "data.parquet"
        target.parent.mkdir(parents=True, exist_ok=True)
        self._run(
            f"COPY ({query}) TO {_quoted(target)} (FORMAT parquet, COMPRESSION snappy{parts})"
        )

    def scan(self, files: Sequence[Path]) -> str:
        return f"read_parquet([{', '.join(map(_quoted, files))}])"

    def close(self) -> None:
        self._connection.close()

    def _run(self, statement: str) -> Any:
        try:
            return self._connection.execute(statement)
        except self._error as error:
            raise DataError(
                f"{self.work}: DuckDB failed ({_first_line(error)}); give the command again to "
                "continue, or --overwrite to start again"
            ) from error


class Spark(SqlEngine):
    """Tables as Parquet folders under work/, which all workers see."""

    def __init__(self, work: Path, n_workers: int | None) -> None:
        from cfnade.distributed.backends import spark_session

        super().__init__(work)
        self._exit = spark_session(n_workers)
        self._session: Any = self._exit.__enter__()

    def read_files(self, read: Callable[..., Note], tasks: Sequence[tuple[Any, ...]]) -> list[Note]:
        def attempt(task: tuple[Any, ...]) -> Note:
            try:
                return read(*task)
            except CfnadeError as error:  # which Spark would wrap in a page of its own
                return {"error": str(error)}

        context = self._session.sparkContext
        notes: list[Note] = context.parallelize(tasks, len(tasks)).map(attempt).collect()
        for note in notes:
            if "error" in note:
                raise DataError(note["error"])
        return notes

    def create(self, name: str, query: str) -> None:
        self._create(name, lambda: self._session.sql(query))

    def number_ids(self, name: str, query: str) -> None:
        def numbered() -> Any:
            ids = self._session.sql(query)
            pairs = ids.orderBy("id").rdd.zipWithIndex().map(lambda pair: (pair[0][0], pair[1]))
            return self._session.createDataFrame(
                pairs, f"id {ids.schema['id'].dataType.simpleString()}, idx bigint"
            )

        self._create(name, numbered)  # a window over all ids would run in one task

    def _create(self, name: str, frame: Callable[[], Any]) -> None:
        folder = self.work / name
        if not (folder / "_SUCCESS").exists():
            frame().write.mode("overwrite").parquet(str(folder))
        self._session.read.parquet(str(folder)).createOrReplaceTempView(name)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self._session.sql(query).collect()]

    def write(self, query: str, folder: Path, partitions: Sequence[str]) -> None:
        frame = self._session.sql(query)
        if partitions:
            frame = frame.repartition(*partitions)
        frame.write.partitionBy(*partitions).mode("overwrite").parquet(str(folder))

    def scan(self, files: Sequence[Path]) -> str:
        name = f"chunks_{files[0].stem.replace('-', '_')}"
        self._session.read.parquet(*map(str, files)).createOrReplaceTempView(name)
        return name

    def close(self) -> None:
        self._exit.__exit__(None, None, None)


def open_sql(
    engine: str, work: Path, n_workers: int | None = None, memory_limit: str = "2GB"
) -> SqlEngine:
    """Return DuckDB for local, or Spark."""
    check_choice("engine", engine, ("local", "spark"), error=DataError)
    if engine == "spark":
        return Spark(work, n_workers)
    return DuckDb(work, n_workers, memory_limit)


def _quoted(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:300]
