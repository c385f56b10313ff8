"""`cfnade train`: from a rating file to a saved model, resumable at any moment."""

from __future__ import annotations

import json
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from cfnade.cli.reading import with_reading
from cfnade.errors import TrainingError

_RUN = "run.json"
_MODEL, _TRAINING, _FILES = "The model", "Training", "Files"


def _option(help: str, panel: str, *names: str) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel, show_default=False)


@with_reading
def train_command(
    data: Annotated[
        str | None,
        typer.Argument(help="Ratings: a file, a folder or a data set's name.", show_default=False),
    ] = None,
    *,
    out: Annotated[Path, _option("The folder to write the model into.", _FILES, "--out")],
    recipe: Annotated[str | None, _option("A recipe's name or TOML file.", _MODEL)] = None,
    split: Annotated[
        str, typer.Option(help="How to cut the ratings.", rich_help_panel=_TRAINING)
    ] = "paper:0",
    side: Annotated[str | None, _option("user or item: whose ratings are a row.", _MODEL)] = None,
    hidden: Annotated[str | None, _option("Hidden units, such as 500 or 500,500.", _MODEL)] = None,
    factors: Annotated[int | None, _option("Factors J of the weights.", _MODEL)] = None,
    ordinal: Annotated[float | None, _option("Share of the ordinal cost, 0 to 1.", _MODEL)] = None,
    epochs: Annotated[int | None, _option("Passes over the data, at most.", _TRAINING)] = None,
    learning_rate: Annotated[float | None, _option("Adam's rate.", _TRAINING)] = None,
    weight_decay: Annotated[float | None, _option("Times the sum of squares.", _TRAINING)] = None,
    batch_rows: Annotated[int | None, _option("Rows of one update.", _TRAINING)] = None,
    patience: Annotated[int | None, _option("Stop after so many stale epochs.", _TRAINING)] = None,
    refit: Annotated[
        bool | None, _option("Train again with validation.", _TRAINING, "--refit")
    ] = None,
    seed: Annotated[int | None, _option("Fixes everything.", _TRAINING)] = None,
    threads: Annotated[int | None, _option("CPU threads.", _TRAINING)] = None,
    device: Annotated[
        str, typer.Option(help="cpu, or a torch device.", rich_help_panel=_TRAINING)
    ] = "cpu",
    start: Annotated[
        Path | None, _option("Continue this model, on more ratings.", _FILES, "--from")
    ] = None,
    resume: Annotated[bool, _option("Go on with an interrupted run.", _FILES, "--resume")] = False,
    save_every: Annotated[
        float, typer.Option(help="Seconds between saved states.", rich_help_panel=_FILES)
    ] = 30.0,
    without_context: Annotated[
        bool, _option("Leave the ratings out of the saved model.", _FILES, "--without-context")
    ] = False,
    reading: dict[str, Any],
) -> None:
    """Train a model and save it.

    cfnade train ml-1m --recipe ml-1m-item --split authors:1234 --out model
    cfnade train ratings.csv --out model
    cfnade train --resume --out model
    """
    given = {
        "side": side,
        "model": {"hidden": _sizes(hidden), "factors": factors, "ordinal_weight": ordinal},
        "training": {
            "epochs": epochs,
            "learning_rate": learning_rate,
            "weight_decay": weight_decay,
            "batch_rows": batch_rows,
            "patience": patience,
            "refit": refit,
            "seed": seed,
        },
    }
    if resume:
        job = _earlier_job(out)
    elif data is None:
        raise TrainingError("say what to train on: a file, a folder or a data set's name")
    else:
        job = _job(data, split, reading, recipe or "default", given)
        job |= {"threads": threads, "device": device, "from": str(start) if start else None}
        job |= {"without_context": without_context}
    _train(job, out, resume, save_every)


def _sizes(text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise TrainingError(f"--hidden {text}: write sizes like 500 or 500,500") from None


def _job(
    data: str, split: str, reading: dict[str, Any], name: str, given: dict[str, Any]
) -> dict[str, Any]:
    """All that a run depends on, as it is kept for --resume."""
    from cfnade.recipes import recipe

    base = recipe(name)
    chosen = {part: _given(given[part]) for part in ("model", "training")}
    # Factors on the command line against a recipe without them, and the like, just override it.
    return {
        "data": data,
        "split": split,
        "reading": reading,
        "recipe": base.name,
        "side": given["side"] or base.side,
        "model": base.model | chosen["model"],
        "training": base.training.to_dict() | chosen["training"],
    }


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _earlier_job(out: Path) -> dict[str, Any]:
    try:
        job: dict[str, Any] = json.loads((out / _RUN).read_text())
    except FileNotFoundError:
        raise TrainingError(
            f"{out}: holds no interrupted training ({_RUN}); start one without --resume"
        ) from None
    except ValueError as error:
        raise TrainingError(f"{out / _RUN}: cannot be read: {error}") from error
    return job


def _train(job: dict[str, Any], out: Path, resume: bool, save_every: float) -> None:
    from cfnade import checkpoint
    from cfnade.cli.progress import TrainingView
    from cfnade.data.parts import load_split
    from cfnade.files import write_text
    from cfnade.training import state
    from cfnade.training.loop import Saving
    from cfnade.training.run import train
    from cfnade.training.settings import Settings

    if job["side"] not in ("user", "item"):
        raise TrainingError(f'--side {job["side"]}: choose "user" or "item"')
    settings = Settings.from_dict(job["training"])
    parts = load_split(job["data"], job["split"], **job["reading"])
    print(parts, file=sys.stderr)
    out.mkdir(parents=True, exist_ok=True)
    if not resume:
        (out / state.NAME).unlink(missing_ok=True)
        write_text(out / _RUN, json.dumps(job, indent=1) + "\n")
    earlier = checkpoint.load(job["from"]) if job["from"] else None
    resume = resume and (out / state.NAME).exists()  # killed before its first state: from anew
    done = state.read_history(out) if resume else []
    with TrainingView(settings.epochs, out, done) as view, _Interrupt() as interrupt:
        trained = train(
            parts,
            side=job["side"],
            architecture=job["model"],
            settings=settings,
            start=earlier,
            device=job["device"],
            threads=job["threads"],
            saving=Saving(out, save_every, resume),
            reporter=view,
            stop=interrupt.asked,
        )
    facts = trained.bundle.facts | {"job": job}
    checkpoint.save(
        replace(trained.bundle, facts=facts), out, with_context=not job["without_context"]
    )
    _say_how_it_ended(trained, out)


def _say_how_it_ended(trained: Any, out: Path) -> None:
    facts = trained.bundle.facts
    best = f"epoch {facts['best_epoch']}"
    if facts["valid"]:
        best += f", validation RMSE {facts['valid']['rmse']:.4f}"
    print(f"{out}: model of {best}, {facts['seconds']:.1f} s of training")
    if trained.diverged:
        raise TrainingError(f"{trained.diverged}. The best model before that is kept in {out}")
    if trained.stopped:
        print(f"stopped; go on with: cfnade train --resume --out {out}")
    else:
        print(f"next: cfnade evaluate {out}")


class _Interrupt:
    """Ctrl-C ends the epoch under way; a second one ends at once."""

    def __init__(self) -> None:
        self._asked = False

    def __enter__(self) -> _Interrupt:
        self._before = signal.signal(signal.SIGINT, self._ask)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _ask(self, *_: object) -> None:
        if self._asked:
            raise KeyboardInterrupt
        self._asked = True
        print("ending this epoch; Ctrl-C again to stop at once", file=sys.stderr)

    def asked(self) -> bool:
        return self._asked
