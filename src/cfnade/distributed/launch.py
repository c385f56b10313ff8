"""Start the ranks of a training, which torchrun, Ray or Spark made, and end them together.

A worker of Ray's TorchTrainer or Spark's TorchDistributor runs the function that torchrun's ranks
run, and writes its result to a file for the process of the command. Lost workers are restarted.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from cfnade.distributed.backends import ray_session, spark_session
from cfnade.distributed.gloo import RankLostError, process_group
from cfnade.distributed.process_group import ProcessGroup
from cfnade.distributed.state import exists
from cfnade.exceptions import CfnadeError, TrainingError

RankResult = dict[str, str]
"""The summary of rank 0, an "error", or the error that another rank was "lost"."""


class ReportedElsewhereError(TrainingError):
    """Another rank has reported the error."""


class RankJob(NamedTuple):
    """What every rank runs. It can be pickled, for workers on other machines."""

    function: Callable[[ProcessGroup, bool], str | None]
    """Trains as one rank; receives whether to resume. Rank 0 returns its summary."""
    out: Path
    """The output folder, an absolute path."""
    resume: bool
    timeout: float
    """Seconds that a rank waits for the others."""


def run_rank(job: RankJob) -> str | None:
    """Run the job as one of the ranks. Rank 0 returns its summary."""
    with process_group(job.timeout) as group, _first_error_only(group, job.out):
        restarted = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0" and exists(job.out)
        return job.function(group, job.resume or restarted)


def broadcast_result(group: ProcessGroup, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return what `work` returns on rank 0 on every rank, or raise its error."""
    message: dict[str, Any] = {}
    if group.rank == 0:
        try:
            message = {"result": work()}
        except CfnadeError as error:
            message = {"error": str(error)}
    message = group.broadcast(message)
    if "error" in message:
        raise TrainingError(message["error"])
    result: dict[str, Any] = message["result"]
    return result


@contextmanager
def _first_error_only(group: ProcessGroup, out: Path) -> Iterator[None]:
    """Let one rank report an error, and add how to continue if others are lost."""

    def terminate(_: int, __: object) -> None:
        raise RankLostError(
            f"rank {group.rank} of {group.size}: terminated, because another rank failed"
        )

    is_main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, terminate) if group.size > 1 and is_main else None
    try:
        yield
    except (CfnadeError, OSError) as error:
        if not group.first_to_report():
            raise ReportedElsewhereError(str(error)) from error
        if not isinstance(error, RankLostError):
            raise
        raise TrainingError(f"{error}; {_advice(out)}") from error
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)


def _advice(out: Path) -> str:
    if exists(out):
        return "the last saved state is intact: continue with the same command and --resume"
    return "nothing was saved yet: start again"


# -- clusters -------------------------------------------------------------------------------------


class _LostError(Exception):
    """The cluster lost workers; with its message."""


def run_on_cluster(job: RankJob, engine: str, n_workers: int, max_restarts: int) -> str:
    """Run the job on the workers of a cluster and return the summary."""
    session = ray_session if engine == "ray" else spark_session
    launch = _launch_on_ray if engine == "ray" else _launch_on_spark
    with session(n_workers):
        for attempt in range(max_restarts + 1):
            attempted = job._replace(resume=job.resume or attempt > 0)
            folder_beside = job.out.parent  # which all workers see
            try:
                with tempfile.TemporaryDirectory(prefix=".results-", dir=folder_beside) as folder:
                    results = launch(attempted, n_workers, Path(folder))
                break
            except _LostError as error:
                if attempt == max_restarts:
                    reason = str(error).strip().splitlines()[-1][:200]
                    raise TrainingError(
                        f"{engine} lost workers ({reason}); {_advice(job.out)}"
                    ) from error
                print(f"{engine} lost workers; restarting", file=sys.stderr)
    for kind in ("error", "lost"):  # the first error is why others lost a rank
        for result in results:
            if kind in result:
                raise TrainingError(result[kind])
    return results[0]["summary"]


def write_result(job: RankJob, file: Path) -> None:
    """Run the job in a worker and write the result: Spark returns that of rank 0 only."""
    result: RankResult = {}
    try:
        result = {"summary": run_rank(job) or ""}
    except ReportedElsewhereError:
        pass
    except CfnadeError as error:
        kind = "lost" if isinstance(error.__cause__, RankLostError) else "error"
        result = {kind: str(error)}
    file.write_text(json.dumps(result))


def _read_results(folder: Path, n_workers: int) -> list[RankResult]:
    return [json.loads((folder / str(rank)).read_text()) for rank in range(n_workers)]


def _launch_on_ray(job: RankJob, n_workers: int, folder: Path) -> list[RankResult]:
    from ray.exceptions import RayError
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    def loop(config: dict[str, Any]) -> None:
        import ray.train

        write_result(config["job"], folder / str(ray.train.get_context().get_world_rank()))
        ray.train.report({})

    trainer = TorchTrainer(
        loop,
        train_loop_config={"job": job},
        torch_config=TorchConfig(backend="gloo", timeout_s=int(job.timeout)),
        scaling_config=ScalingConfig(num_workers=n_workers, use_gpu=False),
        run_config=RunConfig(storage_path=str(folder)),
    )
    try:
        trainer.fit()
    except (RayError, RuntimeError) as error:
        raise _LostError(str(error) or repr(error)) from error
    return _read_results(folder, n_workers)


def _launch_on_spark(job: RankJob, n_workers: int, folder: Path) -> list[RankResult]:
    from pyspark.ml.torch.distributor import TorchDistributor
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    assert session is not None
    local = str(session.sparkContext.master).startswith("local")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    distributor = TorchDistributor(num_processes=n_workers, local_mode=local, use_gpu=False)
    try:
        distributor.run(_write_spark_result, job, str(folder))
    except Exception as error:  # Spark has no common class for lost processes
        raise _LostError(str(error) or repr(error)) from error
    return _read_results(folder, n_workers)


def _write_spark_result(job: RankJob, folder: str) -> None:
    write_result(job, Path(folder) / os.environ["RANK"])
