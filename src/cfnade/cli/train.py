"""`cfnade train`: from ratings to a saved model. It can be interrupted and gone on with."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from cfnade.cli.arguments import RATINGS, panel, with_options, with_reading
from cfnade.cli.at_work import compile_ahead, lasting
from cfnade.cli.folder import own_folder, refuse_finished, refuse_overwriting
from cfnade.cli.job import Job, earlier_job, load_parts, new_job
from cfnade.exceptions import TrainingError
from cfnade.integrations.callbacks import logging_callback

_model, _training, _files = panel("The model"), panel("Training"), panel("Files")
_ranks = panel("On several machines")
_PLAN: dict[str, Any] = {
    "recipe": Annotated[str | None, _model("A recipe's name or TOML file.")],
    "side": Annotated[
        str | None,
        _model(
            "user, item or both: whose ratings predict; both,user: members of each; auto, the "
            "default: whatever the data are good for."
        ),
    ],
    "minutes": Annotated[
        float | None, _model("How long auto may take, about; a minute at most if not given.")
    ],
    "lists": Annotated[
        bool | None,
        _model(
            "Also learn what people pick, for recommend; if not given, where auto has the time.",
            "--lists/--no-lists",
        ),
    ],
    "split": Annotated[
        str | None,
        _training("How to cut the data; paper:0 for ratings, all for clicks if not given."),
    ],
    "seeds": Annotated[
        int | None, _training("Train so many models from successive seeds and average them.")
    ],
    "threads": Annotated[int | None, _training("CPU threads.")],
    "device": Annotated[str | None, _training("cpu (if not given), or a torch device.")],
}
_KEPT: dict[str, Any] = {
    "without_context": Annotated[
        bool | None, _files("Leave the ratings out of the saved model.", "--without-context")
    ],
    "keep_state": Annotated[
        bool | None, _files("Keep the training state of a finished run.", "--keep-state")
    ],
}
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
@with_options("kept", _KEPT)
@with_options("plan", _PLAN)
def train(
    data: Annotated[str | None, typer.Argument(help=RATINGS, show_default=False)] = None,
    *,
    out: Annotated[Path, _files("The folder to write the model into.", "--out")],
    plan: dict[str, Any],
    start: Annotated[Path | None, _files("Continue this model, on more ratings.", "--from")] = None,
    resume: Annotated[bool, _files("Go on with an interrupted run.", "--resume")] = False,
    save_every: Annotated[
        float, typer.Option(help="Seconds between saved states.", rich_help_panel="Files")
    ] = 30.0,
    kept: dict[str, Any],
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
    asked: Job = {"data": data, "reading": reading, **plan, "model": model, "training": training}
    asked |= {"from": start, **kept}
    if engine is not None or os.environ.get("WORLD_SIZE", "1") != "1":
        from cfnade.cli.ranked import Launch, launch

        told = Launch(asked, out, resume, force, save_every, timeout)
        launch(told, engine, workers, max_restarts)
        return
    with own_folder(out):
        if resume:
            job = earlier_job(out, asked)
            refuse_finished(out, job)
        else:
            job = new_job(asked)
            refuse_overwriting(out, force=force)
        arguments = asked | asked["model"] | asked["training"]
        callbacks = [] if log is None else [logging_callback(log, out, arguments)]
        _train(job, out, resume, save_every, callbacks)


def _train(job: Job, out: Path, resume: bool, save_every: float, callbacks: list[Any]) -> None:
    with lasting():
        if job["side"] == "auto" and job["device"] == "cpu":
            # While all else is imported and the ratings are read.
            compile_ahead("nade", "posterior", "inference")
        from cfnade.cli.one_process import train_interactions, train_ratings
        from cfnade.training.state import StateStore

    parts = load_parts(job)
    print(parts, file=sys.stderr)
    store = StateStore(out, save_every, resume)
    if parts.train.implicit:
        train_interactions(job, parts, store)
    else:
        train_ratings(job, parts, store, callbacks)
