"""Ranks as workers of a cluster: Ray's TorchTrainer or Spark's TorchDistributor.

Workers call the function that torchrun's ranks call, and write their result to a file for the
process of the command. Lost workers are restarted.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cfnade.cli.train_distributed import ReportedElsewhereError, Run, train_rank
from cfnade.distributed.backends import ray_session, spark_session
from cfnade.exceptions import CfnadeError, TrainingError

RankResult = dict[str, str]
"""The summary of rank 0 or an error; empty for other ranks."""


class _LostError(Exception):
    """The cluster lost workers; with its message."""


def train_on_cluster(run: Run, engine: str, workers: int, max_restarts: int) -> None:
    """Train on the workers of a cluster and print the summary."""
    session = ray_session if engine == "ray" else spark_session
    launch: Callable[[Run, int], RankResult] = _on_ray if engine == "ray" else _on_spark
    with session(workers):
        for attempt in range(max_restarts + 1):
            try:
                result = launch(run._replace(resume=run.resume or attempt > 0), workers)
                break
            except _LostError as error:
                if attempt == max_restarts:
                    raise TrainingError(_lost(run.out, engine, error)) from error
                print(f"{engine} lost workers; restarting", file=sys.stderr)
    if "error" in result:
        raise TrainingError(result["error"])
    print(result["summary"])


def _lost(out: Path, engine: str, error: _LostError) -> str:
    from cfnade.distributed.state import exists

    advice = "nothing was saved yet: start again"
    if exists(out):
        advice = "the last saved state is intact: continue with the same command and --resume"
    return f"{engine} lost workers ({str(error).strip().splitlines()[-1][:200]}); {advice}"


def run_rank(encoded: str) -> RankResult:
    """Train as one rank, in a worker."""
    fields = json.loads(encoded)
    run = Run(**(fields | {"out": Path(fields["out"])}))
    try:
        return {"summary": train_rank(run) or ""}
    except ReportedElsewhereError:
        return {}
    except CfnadeError as error:
        return {"error": str(error)}


def _encode(run: Run) -> str:
    """Return the options as JSON with absolute paths, for other machines."""
    return json.dumps(run._asdict() | {"out": str(run.out.resolve())}, default=str)


def _on_ray(run: Run, workers: int) -> RankResult:
    from ray.exceptions import RayError
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    def loop(config: dict[str, Any]) -> None:
        import ray.train

        result = run_rank(config["run"])
        path = Path(config["results"]) / str(ray.train.get_context().get_world_rank())
        path.write_text(json.dumps(result))
        ray.train.report({})

    with _results_folder(run.out) as folder:
        trainer = TorchTrainer(
            loop,
            train_loop_config={"run": _encode(run), "results": folder},
            torch_config=TorchConfig(backend="gloo", timeout_s=int(run.timeout)),
            scaling_config=ScalingConfig(num_workers=workers, use_gpu=False),
            run_config=RunConfig(storage_path=folder),
        )
        try:
            trainer.fit()
        except (RayError, RuntimeError) as error:
            raise _LostError(str(error) or repr(error)) from error
        paths = [Path(folder) / str(rank) for rank in range(workers)]
        results = [json.loads(path.read_text()) for path in paths]
    return _combined(results)


def _on_spark(run: Run, workers: int) -> RankResult:
    from pyspark.ml.torch.distributor import TorchDistributor
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    assert session is not None
    local = str(session.sparkContext.master).startswith("local")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    distributor = TorchDistributor(num_processes=workers, local_mode=local, use_gpu=False)
    with _results_folder(run.out) as folder:
        try:
            distributor.run(write_result, _encode(run), folder)
        except Exception as error:  # Spark has no common class for lost processes
            raise _LostError(str(error) or repr(error)) from error
        results = [json.loads(path.read_text()) for path in sorted(Path(folder).iterdir())]
    return _combined(results)


def write_result(encoded: str, folder: str) -> None:
    """Train as one rank and write its result to a file: Spark returns that of rank 0 only."""
    (Path(folder) / os.environ["RANK"]).write_text(json.dumps(run_rank(encoded)))


def _results_folder(out: Path) -> tempfile.TemporaryDirectory[str]:
    """Return a folder that all workers see: it is beside the output folder."""
    return tempfile.TemporaryDirectory(prefix=".results-", dir=out.resolve().parent)


def _combined(results: list[RankResult]) -> RankResult:
    """Return the first error, or the result of rank 0."""
    return next((result for result in results if "error" in result), results[0])
