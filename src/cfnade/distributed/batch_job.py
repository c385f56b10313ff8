"""Predict for all users of a model, or for tables of any size, into a folder of Parquet files.

On this machine each piece of the input becomes one file, so that an interrupted job continues with
the missing ones. On Ray and Spark the engine reads, retries lost tasks and writes; an interrupted
job starts again. `_SUCCESS` is written last.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, NamedTuple

import polars as pl

from cfnade.checkpoint.folder import resolve_file
from cfnade.checkpoint.manifest import MANIFEST
from cfnade.data.readers import table_kind
from cfnade.data.readers.tables import PARQUET
from cfnade.data.readers.text import POLARS_ERRORS
from cfnade.distributed.backends import check_engine, ray_session, spark_session
from cfnade.distributed.batch_inference import BatchPredictor, Task, load_predictor
from cfnade.distributed.input_files import file_stamps, job_difference, list_files
from cfnade.evaluation.evaluate import BUCKET_BOUNDS, Bucket
from cfnade.exceptions import CfnadeError, PredictionError
from cfnade.utils.files import atomic_write, write_text
from cfnade.utils.safetensors_io import digest_file

log = logging.getLogger(__name__)

ROWS_PER_FILE = {"recommend": 1 << 14, "predict": 1 << 18, "evaluate": 1 << 18}
"""Users, or pairs, whose results are one file, and what a task of a cluster holds."""
ALL = "all"
"""In place of inputs: all users of the model."""
JOB, SUCCESS = "job.json", "_SUCCESS"

Summary = dict[str, Any]


class Table(NamedTuple):
    """An input as Parquet."""

    name: str
    """Path of the input for messages."""
    file: Path
    n_rows: int


def predict_to_parquet(
    model: str | Path,
    inputs: Sequence[str | Path] | Literal["all"],
    out: str | Path,
    task: Task = "recommend",
    *,
    engine: Literal["local", "ray", "spark"] = "local",
    n_workers: int | None = None,
    overwrite: bool = False,
    **options: Any,
) -> Summary:
    """Predict for every row of the inputs and write the results to a folder.

    Args:
        model: Folder of a saved model.
        inputs: Parquet or CSV files, or folders of them, with the columns that `BatchPredictor`
            documents; "all": the users of the model.
        out: Folder of the results. A rerun of the same job completes it.
        task: What to do.
        engine: What runs the job. Ray and Spark must see model, inputs and out under these paths.
        n_workers: Processes; by default 1 on this machine, and all of a cluster.
        overwrite: Replace the results of another job, or of the same.
        options: Those of `CFNADE.recommend`, for the task recommend.

    Returns:
        Numbers of rows and files, seconds, and for the task evaluate the scores.
    """
    check_engine(engine, n_workers)
    folder, predictor = Path(out).absolute(), BatchPredictor(model, task, **options)
    load_predictor(predictor.model)  # its errors come first
    job = _describe_job(predictor, inputs, engine)
    is_continued = _check_folder(folder, job, overwrite=overwrite)
    if is_continued and engine != "local" and (folder / SUCCESS).exists():
        summary: Summary = json.loads((folder / SUCCESS).read_text(encoding="utf-8"))
        return summary
    folder.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    with TemporaryDirectory(prefix=".input-", dir=folder) as temporary:
        tables = _read_inputs(predictor, job["inputs"], Path(temporary))
        if not is_continued or engine != "local":
            _clear(folder)
            write_text(folder / JOB, json.dumps(job, indent=1) + "\n")
        run = {"local": _run_here, "ray": _run_on_ray, "spark": _run_on_spark}[engine]
        if tables:
            with _worker_errors(engine):
                run(predictor, tables, folder, n_workers)
    summary = {"task": task, **_summarize(folder, task)}
    summary["seconds"] = round(time.perf_counter() - started, 1)
    write_text(folder / SUCCESS, json.dumps(summary, indent=1) + "\n")
    return summary


# -- the job and its folder -----------------------------------------------------------------------


def _describe_job(predictor: BatchPredictor, inputs: Any, engine: str) -> dict[str, Any]:
    """Return everything that the results depend on."""
    files: Any = ALL
    if inputs != ALL:
        files = file_stamps(list_files(inputs))
    elif predictor.task != "recommend":
        raise PredictionError(f"{ALL!r} is for recommend; give the pairs to {predictor.task}")
    return {
        "task": predictor.task,
        "model": predictor.model,
        "digest": digest_file(resolve_file(Path(predictor.model), MANIFEST)),
        "options": predictor.options,
        "inputs": files,
        "engine": engine,
        "rows_per_file": ROWS_PER_FILE[predictor.task],
    }


def _check_folder(folder: Path, job: dict[str, Any], *, overwrite: bool) -> bool:
    """Return whether a folder holds this job; raise if it holds anything else."""
    if not (folder / JOB).exists():
        if any(file.name[0] != "." for file in folder.glob("*")):
            raise PredictionError(f"{folder}: is not empty; give an empty folder with --out")
        return False
    try:
        saved = json.loads((folder / JOB).read_text(encoding="utf-8"))
        difference = job_difference(saved, job)
    except (ValueError, LookupError, TypeError, AttributeError):
        difference = f"{JOB} is damaged"
    # Without files the other job failed at its start.
    if difference and not overwrite and any(folder.glob("*.parquet")):
        raise PredictionError(
            f"{folder}: holds results of another job ({difference}); give --overwrite to replace "
            "them, or another folder with --out"
        )
    return not difference and not overwrite


def _clear(folder: Path) -> None:
    for file in (folder / SUCCESS, *folder.glob("*.parquet")):
        file.unlink(missing_ok=True)


# -- inputs ---------------------------------------------------------------------------------------


def _read_inputs(predictor: BatchPredictor, inputs: Any, temporary: Path) -> list[Table]:
    """Return the inputs as Parquet files, those that are not empty; CSV files are converted."""
    if inputs == ALL:
        users = load_predictor(predictor.model).users.table.tolist()
        pl.DataFrame({"user": users}).write_parquet(temporary / "users.parquet")
        return [Table(ALL, temporary / "users.parquet", len(users))] if users else []
    tables = []
    for number, (name, *_) in enumerate(inputs):
        file = Path(name)
        with file.open("rb") as opened:
            is_parquet = table_kind(opened.read(4)) == PARQUET
        try:
            if not is_parquet:
                file = temporary / f"{number:06d}.parquet"
                pl.scan_csv(name, infer_schema=False).sink_parquet(file)
            n_rows: int = pl.scan_parquet(file).select(pl.len()).collect().item()
        except (*POLARS_ERRORS, OSError) as error:
            reason = str(error).splitlines()[0]
            raise PredictionError(f"{name}: cannot be read as Parquet or CSV: {reason}") from error
        tables += [Table(name, file, n_rows)] if n_rows else []
    return tables


# -- engines --------------------------------------------------------------------------------------


def _run_here(
    predictor: BatchPredictor, tables: list[Table], folder: Path, n_workers: int | None
) -> None:
    """Write each piece of the input to a file of its own, unless the file exists."""
    size = ROWS_PER_FILE[predictor.task]
    pieces = [(table, first) for table in tables for first in range(0, table.n_rows, size)]
    files = [folder / f"part-{number:06d}.parquet" for number in range(len(pieces))]
    missing = [number for number, file in enumerate(files) if not _is_readable(file)]
    if missing:
        (folder / SUCCESS).unlink(missing_ok=True)
    if len(missing) < len(files):
        log.info("%s: %d of %d files exist", folder, len(files) - len(missing), len(files))
    write = partial(_write_file, predictor, size)
    work = [pieces[number] for number in missing], [files[number] for number in missing]
    if n_workers is None or n_workers == 1:
        list(map(write, *work))
        return
    try:
        with ProcessPoolExecutor(n_workers, get_context("spawn")) as pool:
            list(pool.map(write, *work))
    except BrokenProcessPool:
        raise CfnadeError(
            "a worker was killed (out of memory?); give the command again to continue, with fewer "
            "--workers if memory was short"
        ) from None


def _write_file(predictor: BatchPredictor, size: int, piece: tuple[Table, int], file: Path) -> None:
    table, first = piece
    try:
        result = predictor(pl.scan_parquet(table.file).slice(first, size).collect())
    except PredictionError as error:
        last = min(first + size, table.n_rows) - 1
        raise PredictionError(f"{table.name}, rows {first}–{last}: {error}") from error
    with atomic_write(file) as opened:
        result.write_parquet(opened)


def _is_readable(file: Path) -> bool:
    try:
        pl.read_parquet(file)
    except FileNotFoundError:
        return False
    except (*POLARS_ERRORS, OSError, ValueError) as error:
        log.warning("%s: is damaged (%s) and is written again", file, error)
        return False
    return True


def _run_on_ray(
    predictor: BatchPredictor, tables: list[Table], folder: Path, n_workers: int | None
) -> None:
    with ray_session(n_workers) as ray:
        n_cpus = int(ray.cluster_resources().get("CPU", 2))
        # With an actor on every processor, reading and writing would wait forever.
        n_actors = min(n_workers or n_cpus, max(1, n_cpus - 1))
        # Actors end with the process that started them, here that of the task. Those of a failed
        # job would otherwise keep their processors, and the next job would wait for these forever.
        run = ray.remote(num_cpus=0, max_calls=1, max_retries=0)(_map_on_ray)
        files = [str(table.file) for table in tables]
        ray.get(run.remote(predictor, files, folder, ROWS_PER_FILE[predictor.task], n_actors))


def _map_on_ray(
    predictor: BatchPredictor, files: list[str], folder: Path, n_rows: int, n_actors: int
) -> None:
    from ray.data import ActorPoolStrategy, DataContext, read_parquet

    DataContext.get_current().enable_progress_bars = False
    # Otherwise Ray makes one block of many small files.
    rows = read_parquet(files).repartition(target_num_rows_per_block=n_rows)
    rows.map_batches(
        type(predictor),
        fn_constructor_args=[predictor.model, predictor.task],
        fn_constructor_kwargs=predictor.options,
        batch_format="pyarrow",
        batch_size=None,
        compute=ActorPoolStrategy(size=n_actors),
    ).write_parquet(str(folder))


def _run_on_spark(
    predictor: BatchPredictor, tables: list[Table], folder: Path, n_workers: int | None
) -> None:
    n_rows = sum(table.n_rows for table in tables)
    with spark_session(n_workers) as session:
        rows = session.read.parquet(*(str(table.file) for table in tables))
        schema = predictor.spark_schema(dict(rows.dtypes).get("user", "string"))
        rows = rows.repartition(-(-n_rows // ROWS_PER_FILE[predictor.task]))
        results = rows.mapInArrow(predictor.map_arrow, schema).write.mode("append")
        # _SUCCESS is written when the summary is known.
        results.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false").parquet(
            str(folder)
        )


@contextmanager
def _worker_errors(engine: str) -> Iterator[None]:
    """Raise errors of workers, which Ray and Spark wrap in pages of text, as one sentence."""
    try:
        yield
    except CfnadeError:
        raise
    except Exception as error:  # the engines have no common class
        text = str(error)
        match = re.search(r"cfnade\.exceptions\.\w+: (.+)", text)
        reason = f"{engine}: {text.strip().splitlines()[-1]}" if match is None else match[1]
        raise PredictionError(reason) from error


# -- results --------------------------------------------------------------------------------------


def _summarize(folder: Path, task: str) -> Summary:
    files = sorted(folder.glob("*.parquet"))
    n_rows = sum(int(pl.scan_parquet(file).select(pl.len()).collect().item()) for file in files)
    summary: Summary = {"rows": n_rows, "parts": len(files)}
    return summary | ({"scores": _scores(files)} if task == "evaluate" else {})


def _scores(files: list[Path]) -> dict[str, Any]:
    """Return the means of all errors, in fields as those of RatingScores."""
    if not files:
        return {"n": 0}
    rows = pl.scan_parquet(files)
    count, rmse = pl.len().alias("n"), pl.col("squared_error").mean().sqrt().alias("rmse")
    is_unseen = (pl.col("n_user_ratings") == 0) | (pl.col("n_item_ratings") == 0)
    means = [pl.col(name).mean() for name in ("nll", "rps")]
    means.append(pl.col("absolute_error").mean().alias("mae_of_medians"))
    totals = rows.select(count, rmse, *means, is_unseen.sum().alias("unseen_ratings"))
    scores = totals.collect(engine="streaming").row(0, named=True)
    highs = [*(low - 1 for low in BUCKET_BOUNDS[1:]), None]
    for axis in ("user", "item"):
        buckets = []
        for low, high in zip(BUCKET_BOUNDS, highs, strict=True):
            is_inside = pl.col(f"n_{axis}_ratings").is_between(
                low, float("inf") if high is None else high
            )
            row = rows.filter(is_inside).select(count, rmse).collect().row(0)
            buckets.append(Bucket(low, high, *row))
        scores[f"by_{axis}"] = [{"known": str(bucket)} | asdict(bucket) for bucket in buckets]
    return scores
