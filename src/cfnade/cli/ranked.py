"""`cfnade train SHARDS` on several ranks, whoever started them: torchrun, Ray or Spark.

Rank 0 has the folder and the last word: it reads the job and checks the place, and the others do
as it says. Of an error one rank tells, the first that met one.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cfnade.cli.at_work import compile_kernels, interruptible, next_command
from cfnade.cli.folder import begin_run, end_run, own_folder, refuse_finished, refuse_overwriting
from cfnade.cli.job import Job, earlier_job, new_job
from cfnade.exceptions import CfnadeError, TrainingError

if TYPE_CHECKING:
    from cfnade.distributed.shards import ShardedRatings


class Launch(NamedTuple):
    """What a rank is told: the arguments of the command."""

    asked: Job
    out: Path
    resume: bool
    force: bool
    save_every: float
    timeout: float


class SaidElsewhereError(TrainingError):
    """Another rank has told what is wrong."""


def launch(given: Launch, engine: str | None, workers: int | None, restarts: int) -> None:
    """Train on this rank, or start an engine's workers that do."""
    if engine is not None:
        from cfnade.cli.workers import on_workers

        on_workers(given, engine, workers, restarts)
        return
    if workers is not None or restarts:
        name = "--max-restarts" if workers is None else "--workers"
        raise TrainingError(f"{name} is for --engine ray or spark here; torchrun has its own")
    try:
        train_rank(given)
    except SaidElsewhereError:
        sys.exit(1)


def train_rank(given: Launch) -> str | None:
    """What every rank does. Returns what rank 0 has to say in the end."""
    from cfnade.distributed.gloo import process_group

    with process_group(given.timeout) as group, _said_once(group, given.out), ExitStack() as held:
        job = _agreed(group, lambda: _begun(given, held))
        restarted = job.pop("restarted")
        return _train(group, given, job, restarted)


def _begun(given: Launch, held: ExitStack) -> Job:
    """The job, once nothing speaks against it; other runs are kept out of the folder."""
    from cfnade.distributed.load_partition import verify_model
    from cfnade.distributed.shards import ShardedRatings
    from cfnade.distributed.state import exists

    out, asked = given.out, given.asked
    held.enter_context(own_folder(out))
    again = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0" and exists(out)
    if given.resume or again:
        job = earlier_job(out, asked)
        if not exists(out):
            refuse_finished(out, dict(job))
        job.pop("finished", None)
    else:
        job = _named(new_job(asked))
        refuse_overwriting(out, force=given.force)
    if not ShardedRatings.is_one(job["data"]):
        raise TrainingError(
            f"{job['data']}: ranks train on shards; make them with: cfnade shard {job['data']} "
            "--out shards"
        )
    if job["from"]:
        verify_model(Path(job["from"]))
    if job["side"] == "both" and job["without_context"]:
        raise TrainingError("--without-context: a model of both sides reads the ratings of items")
    if job["seeds"] > 1 or "," in job["side"]:
        raise TrainingError("several ranks train one member; leave out --seeds, and name one side")
    return job | {"restarted": bool(given.resume or again)}


def _named(job: Job) -> Job:
    """Where nothing is said of the model: the usual one of users."""
    if job["side"] != "auto":
        return job
    print("side user; --side item is the other one that ranks can train", file=sys.stderr)
    blank: Job = {"model": {}, "training": {}, "recipe": None, "side": "user", "minutes": None}
    kept = {name: job["training"][name] for name in ("seed",)}
    return new_job(job | blank | {"training": kept})


