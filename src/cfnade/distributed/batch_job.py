"""A job that answers for everybody in a folder of tables: piece by piece, on any engine.

Every piece of the input becomes one Parquet file, whole or not there, so that a job stopped
anywhere is completed by the same command, and nobody ever holds all answers. `_SUCCESS` comes last.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from cfnade.checkpoint.folder import resolve_file
from cfnade.checkpoint.manifest import MANIFEST
from cfnade.data.readers.files import table_kind
from cfnade.data.readers.tables import PARQUET
from cfnade.data.readers.text import POLARS_ERRORS
from cfnade.distributed.batch_inference import BatchPredictor, predictor_of
from cfnade.distributed.engines import TaskEngine
from cfnade.distributed.input_files import list_files
from cfnade.distributed.tallies import added, tally_of
from cfnade.exceptions import PredictionError
from cfnade.utils.files import atomic_write, write_text
from cfnade.utils.safetensors_io import digest_file

log = logging.getLogger(__name__)

EVERYBODY = "everybody"
"""In place of a folder: all users of the model."""
PIECE = {"recommend": 1 << 14, "predict": 1 << 18, "evaluate": 1 << 18}
"""People, or cells, that one task answers for."""
JOB, SUCCESS = "job.json", "_SUCCESS"
_TALLY = "cfnade.tally"


def predict_to_parquet(
    model: str | Path,
    people: Sequence[str | Path] | str,
    out: str | Path,
    engine: TaskEngine,
    what: str = "recommend",
    *,
    force: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """Answer for everybody in these files; go on with a job left in `out`. Returns what came."""
    folder = Path(out).absolute()
    scorer = BatchPredictor(model, what, **options)
    job = _job(scorer, people)
    _take_place(folder, job, force=force)
    numbers = range(len(job["pieces"]))
    left = [number for number in numbers if not _is_whole(part_file(folder, number))]
    if left:
        (folder / SUCCESS).unlink(missing_ok=True)
    if len(left) < len(numbers):
        log.info("%s: %d of %d parts are there", out, len(numbers) - len(left), len(numbers))
    started = time.perf_counter()
    engine.each(predict_part, [(str(folder), number) for number in left])
    seconds = time.perf_counter() - started
    told = _summary(folder, job) | {"seconds": round(seconds, 1), "parts": len(numbers)}
    write_text(folder / SUCCESS, json.dumps(told, indent=1) + "\n")
    return told


def predict_part(folder: str, number: int) -> None:
    """One part of the answer."""
    job = json.loads((Path(folder) / JOB).read_text())
    scorer = BatchPredictor(job["model"], job["what"], **job["options"])
    path, first, last = job["pieces"][number]
    try:
        answer = scorer.answer(_rows(job["model"], path, first, last))
    except PredictionError as error:
        raise PredictionError(f"{path}, rows {first}–{last - 1}: {error}") from error
    metadata = {}
    if job["what"] == "evaluate":
        metadata[_TALLY] = json.dumps(tally_of(answer, predictor_of(job["model"]).scale))
    with atomic_write(part_file(Path(folder), number)) as file:
        answer.write_parquet(file, metadata=metadata)


def part_file(folder: Path, number: int) -> Path:
    return folder / f"part-{number:06d}.parquet"


def _is_whole(part: Path) -> bool:
    """Whether a part of the answer is there and can be read; a damaged one is made again."""
    try:
        pl.read_parquet(part)
    except FileNotFoundError:
        return False
    except (*POLARS_ERRORS, OSError, ValueError) as error:
        log.warning("%s: is damaged (%s), so it is made again", part, error)
        return False
    return True


def _job(scorer: BatchPredictor, people: Sequence[str | Path] | str) -> dict[str, Any]:
    """Everything that the answers depend on."""
    step = PIECE[scorer.what]
    model = Path(scorer.model)
    users = len(predictor_of(scorer.model).users.table)  # loads it: a fault is told before all else
    if people == EVERYBODY:
        if scorer.what != "recommend":
            raise PredictionError(f"{EVERYBODY} is for lists; give the cells to {scorer.what}")
        inputs, counts = [], {EVERYBODY: users}
    else:
        files = list(list_files(people))
        inputs = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
        counts = {str(file): int(_lazy(file).select(pl.len()).collect().item()) for file in files}
    pieces = [
        [path, first, min(first + step, count)]
        for path, count in counts.items()
        for first in range(0, count, step)
    ]
    return {
        "what": scorer.what,
        "model": scorer.model,
        "digest": digest_file(resolve_file(model, MANIFEST)),
        "options": scorer.options,
        "inputs": [list(entry) for entry in inputs],
        "pieces": pieces,
    }


def _take_place(folder: Path, job: dict[str, Any], *, force: bool) -> None:
    """Refuse a folder that holds something else."""
    file = folder / JOB
    if file.exists():
        different = _difference(file, job)
        if not different and not force:
            return
        if not force and any(folder.glob("part-*.parquet")):  # else it failed at its start
            raise PredictionError(
                f"{folder}: holds answers of another job ({different}); give --overwrite to "
                "replace them, or another folder with --out"
            )
        for path in (folder / SUCCESS, *folder.glob("part-*.parquet")):
            path.unlink(missing_ok=True)
    elif any(file.name[0] != "." for file in folder.glob("*")):
        raise PredictionError(f"{folder}: is not empty; give an empty folder with --out")
    write_text(file, json.dumps(job, indent=1) + "\n")


def _difference(file: Path, job: dict[str, Any]) -> str:
    """What tells the job that a folder was begun with from this one; empty if nothing does."""
    try:
        old = json.loads(file.read_text(encoding="utf-8"))
        names = [name for name in job if old.get(name) != json.loads(json.dumps(job[name]))]
    except (ValueError, AttributeError):
        return f"{JOB} is damaged"
    return f"{names[0]} differs" if names else ""


def _lazy(file: Path) -> pl.LazyFrame:
    with file.open("rb") as opened:
        is_parquet = table_kind(opened.read(4)) == PARQUET
    try:
        lazy = pl.scan_parquet(file) if is_parquet else pl.scan_csv(file, infer_schema=False)
        lazy.collect_schema()
        return lazy
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise PredictionError(f"{file}: cannot be read as Parquet or CSV: {reason}") from error


def _rows(model: str, path: str, first: int, last: int) -> pl.DataFrame:
    if path == EVERYBODY:
        return pl.DataFrame({"user": predictor_of(model).users.table[first:last].tolist()})
    return _lazy(Path(path)).slice(first, last - first).collect()


def _summary(folder: Path, job: dict[str, Any]) -> dict[str, Any]:
    """What all parts hold together, without reading them."""
    files = [part_file(folder, number) for number in range(len(job["pieces"]))]
    rows = sum(int(pl.scan_parquet(file).select(pl.len()).collect().item()) for file in files)
    told = {"what": job["what"], "rows": rows}
    return told | {"scores": added(list(_tallies(files)))} if job["what"] == "evaluate" else told


def _tallies(files: Sequence[Path]) -> Iterator[dict[str, Any]]:
    for file in files:
        yield json.loads(pl.read_parquet_metadata(file)[_TALLY])
