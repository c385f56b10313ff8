"""`cfnade train | tune`: from ratings to a saved model, or to a better recipe by validation.

Both can be interrupted at any moment and gone on with.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from cfnade.cli.arguments import RATINGS, Data, panel, with_options, with_reading
from cfnade.cli.doctor import compile_ahead, compile_kernels
from cfnade.cli.folder import (
    begin_run,
    end_run,
    nothing_lost,
    own_folder,
    refuse_finished,
    refuse_overwriting,
)
from cfnade.cli.interrupt import interruptible
from cfnade.cli.job import Job, earlier_job, new_job, plans_of, settings_of_members, with_plans
from cfnade.cli.picked import say, show_choice, train_interactions
from cfnade.errors import TrainingError
from cfnade.journals import Several, journal
from cfnade.options import checked, whole

_model, _training, _files = panel("The model"), panel("Training"), panel("Files")
_ranks = panel("On several machines")
_ARCHITECTURE: dict[str, Any] = {
    "ridge": Annotated[int | None, _model("Dimensions of the ridge part; 0: the paper's model.")],
    "hidden": Annotated[str | None, _model("Hidden units, such as 500 or 500,500.")],
    "factors": Annotated[int | None, _model("Factors J of the weights.")],
    "know_time": Annotated[
        bool | None, _model("Learn from when ratings were given; with side both.", "--know-time")
    ],
    "ordinal_weight": Annotated[
        float | None, _model("Share of the ordinal cost, 0 to 1.", "--ordinal")
    ],
}
_SETTINGS: dict[str, Any] = {
    "epochs": Annotated[int | None, _training("Passes over the data, at most.")],
    "learning_rate": Annotated[float | None, _training("Adam's rate.")],
    "weight_decay": Annotated[float | None, _training("Times the sum of squares.")],
    "batch_rows": Annotated[int | None, _training("Rows of one update.")],
    "patience": Annotated[int | None, _training("Stop after so many stale epochs.")],
    "refit": Annotated[bool | None, _training("Train again with validation.", "--refit")],
    "seed": Annotated[int | None, _training("Fixes everything.")],
}


def _fields(options: dict[str, Any]) -> dict[str, Any]:
    """The model's fields by their names, with the sizes of its layers as a list."""
    options["time"] = options.pop("know_time")  # --time names a column of the data
    text = options["hidden"]
    if text is None:
        return options
    try:
        return options | {"hidden": [int(part) for part in text.split(",")]}
    except ValueError:
        raise TrainingError(f"--hidden {text}: write sizes like 500 or 500,500") from None


@with_reading
@with_options("training", _SETTINGS)
@with_options("model", _ARCHITECTURE, _fields)
def train(
    data: Annotated[str | None, typer.Argument(help=RATINGS, show_default=False)] = None,
    *,
    out: Annotated[Path, _files("The folder to write the model into.", "--out")],
    recipe: Annotated[str | None, _model("A recipe's name or TOML file.")] = None,
    side: Annotated[
        str | None,
        _model(
            "user, item or both: whose ratings predict; both,user: members of each; auto, the "
            "default: whatever the data are good for."
        ),
    ] = None,
    minutes: Annotated[
        float | None, _model("How long auto may take, about; a minute at most if not given.")
    ] = None,
    lists: Annotated[
        bool | None,
        _model(
            "Also learn what people pick, for recommend; if not given, where auto has the time.",
            "--lists/--no-lists",
        ),
    ] = None,
    split: Annotated[str | None, _training("How to cut the ratings; paper:0 if not given.")] = None,
    seeds: Annotated[
        int | None, _training("Train so many models from successive seeds and average them.")
    ] = None,
    threads: Annotated[int | None, _training("CPU threads.")] = None,
    device: Annotated[str | None, _training("cpu (if not given), or a torch device.")] = None,
    start: Annotated[Path | None, _files("Continue this model, on more ratings.", "--from")] = None,
    resume: Annotated[bool, _files("Go on with an interrupted run.", "--resume")] = False,
    save_every: Annotated[
        float, typer.Option(help="Seconds between saved states.", rich_help_panel="Files")
    ] = 30.0,
    without_context: Annotated[
        bool | None, _files("Leave the ratings out of the saved model.", "--without-context")
    ] = None,
    half: Annotated[
        bool | None,
        _files("Save weights in half the bytes, where it changes no more than 0.001.", "--float16"),
    ] = None,
    keep_state: Annotated[
        bool | None, _files("Keep the training state of a finished run.", "--keep-state")
    ] = None,
    force: Annotated[bool, _files("Replace the model that the folder holds.", "--force")] = False,
    engine: Annotated[
        str | None,
        _ranks("ray or spark: train shards on their workers; under torchrun, and alone, none."),
    ] = None,
    workers: Annotated[int | None, _ranks("How many of them; 2 if not given.")] = None,
    max_restarts: Annotated[int, _ranks("How often lost workers are started again.")] = 0,
    timeout: Annotated[float, _ranks("Seconds that a rank waits for another.")] = 600.0,
    log: Annotated[str | None, _training("Tell tensorboard or mlflow how it goes.")] = None,
    model: dict[str, Any],
    training: dict[str, Any],
    reading: dict[str, Any],
) -> None:
    """Train a model and save it.

    cfnade train ml-1m --recipe ml-1m-item --split authors:1234 --out model
    cfnade train ml-1m --recipe ml-1m-both --seeds 3 --out model
    cfnade train ratings.csv --out model
    cfnade train clicks.csv --out model
    cfnade train sqlite:///shop.db --query "select user, item, stars from reviews" --out model
    cfnade train --resume --out model
    torchrun --nproc-per-node 2 -m cfnade train shards --side user --out model
    """
    asked: Job = {"data": data, "split": split, "reading": reading, "recipe": recipe, "side": side}
    asked |= {"model": model, "training": training, "threads": threads, "device": device}
    asked |= {"from": start, "without_context": without_context, "seeds": seeds}
    asked |= {"half": half, "keep_state": keep_state, "minutes": minutes, "lists": lists}
    if engine is not None or os.environ.get("WORLD_SIZE", "1") != "1":
        from cfnade.cli.ranked import Launch, launch

        given = Launch(asked, out, resume, force, save_every, timeout)
        launch(given, engine, workers, max_restarts)
        return
    with own_folder(out):
        if resume:
            job = earlier_job(out, asked)
            refuse_finished(out, job)
        else:
            job = new_job(asked)
            refuse_overwriting(out, force=force)
        with journal(log, out, asked | asked["model"] | asked["training"]) as told:
            _train(job, out, resume, save_every, told)


