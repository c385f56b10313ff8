"""`cfnade train`: from ratings to a saved model. It can be interrupted and resumed."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from cfnade.cli import options
from cfnade.cli.process import (
    compile_ahead,
    compile_kernels,
    gc_frozen,
    interruptible,
    next_command,
)
from cfnade.exceptions import TrainingError

if TYPE_CHECKING:
    from cfnade.cli.run_config import RunConfig
    from cfnade.data.splits import Split
    from cfnade.training.callbacks import Callback, HistoryCallback
    from cfnade.training.plan import TrainingPlan
    from cfnade.training.state import StateStore
    from cfnade.training.train import TrainingResult

Log = Annotated[
    Literal["tensorboard", "mlflow"] | None,
    typer.Option(
        "--log", metavar="TOOL", help="tensorboard or mlflow.", rich_help_panel="Training"
    ),
]


def train(
    ctx: typer.Context,
    data: options.OptionalData = None,
    *,
    out: options.ModelFolder,
    overwrite: options.Overwrite = False,
    save_every: options.SaveEvery = 30.0,
    without_context: options.WithoutContext = False,
    keep_state: options.KeepState = False,
    side: options.Side = None,
    time_budget: options.TimeBudget = None,
    learn_interactions: options.LearnInteractions = None,
    recipe: options.RecipeName = None,
    ridge: options.Ridge = None,
    samples: options.Samples = None,
    hidden: options.Hidden = None,
    factors: options.Factors = None,
    use_timestamps: options.UseTimestamps = False,
    ordinal_weight: options.OrdinalWeight = None,
    split: options.SplitName = None,
    epochs: options.Epochs = None,
    learning_rate: options.LearningRate = None,
    weight_decay: options.WeightDecay = None,
    batch_rows: options.BatchRows = None,
    patience: options.Patience = None,
    refit: options.Refit = False,
    seed: options.Seed = None,
    n_seeds: options.Seeds = None,
    init_model: options.InitModel = None,
    resume: options.Resume = False,
    device: options.Device = None,
    n_threads: options.TrainThreads = None,
    log: Log = None,
    user: options.UserColumn = None,
    item: options.ItemColumn = None,
    rating: options.RatingColumn = None,
    time: options.TimeColumn = None,
    no_time: options.NoTime = False,
    weight: options.WeightColumn = None,
    no_weight: options.NoWeight = False,
    implicit: options.Implicit = False,
    separator: options.Separator = None,
    header: options.Header = None,
    encoding: options.Encoding = None,
    skip_bad_lines: options.SkipBadLines = False,
    item_features: options.ItemFeatures = None,
    query: options.Query = None,
    scale: options.RatingScale = None,
    bins: options.Bins = None,
    duplicates: options.Duplicates = None,
    min_rating: options.MinRating = None,
    weighting: options.Weighting = None,
    cache: options.Cache = True,
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
    cli_options = run_config.run_options(ctx)
    with locked_output_dir(out):
        if resume:
            config = run_config.resume(out, cli_options)
            require_unfinished(out)
        else:
            config = run_config.resolve(cli_options)
            require_replaceable(out, overwrite=overwrite)
        run_config.require_source(config)
        callbacks = [] if log is None else [logging_callback(log, out, config.to_json())]
        _train(config, out, resume, save_every, callbacks)


def _train(
    config: RunConfig, out: Path, resume: bool, save_every: float, callbacks: Sequence[Callback]
) -> None:
    from cfnade.cli.run_config import load_parts, with_split

    with gc_frozen():
        if config.side == "auto" and config.device == "cpu":
            # While everything else is imported and the data is read.
            compile_ahead("nade", "posterior", "inference")
        from cfnade.training.state import StateStore

    parts = load_parts(config)
    print(parts, file=sys.stderr)
    config = with_split(config, parts)
    store = StateStore(out, save_every, resume)
    if parts.train.implicit:
        _train_interactions(config, parts, store)
    else:
        _train_ratings(config, parts, store, callbacks)


# -- ratings --------------------------------------------------------------------------------------


def _train_ratings(
    config: RunConfig, parts: Split, store: StateStore, callbacks: Sequence[Callback]
) -> None:
    from cfnade import checkpoint
    from cfnade.cli.output_dir import write_errors_explained
    from cfnade.cli.run_config import training_plan, with_plans
    from cfnade.training import state
    from cfnade.training.loop import DivergedError
    from cfnade.training.options import RunOptions
    from cfnade.training.plan import plan_implicit
    from cfnade.training.progress import ProgressCallback
    from cfnade.training.train import train

    out, config = store.folder, with_plans(config, parts)
    plan, automatic = training_plan(config), config.side == "auto"
    if not store.exists():  # killed before its first state
        store = replace(store, resume=False)
    implicit = plan_implicit(
        parts.train,
        config.learn_interactions,
        plan.members,
        automatic=automatic,
        seed=config.training_config().seed,
    )
    plan = replace(plan, implicit=implicit)
    callbacks = [ProgressCallback(sys.stderr), _history(config, plan, store), *callbacks]
    run_options = RunOptions(
        n_threads=config.n_threads,
        device=config.device,
        init_model=checkpoint.load(config.init_model) if config.init_model else None,
        store=store,
    )
    _compile(config, plan)
    if automatic:
        print(_announcement(parts, plan), file=sys.stderr)
    try:
        with write_errors_explained(out), interruptible() as stop:
            run_options = replace(run_options, callbacks=callbacks, should_stop=stop)
            result = train(parts, plan, run_options)
    except DivergedError:
        state.delete_states(out)  # resuming would diverge again
        raise
    _save(result, config, out)
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
    from cfnade.components.new_member import component_names, kernel_groups

    groups: dict[str, None] = {}
    if config.device == "cpu":
        ridges = [(member.side, member.model.get("ridge", 0)) for member in plan.members]
        components = [component_names(side, ridge=ridge) for side, ridge in ridges]
        groups = {group: None for names in components for group in kernel_groups(names)}
        groups["inference"] = None
    if plan.implicit is not None:
        groups |= {"inference": None, "implicit": None}
    if groups:
        compile_kernels(*groups)


def _announcement(parts: Split, plan: TrainingPlan) -> str:
    from cfnade.training.plan import DataSize, estimate_seconds

    seconds = estimate_seconds(DataSize.of(parts.train), plan.members)
    seconds += 0.0 if plan.implicit is None else plan.implicit.seconds
    time = f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
    names = [member.label for member in plan.members]
    names += [] if plan.implicit is None else ["interactions"]
    return (
        f"training: {', '.join(names)}; about {time} on two cores (--time-budget 10 trains larger "
        "models for 10 minutes)"
    )


def _save(result: TrainingResult, config: RunConfig, out: Path) -> None:
    from cfnade import checkpoint
    from cfnade.cli.output_dir import end_run, write_errors_explained
    from cfnade.training import state

    metadata = {"run_config": config.to_json(), "parameters": config.estimator_parameters()}
    model = replace(result.model, facts=result.model.facts | metadata)
    with write_errors_explained(out):
        checkpoint.save(model, out, with_context=not config.without_context)
        if result.diverged:
            state.delete_states(out)
        elif not result.stopped:
            end_run(out, config)


_WITHOUT_CONTEXT = {
    True: "saved without the ratings: it recommends for histories, not for known users",
    False: "saved without the ratings: an item-based model cannot predict without them, only its "
    "embeddings can be exported; train with --side user to recommend for histories",
}


def _print_result(result: TrainingResult, parts: Split, out: Path, without_context: bool) -> None:
    from cfnade.cli.render import print_tried
    from cfnade.training.validation import warn_below_baseline

    facts = result.model.facts
    best = f"epoch {facts['best_epoch']}"
    if "members" in facts:
        best = f"{len(facts['members'])} members"
    if facts["valid"]:
        best += f", validation RMSE {facts['valid']['rmse']:.4f}"
        best += f" (user and item means: {facts['valid']['means_rmse']:.4f})"
    print_tried(facts.get("tried", []))
    _print_interaction_scores(facts)
    print(f"{out}: model of {best}, {facts['seconds']:.1f} s of training")
    if (warning := warn_below_baseline(facts)) is not None:
        print(f"warning: {warning}", file=sys.stderr)
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


def _print_interaction_scores(facts: dict[str, Any]) -> None:
    """Print the validation scores of the interaction model and of its components."""
    scores = facts.get("lists", {})
    if "component_scores" not in scores:
        return
    parts = ", ".join(f"{name} {x:.4f}" for name, x in scores["component_scores"].items())
    print(f"interactions: validation {scores['metric']} {scores['score']:.4f} ({parts})")


# -- interactions ---------------------------------------------------------------------------------


def _train_interactions(config: RunConfig, parts: Split, store: StateStore) -> None:
    from cfnade import checkpoint
    from cfnade.cli.output_dir import begin_run, end_run, write_errors_explained
    from cfnade.training import state
    from cfnade.training.implicit import implicit_plan
    from cfnade.training.options import RunOptions
    from cfnade.training.plan import TrainingPlan
    from cfnade.training.progress import ProgressCallback
    from cfnade.training.train import train

    _require_no_rating_options(config)
    compile_kernels("implicit", "inference")
    out = store.folder
    if not store.resume:
        begin_run(out, config)
    seed = config.training_config().seed
    implicit = implicit_plan(parts.train, seed=seed, time_budget=config.time_budget)
    plan = TrainingPlan(implicit=implicit)
    run_options = RunOptions(n_threads=config.n_threads, callbacks=[ProgressCallback(sys.stderr)])
    with write_errors_explained(out), interruptible() as stop:
        result = train(parts, plan, replace(run_options, should_stop=stop))
        metadata = {"run_config": config.to_json(), "parameters": config.estimator_parameters()}
        model = replace(result.model, facts=result.model.facts | metadata)
        checkpoint.save(model, out, with_context=not config.without_context)
        if not result.stopped:
            end_run(out, config)
    _print_interaction_scores(result.model.facts)
    if result.stopped:
        print(f"stopped early; train again with: cfnade train --resume --out {out}")
        return
    seconds = result.model.facts["lists"]["total_seconds"]
    print(f"{out}: model of interactions, {seconds:.1f} s of training")
    print("next:", next_command(out, len(parts.test), parts.train.user_ids[0]))
    state.delete_states(out)


def _require_no_rating_options(config: RunConfig) -> None:
    if config.side != "auto" or config.init_model or config.learn_interactions is False:
        raise TrainingError(
            f"{config.data}: these are interactions without ratings; omit the options of models of "
            "ratings (--side, --recipe, --init-model, --no-learn-interactions)"
        )
