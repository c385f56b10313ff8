"""`cfnade train`: from ratings to a saved model. It can be interrupted and resumed."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict, Unpack

from cfnade.cli import options
from cfnade.cli.command import with_option_groups
from cfnade.cli.options import LoadArguments, RunArguments, option
from cfnade.cli.process import (
    compile_ahead,
    compile_kernels,
    gc_frozen,
    interruptible,
    next_command,
    print_status,
)
from cfnade.exceptions import TrainingError

if TYPE_CHECKING:
    from cfnade.cli.run_config import RunConfig
    from cfnade.data.splits import Split
    from cfnade.training.callbacks import Callback, HistoryCallback
    from cfnade.training.options import RunOptions
    from cfnade.training.plan import TrainingPlan
    from cfnade.training.state import StateStore
    from cfnade.training.train import TrainingResult


_model = partial(option, panel="Model")
_training = partial(option, panel="Training")


class _OneProcessArguments(TypedDict, total=False):
    side: Annotated[str | None, _model("SIDE", "user, item, both or auto.  [default: auto]")]
    time_budget: Annotated[
        float | None, _model("MINUTES", "Time for side auto.  [default: up to 40 s]")
    ]
    metric: Annotated[str | None, _model("NAME", "Tune interactions for ndcg or recall.")]
    k: Annotated[int | None, _model("N", "Top items that --metric looks at.  [default: 20]")]
    use_timestamps: Annotated[
        bool | None, _model("--use-timestamps", "Model effects of time; needs side both.")
    ]
    split: Annotated[
        str | None, _training("NAME", "How to split the data, such as paper:0 or all.")
    ]
    device: Annotated[str | None, _training("NAME", "cpu, or a torch device.  [default: cpu]")]
    log: Annotated[
        Literal["tensorboard", "mlflow"] | None, _training("TOOL", "tensorboard or mlflow.")
    ]


class TrainArguments(_OneProcessArguments, RunArguments, LoadArguments, total=False):
    """Options that `run_config.py` reads."""


@with_option_groups
def train(
    data: options.OptionalData = None,
    *,
    out: options.ModelFolder,
    overwrite: options.Overwrite = False,
    resume: options.Resume = False,
    save_every: options.SaveEvery = 30.0,
    **run_options: Unpack[TrainArguments],
) -> None:
    """Train a model on ratings or interactions.

    Without options of the model, several kinds of models are trained and weighted by validation.

    \b
      cfnade train ratings.csv --out model
      cfnade train clicks.csv --user visitor --item product --implicit --out model
      cfnade train ml-1m --time-budget 10 --out model
      cfnade train ml-1m --recipe ml-1m-item --split authors:1234 --out model
      cfnade train sqlite:///shop.db --query "select * from reviews" --out model
      cfnade train --resume --out model
    """
    from cfnade.cli import run_config
    from cfnade.cli.output_dir import locked_output_dir, require_replaceable, require_unfinished
    from cfnade.integrations.callbacks import logging_callback

    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise TrainingError("several ranks train with: cfnade train-distributed SHARDS")
    cli_options = run_config.run_options({"data": data, **run_options})
    with locked_output_dir(out):
        if resume:
            config = run_config.resume(out, cli_options)
            require_unfinished(out)
        else:
            config = run_config.resolve(cli_options)
            require_replaceable(out, overwrite=overwrite)
        run_config.require_source(config.data)
        log = run_options["log"]
        callbacks = [] if log is None else [logging_callback(log, out, config.to_json())]
        _train(config, out, resume, save_every, callbacks)


def _train(
    config: RunConfig, out: Path, resume: bool, save_every: float, callbacks: list[Callback]
) -> None:
    from cfnade.cli.run_config import load_parts, training_plan, with_split

    with gc_frozen():
        if config.side == "auto" and config.device == "cpu":
            # While everything else is imported and the data is read.
            compile_ahead("nade", "posterior", "inference")
        from cfnade import checkpoint
        from cfnade.training.options import RunOptions
        from cfnade.training.progress import ProgressCallback
        from cfnade.training.state import StateStore

    parts = load_parts(config)
    sizes = [f"{len(part):,} {name}" for name, part in parts.parts().items() if len(part)]
    print_status(f"split {parts.name}: {', '.join(sizes)}")
    config = with_split(config, parts)
    plan = training_plan(config, parts)
    store = StateStore(out, save_every, resume)
    if not store.exists():  # killed before its first state
        store = replace(store, resume=False)
    run_options = RunOptions(
        n_threads=config.n_threads,
        device=config.device,
        init_model=checkpoint.load(config.init_model) if config.init_model else None,
        store=store,
        callbacks=[ProgressCallback(sys.stderr), _history(config, plan, store), *callbacks],
    )
    _compile(config, plan)
    if config.side == "auto" and plan.members:
        print_status(_announcement(parts, plan))
    result = _run(config, parts, plan, run_options, out)
    _print_result(result, parts, out, config.without_context)


def _history(config: RunConfig, plan: TrainingPlan, store: StateStore) -> HistoryCallback:
    """Return what writes history.jsonl, and begins the run in the folder."""
    from cfnade.cli.output_dir import begin_run
    from cfnade.training import state
    from cfnade.training.callbacks import HistoryCallback

    earlier = state.state_times(store.folder)

    def begin() -> None:
        """After the first step the options are known to be valid: replace the earlier run."""
        if not store.resume:
            begin_run(store.folder, config, earlier)

    histories = state.read_histories(store.folder, len(plan.members)) if store.resume else []
    return HistoryCallback(store.folder / "history.jsonl", histories, begin)


def _compile(config: RunConfig, plan: TrainingPlan) -> None:
    """Compile the kernels of all members, partly in a second process."""
    from cfnade.components.registry import component_names, kernel_groups

    groups: list[str] = []
    if config.device == "cpu":
        groups.append("inference")
        for member in plan.members:
            names = component_names(member.side, ridge=member.model.get("ridge", 0))
            groups += kernel_groups(names)
    if plan.implicit is not None:
        groups += ["inference", "implicit"]
    if groups:  # without a name, all groups are compiled
        compile_kernels(*dict.fromkeys(groups))


def _announcement(parts: Split, plan: TrainingPlan) -> str:
    from cfnade.training.plan import DataSize, estimate_seconds

    seconds = estimate_seconds(DataSize.from_ratings(parts.train), plan.members)
    names = [member.label for member in plan.members]
    if plan.implicit is not None:
        seconds += plan.implicit.seconds
        names.append("interactions")
    time = f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
    return (
        f"training: {', '.join(names)}; about {time} on two cores (--time-budget 10 trains larger "
        "models for 10 minutes)"
    )


def _run(
    config: RunConfig, parts: Split, plan: TrainingPlan, run_options: RunOptions, out: Path
) -> TrainingResult:
    """Train and save the model."""
    from cfnade import checkpoint
    from cfnade.cli.output_dir import end_run, write_errors_explained
    from cfnade.training import state
    from cfnade.training.loop import DivergedError
    from cfnade.training.train import train

    with write_errors_explained(out):
        try:
            with interruptible() as should_stop:
                result = train(parts, plan, replace(run_options, should_stop=should_stop))
        except DivergedError:
            state.delete_states(out)  # resuming would diverge again
            raise
        metadata = {"run_config": config.to_json(), "parameters": config.estimator_parameters()}
        model = replace(result.model, metadata=result.model.metadata | metadata)
        checkpoint.save(model, out, with_context=not config.without_context)
        if result.diverged:
            state.delete_states(out)
        elif not result.stopped:
            end_run(out, config)
    return result


_WITHOUT_CONTEXT = {
    True: "saved without the ratings: it recommends for histories, not for known users",
    False: "saved without the ratings: an item-based model cannot predict without them, only its "
    "embeddings can be exported; train with --side user to recommend for histories",
}


def _print_result(result: TrainingResult, parts: Split, out: Path, without_context: bool) -> None:
    from cfnade.cli.render import print_tried
    from cfnade.training.validation import warn_below_baseline

    facts = result.model.metadata
    print_tried(facts.get("tried", []))
    if "component_scores" in (scores := facts.get("lists", {})):
        parts_text = ", ".join(f"{name} {x:.4f}" for name, x in scores["component_scores"].items())
        print(f"interactions: validation {scores['metric']} {scores['score']:.4f} ({parts_text})")
    print(f"{out}: {training_summary(facts)}")
    if (warning := warn_below_baseline(facts)) is not None:
        print_status(f"warning: {warning}")
    if result.diverged:
        raise TrainingError(
            f"{result.diverged}. The best model before that is kept in {out}; --overwrite "
            "replaces it"
        )
    if result.stopped:
        print(f"stopped; continue with: cfnade train --resume --out {out}")
    elif without_context:
        print(_WITHOUT_CONTEXT[result.model.takes_histories])
    else:
        print("next:", next_command(out, len(parts.test), parts.train.user_ids[0]))


def training_summary(facts: dict[str, Any]) -> str:
    """Return one line about a training from the metadata of its model."""
    if "seconds" not in facts:
        return f"model of interactions, {facts['lists'].get('total_seconds', 0):.1f} s of training"
    best = f"epoch {facts['best_epoch']}"
    if "members" in facts:
        best = f"{len(facts['members'])} members"
    if facts["valid"]:
        best += f", validation RMSE {facts['valid']['rmse']:.4f}"
        best += f" (user and item means: {facts['valid']['means_rmse']:.4f})"
    return f"model of {best}, {facts['seconds']:.1f} s of training"