def _train(job: Job, out: Path, resume: bool, save_every: float, told: Any) -> None:
    from cfnade import checkpoint
    from cfnade.cli.parts import load_parts
    from cfnade.cli.show import TrainingView
    from cfnade.fitting import lists_plan
    from cfnade.sides import kernel_tasks, side_names
    from cfnade.training import run, state
    from cfnade.training.loop import DivergedError, Saving

    if job["side"] == "auto" and job["device"] == "cpu":
        compile_ahead("ridge", "blocks")  # while the ratings are read
    parts = load_parts(job)
    print(parts, file=sys.stderr)
    if parts.train.implicit:
        resume = resume and (state.lists_folder(out) / state.NAME).exists()
        with interruptible() as stop:
            train_interactions(job, parts, out, Saving(out, save_every, resume), stop)
        return
    job = with_plans(job, parts)
    first, *beside = plans = plans_of(job)
    earlier = checkpoint.load(job["from"]) if job["from"] else None
    resume = resume and (out / state.NAME).exists()  # killed before its first state: from anew
    members = settings_of_members(job)
    done = state.read_histories(out, len(members)) if resume else []

    def begin() -> None:
        """The first step is done: nothing is wrong with the arguments, the earlier run may go."""
        if not resume:
            begin_run(out, job)

    if job["device"] == "cpu":
        ridges = [(one.side, one.architecture.get("ridge", 0)) for one in plans]
        named = [side_names(side, ridge=ridge) for side, ridge in ridges]
        tasks = {task: None for sides in named for task in kernel_tasks(sides)}
        compile_kernels(*tasks, "newcomers")
    seed, chosen = job["training"]["seed"], job["side"] == "auto"
    choice = lists_plan(parts, job["lists"], plans, auto=chosen, seed=seed)
    if choice is not None:
        compile_kernels("picks")
    if chosen:
        print(_announced(parts, plans, choice), file=sys.stderr)
    names = [first.side] * job["seeds"] + [one.side for one in beside]
    try:
        view = TrainingView(names, [one.epochs for one in members], out, done, begin)
        with nothing_lost(out), view, interruptible() as stop:
            trained = run.train(
                parts,
                side=first.side,
                architecture=first.architecture,
                settings=first.settings,
                seeds=job["seeds"],
                beside=beside,
                choose=chosen,
                lists=choice,
                start=earlier,
                device=job["device"],
                threads=job["threads"],
                saving=Saving(out, save_every, resume),
                reporter=Several(view, told),
                say=say,
                stop=stop,
            )
    except DivergedError:
        state.forget(out)  # going on would only diverge again
        raise
    facts = trained.fitted.facts | {"job": job}
    facts |= {"auto": {"minutes": job["minutes"], "lists": job["lists"]}} if chosen else {}
    model = replace(trained.fitted, facts=facts)
    with nothing_lost(out):
        checkpoint.save(model, out, with_context=not job["without_context"], half=job["half"])
        if trained.diverged:
            state.forget(out)
        elif not trained.stopped:
            end_run(out, job)
    _say_how_it_ended(trained, out, job["without_context"])


