"""All that a training run depends on, as run.json keeps it for --resume and for evaluate."""

from __future__ import annotations

import json
from pathlib import Path
from types import UnionType
from typing import Any

from cfnade.cli.reading import READING
from cfnade.errors import TrainingError

RUN = "run.json"

Job = dict[str, Any]

_KINDS: dict[str, type | UnionType] = {
    "data": str,
    "split": str,
    "reading": dict,
    "recipe": str,
    "side": str,
    "model": dict,
    "training": dict,
    "threads": int | None,
    "device": str,
    "from": str | None,
    "without_context": bool,
    "seeds": int,
}
_DEFAULTS: Job = {
    "split": "paper:0",
    "device": "cpu",
    "without_context": False,
    "seeds": 1,
}
_OPTIONS = {
    "data": "DATA",
    "ordinal_weight": "--ordinal",
    "time": "--know-time",
    "cache": "--no-cache",
}


def new_job(given: Job) -> Job:
    """The job of a command; what it leaves out (None) comes from the recipe and the defaults."""
    from cfnade.recipes import default_recipe, model_fields, recipe
    from cfnade.settings import Settings

    if given["data"] is None:
        raise TrainingError("say what to train on: a file, a folder or a data set's name")
    chosen: Job = _DEFAULTS | _given(_settled(given))
    if chosen["seeds"] < 1:
        raise TrainingError(f"--seeds {chosen['seeds']}: must be at least 1")
    asked = _side(chosen.get("side", "user"))
    base = recipe(chosen["recipe"]) if "recipe" in chosen else default_recipe(asked)
    side = chosen.get("side", base.side)
    if (side == "both") != (base.side == "both"):
        raise TrainingError(
            f"--side {side}: recipe {base.name} is for side {base.side}; its settings mean "
            "something else there. Leave out --side, or --recipe"
        )
    if side == "both" and chosen["without_context"]:
        raise TrainingError(
            "--without-context: a model of both sides reads the ratings of the items that it "
            "predicts; train with --side user to share it without ratings"
        )
    settings = Settings.from_dict(base.training.to_dict() | _given(given["training"]))
    return {
        "threads": None,
        "from": None,
        **chosen,
        "recipe": base.name,
        "side": side,
        "model": model_fields(base.model | _given(given["model"]), f"recipe {base.name}"),
        "training": settings.to_dict(),
    }


def earlier_job(out: Path, given: Job) -> Job:
    """The job that a folder was begun with; whatever is given beside --resume must agree."""
    job = read_job(out)
    for name, value in _given(_settled(given)).items():
        if name == "recipe":
            from cfnade.recipes import recipe

            value = recipe(value).name
        asked = value if isinstance(value, dict) else {name: value}
        known = job[name] if isinstance(value, dict) else job
        for field, wanted in _given(asked).items():
            was = known.get(field)
            if was != wanted:
                option = _OPTIONS.get(field, f"--{field.replace('_', '-')}")
                raise TrainingError(
                    f"--resume goes on with the training as it was begun: {option} was "
                    f"{_shown(was)}, not {_shown(wanted)}; leave it out, or train into another "
                    "folder"
                )
    return job


def read_job(out: Path) -> Job:
    """The job of a folder, complete."""
    try:
        job = json.loads((out / RUN).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise TrainingError(
            f"{out}: holds no interrupted training ({RUN}); start one without --resume"
        ) from None
    except (ValueError, RecursionError) as error:
        raise _damaged(out, str(error)) from error
    if not isinstance(job, dict):
        raise _damaged(out, "it is not the arguments of a training")
    job.setdefault("seeds", 1)  # as in runs begun before there were ensembles
    for name, kind in _KINDS.items():
        if name not in job or not isinstance(job[name], kind):
            raise _damaged(out, f"{name} is {'wrong' if name in job else 'missing'}")
    if unknown := set(job["reading"]) - READING:
        raise _damaged(out, f"reading has an unknown argument {min(unknown)!r}")
    return _checked(job, out)


def _checked(job: Job, out: Path) -> Job:
    from cfnade.recipes import model_fields, training_settings

    model_fields(job["model"], str(out / RUN))
    training_settings(job["training"], str(out / RUN))
    _side(job["side"])
    return job


def refuse_unfinished(out: Path) -> None:
    """A run that was interrupted is not thrown away by a command that forgot --resume."""
    from cfnade.settings import Settings
    from cfnade.training import state
    from cfnade.training.state import member_folder

    if not (out / state.NAME).exists():
        return
    try:
        job = read_job(out)
        settings = Settings.from_dict(job["training"])
        done = [_epochs_done(member_folder(out, n), settings) for n in range(job["seeds"])]
    except TrainingError:
        return  # nothing that could be gone on with
    left = [epochs for epochs in done if epochs is not None]
    if left:
        model = f" of model {done.index(left[0]) + 1}" if job["seeds"] > 1 else ""
        raise TrainingError(
            f"{out}: holds an unfinished training ({left[0]} of {settings.epochs} epochs{model}); "
            f"go on with --resume, or delete {state.NAME} to start anew"
        )


def _epochs_done(folder: Path, settings: Any) -> int | None:
    """How far a model came, None if it is finished."""
    from cfnade.training import state
    from cfnade.training.schedule import Schedule

    schedule, epoch, best = Schedule(settings, 1), 0, 0
    for record in state.read_history(folder) if (folder / state.NAME).exists() else []:
        epoch, best = record["epoch"], record["best_epoch"]
        schedule.after_epoch(epoch, best)
    finished = epoch >= settings.epochs or schedule.finished(epoch, best)
    return None if finished else epoch


def _settled(given: Job) -> Job:
    """Paths that mean the same in any folder."""
    settled = {**given, "data": _place(given["data"])}
    if given["split"] is not None and given["split"].startswith("file:"):
        settled["split"] = f"file:{_place(given['split'].removeprefix('file:'))}"
    settled["from"] = None if given["from"] is None else str(Path(given["from"]).resolve())
    return settled


def _place(data: str | None) -> str | None:
    from cfnade.data.named import SETS

    if data is None or data in SETS:
        return data
    path = Path(data).expanduser()
    return str(path.resolve()) if path.exists() else data


def _side(side: str) -> str:
    from cfnade.bundle import SIDES, SIDES_IN_WORDS

    if side not in SIDES:
        raise TrainingError(f"--side {side}: choose {SIDES_IN_WORDS}")
    return side


def _given(options: Job) -> Job:
    return {name: value for name, value in options.items() if value is not None}


def _shown(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _damaged(out: Path, what: str) -> TrainingError:
    return TrainingError(f"{out / RUN}: cannot be resumed: {what}; start anew without --resume")