def _train(group: Any, given: Launch, job: Job, resume: bool) -> str | None:
    from cfnade.cli.progress import TrainingView
    from cfnade.components import component_names, kernel_groups
    from cfnade.config import TrainingConfig
    from cfnade.distributed import state as rank_state
    from cfnade.distributed.shards import ShardedRatings
    from cfnade.distributed.train import train_distributed

    out, first = given.out, group.rank == 0
    shards, settings = ShardedRatings.open(job["data"]), TrainingConfig.from_dict(job["training"])
    names = component_names(job["side"], ridge=job["model"].get("ridge", 0))
    if first:  # the others find them compiled, on the same machine
        print(f"{shards!r} on {group.size} ranks", file=sys.stderr)
        lists = ("implicit",) if job["lists"] or len(shards.scale) == 1 else ()
        compile_kernels(*kernel_groups(names), "distributed", *lists)
    group.barrier()
    done = rank_state.history(out) if resume and first else []
    resume = group.any_rank(first and resume and rank_state.exists(out))
    if not resume:
        rank_state.forget(out)
    with ExitStack() as shown:
        view = None
        if first:
            begin = (lambda: None) if resume else lambda: begin_run(out, job)
            view = TrainingView([job["side"]], [settings.epochs], out, done, begin)
            shown.enter_context(view)
        outcome = train_distributed(
            group,
            shards,
            out,
            side=job["side"],
            architecture=job["model"],
            settings=settings,
            lists=bool(job["lists"]),
            start=Path(job["from"]) if job["from"] else None,
            threads=job["threads"],
            saving=rank_state.RankStateStore(out, given.save_every, resume, group),
            callbacks=[] if view is None else [view],
            stop=shown.enter_context(interruptible()),
            facts={"job": job},
            with_context=not job["without_context"],
        )
    if not outcome["stopped"] and not job["keep_state"]:
        rank_state.forget(out)
    return _ended(out, job, shards, outcome) if first else None


def _ended(out: Path, job: Job, shards: ShardedRatings, found: dict[str, Any]) -> str:
    if not found["stopped"]:
        end_run(out, job)
    best = f"epoch {found['best_epoch']}"
    if "lists" in found and found["lists"]["ndcg"] is not None:
        print(f"lists: validation NDCG@100 {found['lists']['ndcg']:.4f}")
    if found["valid"]:
        best += f", validation RMSE {found['valid']['rmse']:.4f}"
        best += f" (plain means {found['valid']['means_rmse']:.4f})"
    text = f"{out}: model of {best}, {found['seconds']:.1f} s of training"
    print(text)
    if found["diverged"]:
        raise TrainingError(f"{found['diverged']}. The best model before that is kept in {out}")
    if found["stopped"]:
        print("stopped; go on with the same command and --resume")
    else:
        users = shards.ids("user", np.zeros(1, np.int32))
        print("next:", next_command(out, shards.sizes["test"], users[0]))
    return text


# -- one word for all ----------------------------------------------------------------------------


def _agreed(group: Any, work: Callable[[], Job]) -> Job:
    """What rank 0 makes of it, or its error, on every rank."""
    told: dict[str, Any] = {}
    if group.rank == 0:
        try:
            told = {"answer": work()}
        except CfnadeError as error:
            told = {"error": str(error)}
    told = json.loads(json.dumps(group.broadcast(told), default=str))
    if "error" in told:
        raise TrainingError(told["error"])
    answer: Job = told["answer"]
    return answer


@contextmanager
def _said_once(group: Any, out: Path) -> Iterator[None]:
    """One rank tells what went wrong, and how to go on if others are gone."""
    from cfnade.distributed.gloo import RankLostError
    from cfnade.distributed.state import exists

    def ended(_: int, __: object) -> None:
        raise RankLostError(
            f"rank {group.rank} of {group.size}: ended by its launcher, as another rank failed"
        )

    main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, ended) if group.size > 1 and main else None
    try:
        yield
    except (CfnadeError, OSError) as error:
        if not group.first_to_report():
            raise SaidElsewhereError(str(error)) from error
        if not isinstance(error, RankLostError):
            raise
        how = "nothing was saved yet: start again"
        if exists(out):
            how = "the last saved state is whole: go on with the same command and --resume"
        raise TrainingError(f"{error}; {how}") from error
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)
