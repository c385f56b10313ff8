"""`cfnade train-distributed`: training on several ranks, started by torchrun, Ray or Spark.

Rank 0 reads the configuration and locks the folder; the other ranks receive its result. The first
rank with an error reports it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer

from cfnade.cli import options
from cfnade.cli.process import compile_kernels, interruptible, next_command
from cfnade.exceptions import CfnadeError, TrainingError

if TYPE_CHECKING:
    from cfnade.cli.run_config import RunConfig
    from cfnade.distributed.shards import ShardedRatings
    from cfnade.training.plan import TrainingPlan

_PANEL = "Ranks"


def train_distributed(
    ctx: typer.Context,
    data: Annotated[
        str | None,
        typer.Argument(
            help="Folder of shards (cfnade data shard).", metavar="SHARDS", show_default=False
        ),
    ] = None,
    *,
    out: options.ModelFolder,
    overwrite: options.Overwrite = False,
    save_every: options.SaveEvery = 30.0,
    without_context: options.WithoutContext = False,
    keep_state: options.KeepState = False,
    engine: Annotated[
        Literal["ray", "spark"] | None,
        typer.Option(
            "--engine",
            metavar="NAME",
            help="ray or spark starts the ranks.  [default: torchrun]",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            metavar="N",
            min=1,
            help="Ranks on the cluster.  [default: 2]",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    max_restarts: Annotated[
        int,
        typer.Option(
            "--max-restarts",
            metavar="N",
            min=0,
            help="Restarts after lost workers.",
            rich_help_panel=_PANEL,
        ),
    ] = 0,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout",
            metavar="SECONDS",
            min=0.001,
            help="Time a rank waits for others.",
            rich_help_panel=_PANEL,
        ),
    ] = 600.0,
    side: Annotated[
        str | None,
        typer.Option(
            "--side",
            metavar="SIDE",
            help="user, item or both.  [default: user]",
            rich_help_panel="Model",
        ),
    ] = None,
    learn_interactions: options.LearnInteractions = None,
    recipe: options.RecipeName = None,
    ridge: options.Ridge = None,
    hidden: options.Hidden = None,
    factors: options.Factors = None,
    ordinal_weight: options.OrdinalWeight = None,
    epochs: options.Epochs = None,
    learning_rate: options.LearningRate = None,
    weight_decay: options.WeightDecay = None,
    batch_rows: options.BatchRows = None,
    patience: options.Patience = None,
    refit: options.Refit = False,
    n_seeds: options.Seeds = None,
    seed: options.Seed = None,
    init_model: options.InitModel = None,
    resume: options.Resume = False,
    n_threads: options.TrainThreads = None,
) -> None:
    """Train on shards with several processes or machines.

    \b
      torchrun --nproc-per-node 2 -m cfnade train-distributed shards --out model
      cfnade train-distributed shards --engine ray --workers 4 --out model
      torchrun --nproc-per-node 2 -m cfnade train-distributed --resume --out model
    """
    from cfnade.cli.run_config import run_options

    run = Run(run_options(ctx), out, resume, overwrite, save_every, timeout)
    if engine is not None:
        from cfnade.cli.workers import train_on_cluster

        train_on_cluster(run, engine, workers or 2, max_restarts)
        return
    if workers is not None or max_restarts:
        name = "--max-restarts" if workers is None else "--workers"
        raise TrainingError(f"{name} needs --engine; torchrun has options of its own")
    try:
        train_rank(run)
    except ReportedElsewhereError:
        sys.exit(1)


class Run(NamedTuple):
    """The options of the command, for every rank."""

    cli_options: dict[str, Any]
    """Options of the training run, as in `run_config`."""
    out: Path
    resume: bool
    overwrite: bool
    save_every: float
    timeout: float


class ReportedElsewhereError(TrainingError):
    """Another rank has reported the error."""


def train_rank(run: Run) -> str | None:
    """Train as one of the ranks. Rank 0 returns its summary."""
    from cfnade.cli.run_config import from_json
    from cfnade.distributed.gloo import process_group

    with (
        process_group(run.timeout) as group,
        _first_error_only(group, run.out),
        ExitStack() as stack,
    ):
        answer = _broadcast(group, lambda: _begin(run, stack))
        config = from_json(answer["config"], run.out)
        return _train(group, run, config, answer["resume"])


def _begin(run: Run, stack: ExitStack) -> dict[str, Any]:
    """Check the options and lock the folder, on rank 0. Returns the configuration."""
    from cfnade import checkpoint
    from cfnade.cli import run_config
    from cfnade.cli.output_dir import locked_output_dir, require_replaceable, require_unfinished
    from cfnade.distributed.shards import ShardedRatings
    from cfnade.distributed.state import exists
    from cfnade.distributed.train import check_plan

    out = run.out
    stack.enter_context(locked_output_dir(out))
    restarted = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0" and exists(out)
    resume = run.resume or restarted
    if resume:
        config = run_config.resume(out, run.cli_options)
        if not exists(out):
            require_unfinished(out)
    else:
        config = run_config.resolve({"side": "user"} | run.cli_options)
        require_replaceable(out, overwrite=run.overwrite)
    if not ShardedRatings.is_one(config.data):
        raise TrainingError(
            f"{config.data}: is not a folder of shards; make one with: cfnade data shard "
            f"{config.data} --out shards"
        )
    if config.init_model:
        checkpoint.load(config.init_model)  # its errors come before the other ranks start
    check_plan(_plan(config))
    return {"config": config.to_json(), "resume": resume}


def _plan(config: RunConfig) -> TrainingPlan:
    from cfnade.training.plan import plan_side

    return plan_side(
        config.side or "user", config.model, config.training_config(), n_seeds=config.n_seeds
    )


def _train(group: Any, run: Run, config: RunConfig, resume: bool) -> str | None:
    from cfnade import checkpoint
    from cfnade.cli.output_dir import begin_run
    from cfnade.components.new_member import kernel_groups
    from cfnade.distributed import state as rank_state
    from cfnade.distributed.shards import ShardedRatings
    from cfnade.distributed.train import check_plan
    from cfnade.distributed.train import train_distributed as train_on_ranks
    from cfnade.training.callbacks import Callback, HistoryCallback
    from cfnade.training.options import RunOptions
    from cfnade.training.progress import ProgressCallback

    out, is_first = run.out, group.rank == 0
    shards, plan = ShardedRatings.open(config.data), _plan(config)
    if is_first:  # the others find them compiled, on the same machine
        print(f"{shards!r} on {group.size} ranks", file=sys.stderr)
        implicit = config.learn_interactions or len(shards.scale) == 1
        compile_kernels(
            *kernel_groups(check_plan(plan)), "distributed", *(["implicit"] if implicit else [])
        )
    group.barrier()
    done = rank_state.history(out, config.n_seeds) if resume and is_first else []
    resume = group.any_rank(is_first and resume and rank_state.exists(out))
    if not resume:
        rank_state.forget(out)
    with ExitStack() as stack:
        callbacks: list[Callback] = []
        if is_first:
            begin = (lambda: None) if resume else lambda: begin_run(out, config)
            history = HistoryCallback(out / "history.jsonl", done, begin)
            callbacks = [ProgressCallback(sys.stderr), history]
        options = RunOptions(
            n_threads=config.n_threads,
            store=rank_state.RankStateStore(out, run.save_every, resume, group),
            callbacks=callbacks,
            should_stop=stack.enter_context(interruptible()),
            init_model=checkpoint.load(config.init_model) if config.init_model else None,
        )
        outcome = train_on_ranks(
            *(group, shards, out, plan, options),
            learn_interactions=bool(config.learn_interactions),
            facts={"run_config": config.to_json()},
            with_context=not config.without_context,
        )
    if not outcome["stopped"] and not config.keep_state:
        rank_state.forget(out)
    return _print_result(out, config, shards, outcome) if is_first else None


def _print_result(
    out: Path, config: RunConfig, shards: ShardedRatings, outcome: dict[str, Any]
) -> str:
    from cfnade.cli.output_dir import end_run

    if not outcome["stopped"]:
        end_run(out, config)
    best = f"epoch {outcome['best_epoch']}"
    if "lists" in outcome and outcome["lists"]["ndcg"] is not None:
        print(f"interactions: validation NDCG@100 {outcome['lists']['ndcg']:.4f}")
    if outcome["valid"]:
        best += f", validation RMSE {outcome['valid']['rmse']:.4f}"
        best += f" (user and item means: {outcome['valid']['means_rmse']:.4f})"
    text = f"{out}: model of {best}, {outcome['seconds']:.1f} s of training"
    print(text)
    if outcome["diverged"]:
        raise TrainingError(f"{outcome['diverged']}. The best model before that is kept in {out}")
    if outcome["stopped"]:
        print("stopped; continue with the same command and --resume")
    else:
        import numpy as np

        users = shards.ids("user", np.zeros(1, np.int32))
        print("next:", next_command(out, shards.sizes["test"], users[0]))
    return text


# -- agreement of all ranks -----------------------------------------------------------------------


def _broadcast(group: Any, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return the result of rank 0 on every rank, or raise its error."""
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
def _first_error_only(group: Any, out: Path) -> Iterator[None]:
    """Let one rank report an error, and add how to continue if others are lost."""
    from cfnade.distributed.gloo import RankLostError
    from cfnade.distributed.state import exists

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
        advice = "nothing was saved yet: start again"
        if exists(out):
            advice = "the last saved state is intact: continue with the same command and --resume"
        raise TrainingError(f"{error}; {advice}") from error
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)
