"""`recommend`, `predict` and `evaluate` for more people than one answer holds, on an engine."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from cfnade.cli.folder import own_folder
from cfnade.exceptions import PredictionError


def is_large(questions: Path, running: dict[str, Any]) -> bool:
    """Whether a job was asked for: by an engine, or by a folder of questions."""
    return running["engine"] is not None or questions.is_dir()


def refuse(**given: Any) -> None:
    """What a job for many people does not take."""
    for name, value in given.items():
        if value is not None and value is not False and value != []:
            raise PredictionError(f"{name} (={value!r}) is not for many people; leave it out")


def refuse_alone(out: Path | None, running: dict[str, Any]) -> None:
    """What makes sense for many people only."""
    if out is not None or any(running.values()):
        raise PredictionError(
            "--out, --engine, --workers and --force are for many people; say who with --people"
        )


def answer_all(
    model: Path, what: str, questions: str, out: Path | None, running: dict[str, Any], **how: Any
) -> dict[str, Any]:
    """Run the job and say what came of it."""
    from cfnade.distributed.batch_job import EVERYBODY, SUCCESS, predict_to_parquet
    from cfnade.distributed.engines import open_engine

    if out is None:
        raise PredictionError("answers for many people go into a folder; name it with --out")
    if out.is_file():
        raise PredictionError(f"{out}: is a file; answers for many people go into a folder")
    people: Any = questions if questions == EVERYBODY else [questions]
    busy, force = "is writing to it; wait until it ends", bool(running["force"])
    with (
        own_folder(out, ".lock", PredictionError, busy),
        closing(open_engine(running["engine"] or "local", running["workers"])) as engine,
    ):
        told = predict_to_parquet(model, people, out, engine, what, force=force, **how)
    words = f"{told['rows']:,} rows in {told['parts']} Parquet files, {told['seconds']:.1f} s"
    print(f"{out}: {words}; {SUCCESS} says it is whole", file=sys.stderr)
    return told
