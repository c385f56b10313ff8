"""GlooGroup as workers of an engine: Ray's TorchTrainer or Spark's TorchDistributor.

Each worker calls the same function that torchrun's ranks run. What ranks have to say comes back to
the process that was asked; workers that are lost are started again as often as was asked for.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from annotated_types import Ge

from cfnade.cli.ranked import Launch, SaidElsewhereError, train_rank
from cfnade.distributed.engines import open_engine
from cfnade.exceptions import CfnadeError, TrainingError
from cfnade.utils.validation import check_choice, check_scalar

Told = dict[str, str]
"""What rank 0 said in the end, or an error; nothing of a rank that was silent."""


class _LostError(Exception):
    """The engine lost workers; its own words."""


def on_workers(given: Launch, engine: str, workers: int | None, restarts: int) -> None:
    """Train on so many workers of an engine, and say how it ended."""
    check_choice("engine", engine, ("ray", "spark"), error=TrainingError)
    count = check_scalar(
        "workers", 2 if workers is None else workers, int, Ge(1), error=TrainingError
    )
    run: Callable[[Launch, int], Told] = {"ray": _on_ray, "spark": _on_spark}[engine]
    running = open_engine(engine, count)
    try:
        for attempt in range(restarts + 1):
            try:
                told = run(given._replace(resume=given.resume or attempt > 0), count)
                break
            except _LostError as error:
                if attempt == restarts:
                    raise TrainingError(_lost(given.out, engine, error)) from error
                print(f"{engine} lost workers; starting again", file=sys.stderr)
    finally:
        running.close()
    if "error" in told:
        raise TrainingError(told["error"])
    print(told["said"])


def _lost(out: Path, engine: str, error: _LostError) -> str:
    from cfnade.distributed.state import exists

    how = "nothing was saved yet: start again"
    if exists(out):
        how = "the last saved state is whole: go on with the same command and --resume"
    return f"{engine} lost workers ({str(error).strip().splitlines()[-1][:200]}); {how}"


def told_by(described: str) -> Told:
    """What a worker does: the part of one rank."""
    fields = json.loads(described)
    launch = Launch(**(fields | {"out": Path(fields["out"])}))
    try:
        return {"said": train_rank(launch) or ""}
    except SaidElsewhereError:
        return {}
    except CfnadeError as error:
        return {"error": str(error)}


def _described(given: Launch) -> str:
    """As another machine reads it: paths are whole."""
    return json.dumps(given._asdict() | {"out": str(given.out.resolve())}, default=str)


def _on_ray(given: Launch, workers: int) -> Told:
    from ray.exceptions import RayError
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    def loop(config: dict[str, Any]) -> None:
        import ray.train

        told = told_by(config["given"])
        path = Path(config["answers"]) / str(ray.train.get_context().get_world_rank())
        path.write_text(json.dumps(told))
        ray.train.report({})

    with _answers(given.out) as answers:
        trainer = TorchTrainer(
            loop,
            train_loop_config={"given": _described(given), "answers": answers},
            torch_config=TorchConfig(backend="gloo", timeout_s=int(given.timeout)),
            scaling_config=ScalingConfig(num_workers=workers, use_gpu=False),
            run_config=RunConfig(storage_path=answers),
        )
        try:
            trainer.fit()
        except (RayError, RuntimeError) as error:
            raise _LostError(str(error) or repr(error)) from error
        told = [json.loads((Path(answers) / str(rank)).read_text()) for rank in range(workers)]
    return _together(told)


def _on_spark(given: Launch, workers: int) -> Told:
    from pyspark.ml.torch.distributor import TorchDistributor
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    assert session is not None
    local = str(session.sparkContext.master).startswith("local")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    distributor = TorchDistributor(num_processes=workers, local_mode=local, use_gpu=False)
    with _answers(given.out) as answers:
        try:
            distributor.run(tell, _described(given), answers)
        except Exception as error:  # whatever Spark makes of a process that died
            raise _LostError(str(error) or repr(error)) from error
        told = [json.loads(path.read_text()) for path in sorted(Path(answers).iterdir())]
    return _together(told)


def tell(described: str, answers: str) -> None:
    """The same, kept for the process that was asked: Spark brings it rank 0's words alone."""
    (Path(answers) / os.environ["RANK"]).write_text(json.dumps(told_by(described)))


def _answers(out: Path) -> tempfile.TemporaryDirectory[str]:
    """A folder that all workers see, as they see the one that the model goes to."""
    return tempfile.TemporaryDirectory(prefix=".answers-", dir=out.resolve().parent)


def _together(told: list[Told]) -> Told:
    """The first error, or what rank 0 said."""
    errors = [one for one in told if "error" in one]
    return errors[0] if errors else told[0]