def _announced(parts: Any, plans: list[Any], choice: Any) -> str:
    from cfnade.choice.planning import seconds_of
    from cfnade.recipes.auto import Shape, about

    seconds = about(Shape.of(parts.train), plans)
    seconds += 0.0 if choice is None else seconds_of(parts.train, choice)
    took = f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
    names = ", ".join([*(plan.side for plan in plans), *(["lists"] if choice else [])])
    return f"to be tried: {names}; about {took} on two cores (--minutes 10 to search longer)"


_WITHOUT_CONTEXT = {
    True: "saved without the ratings: only histories given in the call will work, no known user",
    False: "saved without the ratings: an item-based model can answer no question without them, "
    "only its embeddings can be exported; train with --side user to answer for histories",
}


def _say_how_it_ended(trained: Any, out: Path, without_context: bool) -> None:
    from cfnade.cli.show import show_tried
    from cfnade.training.floor import behind_means

    facts = trained.fitted.facts
    best = f"epoch {facts['best_epoch']}"
    if "members" in facts:
        best = f"{len(facts['members'])} members"
    if facts["valid"]:
        best += f", validation RMSE {facts['valid']['rmse']:.4f}"
        best += f" (plain means {facts['valid']['means_rmse']:.4f})"
    show_tried(facts.get("tried", []))
    show_choice(facts)
    print(f"{out}: model of {best}, {facts['seconds']:.1f} s of training")
    if (warning := behind_means(facts)) is not None:
        print(f"warning: {warning}", file=sys.stderr)
    if trained.diverged:
        raise TrainingError(
            f"{trained.diverged}. The best model before that is kept in {out}; --force replaces it"
        )
    if trained.stopped:
        print(f"stopped; go on with: cfnade train --resume --out {out}")
    elif without_context:
        print(_WITHOUT_CONTEXT[trained.fitted.takes_histories])
    else:
        print(f"next: cfnade evaluate {out}")


# -- a better recipe -----------------------------------------------------------------------------


@with_reading
def tune(
    data: Data,
    *,
    out: Annotated[Path, typer.Option("--out", help="The folder of the search.")],
    recipe: Annotated[str, typer.Option(help="The recipe to start from.")] = "default",
    split: Annotated[str, typer.Option(help="How to cut the ratings.")] = "paper:0",
    trials: Annotated[int, typer.Option(help="How many recipes to try in all.")] = 20,
    threads: Annotated[int | None, typer.Option(help="CPU threads.")] = None,
    reading: dict[str, Any],
) -> None:
    """Search for better training settings by validation RMSE.

    Trials are kept in the folder: the same command goes on where it was stopped. The best recipe
    so far is written there as best.toml. Needs Optuna: pip install 'cfnade[tune]'.

    \b
      cfnade tune ratings.csv --out search --trials 30
      cfnade train ratings.csv --recipe search/best.toml --out model
    """
    checked("trials", trials, whole(1), TrainingError)
    try:
        import optuna
    except ImportError:
        raise TrainingError(
            "tuning needs Optuna; install it with: pip install 'cfnade[tune]'"
        ) from None
    from cfnade.data.loader import load_split
    from cfnade.recipes import recipe as load_recipe
    from cfnade.tuning import sampler_seed, try_settings, write_best

    base = load_recipe(recipe)
    parts = load_split(data, split, **reading)
    if len(parts.valid) == 0:
        raise TrainingError(f"split {split} has no validation part to choose by; take another")
    out.mkdir(parents=True, exist_ok=True)
    study = _study(out / "study.db", f"{base.name} {parts.fingerprint}")
    seed = sampler_seed(base.training.seed, len(study.trials))
    study.sampler = optuna.samplers.TPESampler(seed=seed)
    done = [trial for trial in study.trials if trial.state == optuna.trial.TrialState.COMPLETE]
    for number in range(len(done), trials):
        trial = study.ask()
        tried = replace(base, training=try_settings(trial, base.training))
        rmse = _score(parts, tried, threads)
        study.tell(trial, rmse)
        write_best(out / "best.toml", base, study.best_params, study.best_value, split)
        settings = "  ".join(f"{name} {value:.3g}" for name, value in trial.params.items())
        best = f"best {study.best_value:.4f}"
        print(f"{number + 1:3}/{trials}  valid rmse {rmse:.4f}  {best}  {settings}")
    print(f"{out / 'best.toml'}: validation RMSE {study.best_value:.4f}")


def _study(file: Path, name: str) -> Any:
    """The search kept in this file, or a new one."""
    import optuna
    from sqlalchemy.exc import SQLAlchemyError

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        return optuna.create_study(
            study_name=name, storage=f"sqlite:///{file}", load_if_exists=True
        )
    except (SQLAlchemyError, optuna.exceptions.OptunaError, RuntimeError) as error:
        raise TrainingError(
            f"{file}: is not a search that can be gone on with ({str(error).splitlines()[0]}); "
            "delete it, or search in another folder"
        ) from error


def _score(parts: Any, tried: Any, threads: int | None) -> float:
    from cfnade.training.run import train

    trained = train(
        parts, side=tried.side, architecture=tried.model, settings=tried.training, threads=threads
    )
    return float(trained.fitted.facts["valid"]["rmse"])
