"""`cfnade train-distributed`: training on several ranks, started by torchrun, Ray or Spark.

Rank 0 reads the configuration and locks the folder; the other ranks receive its result. The first
rank with an error reports it.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Unpack

from cfnade.cli import options
from cfnade.cli.command import with_option_groups
from cfnade.cli.options import argument, option
from cfnade.cli.process import compile_kernels, interruptible, next_command, print_status
from cfnade.exceptions import TrainingError

if TYPE_CHECKING:
    from cfnade.cli.run_config import RunConfig
    from cfnade.distributed.process_group import ProcessGroup
    from cfnade.distributed.shards import ShardedRatings
    from cfnade.training.plan import TrainingPlan

_rank_option = partial(option, panel="Ranks")


@with_option_groups
def train_distributed(
    data: Annotated[str | None, argument("SHARDS", "Folder of shards (cfnade data shard).")] = None,
    *,
    out: options.ModelFolder,
    overwrite: options.Overwrite = False,
    resume: options.Resume = False,
    save_every: options.SaveEvery = 30.0,
    engine: Annotated[
        Literal["ray", "spark"] | None,
        _rank_option("NAME", "ray or spark starts the ranks.  [default: torchrun]"),
    ] = None,
    workers: Annotated[
        int | None, _rank_option("N", "Ranks on the cluster.  [default: 2]", min=1)
    ] = None,
    max_restarts: Annotated[int, _rank_option("N", "Restarts after lost workers.", min=0)] = 0,
    timeout: Annotated[
        float, _rank_option("SECONDS", "Time a rank waits for others.", min=0.001)
    ] = 600.0,
    side: Annotated[
        str | None, option("SIDE", "user, item or both.  [default: user]", panel="Model")
    ] = None,
    **run_options: Unpack[options.RunArguments],
) -> None:
    """Train on shards with several processes or machines.

    \b
      torchrun --nproc-per-node 2 -m cfnade train-distributed shards --out model
      cfnade train-distributed shards --engine ray --workers 4 --out model
      torchrun --nproc-per-node 2 -m cfnade train-distributed --resume --out model
    """
    from cfnade.cli import run_config
    from cfnade.distributed import launch

    cli_options = run_config.run_options({"data": data, "side": side, **run_options})
    out = out if engine is None else out.resolve()  # for other machines
    run = _Run(cli_options, out, overwrite, save_every)
    job = launch.RankJob(partial(_train_rank, run), out, resume, timeout)
    if engine is not None:
        print(launch.run_on_cluster(job, engine, workers or 2, max_restarts))
        return
    if workers is not None or max_restarts:
        name = "--max-restarts" if workers is None else "--workers"
        raise TrainingError(f"{name} needs --engine; torchrun has options of its own")
    try:
        launch.run_rank(job)
    except launch.ReportedElsewhereError:
        sys.exit(1)


class _Run(NamedTuple):
    """The options of the command, for every rank."""

    cli_options: dict[str, Any]
    """Options of the training run, as in `run_config`."""
    out: Path
    overwrite: bool
    save_every: float


def _train_rank(run: _Run, group: ProcessGroup, resume: bool) -> str | None:
    """Train as one of the ranks. Rank 0 returns its summary."""
    from cfnade.cli.run_config import from_json
    from cfnade.distributed.launch import broadcast_result

    with ExitStack() as stack:
        values = broadcast_result(group, lambda: _begin(run, resume, stack))
        return _train(group, run, from_json(values, run.out), resume)


def _begin(run: _Run, resume: bool, stack: ExitStack) -> dict[str, Any]:
    """Check the options and lock the folder, on rank 0. Returns the configuration."""
    from cfnade import checkpoint
    from cfnade.cli import run_config
    from cfnade.cli.output_dir import locked_output_dir, require_replaceable, require_unfinished
    from cfnade.distributed.shards import ShardedRatings
    from cfnade.distributed.state import exists
    from cfnade.distributed.train import check_plan

    out = run.out
    stack.enter_context(locked_output_dir(out))
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
    return config.to_json()


def _plan(config: RunConfig) -> TrainingPlan:
    from cfnade.training.plan import plan_side

    return plan_side(config.side, config.model, config.training_config(), n_seeds=config.n_seeds)


def _train(group: ProcessGroup, run: _Run, config: RunConfig, resume: bool) -> str | None:
    from cfnade import checkpoint
    from cfnade.cli.output_dir import begin_run
    from cfnade.components.registry import kernel_groups
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
        print_status(f"{shards!r} on {group.size} ranks")
        implicit = config.learn_interactions or len(shards.scale) == 1
        compile_kernels(
            *kernel_groups(check_plan(plan)), "distributed", *(["implicit"] if implicit else [])
        )
    group.barrier()
    history = rank_state.history(out, config.n_seeds) if resume and is_first else []
    resume = group.any_rank(is_first and resume and rank_state.exists(out))
    if not resume:
        rank_state.forget(out)
    callbacks: list[Callback] = []
    if is_first:
        begin = (lambda: None) if resume else lambda: begin_run(out, config)
        callbacks = [
            ProgressCallback(sys.stderr),
            HistoryCallback(out / "history.jsonl", history, begin),
        ]
    with interruptible() as should_stop:
        outcome = train_on_ranks(
            group,
            shards,
            out,
            plan,
            RunOptions(
                n_threads=config.n_threads,
                store=rank_state.RankStateStore(out, run.save_every, resume, group),
                callbacks=callbacks,
                should_stop=should_stop,
                init_model=checkpoint.load(config.init_model) if config.init_model else None,
            ),
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
    from cfnade.cli.train import training_summary

    if not outcome["stopped"]:
        end_run(out, config)
    if "lists" in outcome and outcome["lists"]["ndcg"] is not None:
        print(f"interactions: validation NDCG@20 {outcome['lists']['ndcg']:.4f}")
    text = f"{out}: {training_summary(outcome)}"
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
