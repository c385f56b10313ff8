"""All that a training run depends on, as run.json keeps it for --resume and for evaluate."""

from __future__ import annotations

import json
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any

from annotated_types import Ge

from cfnade.cli.arguments import READING
from cfnade.exceptions import TrainingError
from cfnade.utils.validation import check_scalar

if TYPE_CHECKING:
    from cfnade.data.splits import Split

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
    "keep_state": bool,
    "seeds": int,
    "minutes": float | int | None,
    "lists": bool | None,
    "plans": list | None,
}
DEFAULT_SPLIT = "default"
"""All interactions are for training; of ratings the paper's protocol keeps a test part."""

_DEFAULTS: Job = {
    "split": DEFAULT_SPLIT,
    "device": "cpu",
    "without_context": False,
    "keep_state": False,
    "seeds": 1,
    "minutes": None,
    "lists": None,
    "plans": None,
}
_LATER = ("keep_state", "seeds", "minutes", "lists", "plans")
"""Fields that runs begun with an earlier version lack; they did as the defaults do."""
_PARAMETERS = {
    ("from", "from"): "start",
    ("model", "time"): "know_time",
    ("reading", "cache"): "no_cache",
}
"""Fields that the command takes under other names."""


def new_job(asked: Job) -> Job:
    """The job of a command; what it leaves out (None) comes from the recipe and the defaults."""
    from cfnade.config import TrainingConfig
    from cfnade.recipes import default_recipe, load_recipe, model_fields, uses_blocks

    if asked["data"] is None:
        raise TrainingError(
            "say what to train on: a file, a folder, a data set's name, an address or - (a pipe)"
        )
    if _chooses_itself(asked):
        return _auto_job(asked)
    chosen: Job = _DEFAULTS | _filled(_settled(asked))
    check_scalar("seeds", chosen["seeds"], int, Ge(1), error=TrainingError)
    _check_side(chosen.get("side", "user"))
    named = "recipe" in chosen
    usual = default_recipe(chosen.get("side", "user"), asked["model"].get("ridge"))
    base = load_recipe(chosen["recipe"]) if named else usual
    side = chosen.get("side", base.side)
    if uses_blocks(side) != uses_blocks(base.side):
        raise TrainingError(
            f"--side {side}: recipe {base.name} is for side {base.side}; its settings mean "
            "something else there. Leave out --side, or --recipe"
        )
    if uses_blocks(side) and chosen["without_context"]:
        raise TrainingError(
            "--without-context: a model of both sides reads the ratings of the items that it "
            "predicts; train with --side user to share it without ratings"
        )
    settings = TrainingConfig.from_dict(base.training.to_dict() | _filled(asked["training"]))
    return {
        "threads": None,
        "from": None,
        **chosen,
        "recipe": base.name,
        "side": side,
        "model": model_fields(base.model | _filled(asked["model"]), f"recipe {base.name}"),
        "training": settings.to_dict(),
    }


def _chooses_itself(asked: Job) -> bool:
    """Whether members are chosen by the data: nothing is said of the model, or just that."""
    from cfnade.training.plan import is_automatic

    fields = {("model", name): value for name, value in asked["model"].items()}
    fields |= {(name, name): asked[name] for name in ("recipe", "seeds", "from")}
    fields |= {("training", name): value for name, value in asked["training"].items()}
    said = {
        _PARAMETERS.get(field, field[1]): str(value) if isinstance(value, Path) else value
        for field, value in fields.items()
        if value is not None and field[1] not in ("refit", "seed")
    }
    return is_automatic(asked["side"], asked["minutes"], said)


def _auto_job(asked: Job) -> Job:
    """A job whose plans are made when the data are known."""
    from cfnade.config import TrainingConfig

    settings = TrainingConfig.from_dict(_filled(asked["training"]))
    if asked["without_context"]:
        raise TrainingError(
            "--without-context: a model that is chosen by the data reads the ratings of the items "
            "that it predicts; train with --side user to share it without ratings"
        )
    chosen = _DEFAULTS | {"threads": None, "from": None} | _filled(_settled(asked))
    return chosen | {"recipe": "auto", "side": "auto", "model": {}, "training": settings.to_dict()}


def with_plans(job: Job, split: Any) -> Job:
    """The job with the members that the data and the time allow, if they are to be chosen."""
    from cfnade.training.plan import plan_automatic

    if job["side"] != "auto" or job["plans"] is not None:
        return job
    training = job["training"]
    plan = plan_automatic(
        split.train, time_budget=job["minutes"], seed=training["seed"], refit=training["refit"]
    )
    described = [
        {
            "side": one.side,
            "model": one.model,
            "training": one.training.to_dict(),
            "stage": one.stage,
        }
        for one in plan.members
    ]
    return job | {"plans": json.loads(json.dumps(described))}


def plan_of(job: Job) -> Any:
    """Return the plan of a job's members."""
    from cfnade.config import TrainingConfig
    from cfnade.recipes import model_fields
    from cfnade.training.plan import MemberPlan, TrainingPlan, plan_side

    if job["side"] != "auto":
        training = TrainingConfig.from_dict(job["training"])
        return plan_side(job["side"], job["model"], training, n_seeds=job["seeds"])
    members = [
        MemberPlan(
            one["side"],
            model_fields(one["model"], RUN),
            TrainingConfig.from_dict(one["training"]),
            one.get("stage", 0),
        )
        for one in job["plans"] or []
    ]
    return TrainingPlan(tuple(members), "select")


def earlier_job(out: Path, asked: Job) -> Job:
    """The job that a folder was begun with; whatever is given beside --resume must agree."""
    from cfnade.recipes import load_recipe

    job = read_job(out)
    if asked["recipe"] is not None:
        asked = asked | {"recipe": load_recipe(asked["recipe"]).name}
    for part, value in _filled(_settled(asked)).items():
        before, now = (job[part], value) if isinstance(value, dict) else (job, {part: value})
        for field, wish in _filled(now).items():
            if before.get(field) != wish:
                name = _PARAMETERS.get((part, field), field)
                raise TrainingError(
                    f"--resume goes on with the training as it was begun: {name}= was "
                    f"{_shown(before.get(field))}, not {_shown(wish)}; leave it out, or train "
                    "into another folder"
                )
    return job


def read_job(out: Path) -> Job:
    """The job of a folder, complete."""
    from cfnade.recipes import model_fields, training_config

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
    job = {name: _DEFAULTS[name] for name in _LATER} | job
    for name, kind in _KINDS.items():
        if name not in job or not isinstance(job[name], kind):
            raise _damaged(out, f"{name} is {'wrong' if name in job else 'missing'}")
    if unknown := set(job["reading"]) - READING:
        raise _damaged(out, f"reading has an unknown argument {min(unknown)!r}")
    model_fields(job["model"], str(out / RUN))
    training_config(job["training"], str(out / RUN))
    if job["side"] != "auto":
        _check_side(job["side"], f"{out / RUN}:")
    return job


def load_parts(job: Job) -> Split:
    """The parts of a job's data: ratings that are cut, or shards that have been."""
    from cfnade.data.load import load, load_split
    from cfnade.data.splits import split
    from cfnade.distributed.shards import ShardedRatings

    if ShardedRatings.is_one(job["data"]):
        return ShardedRatings.open(job["data"]).to_split()
    if job["split"] == DEFAULT_SPLIT:
        ratings = load(job["data"], **job["reading"])
        job["split"] = "all" if ratings.implicit else "paper:0"
        return split(ratings, job["split"])
    return load_split(job["data"], job["split"], **job["reading"])


def refuse_unfinished(out: Path) -> None:
    """A run that was interrupted is not thrown away by a command that forgot --resume."""
    from cfnade.distributed.state import exists
    from cfnade.training import state
    from cfnade.training.state import implicit_folder, member_folder

    if exists(out):
        raise TrainingError(
            f"{out}: holds an unfinished training of several ranks; go on with --resume under as "
            "many ranks, or start anew with --force"
        )
    if (implicit_folder(out) / state.NAME).exists():
        raise TrainingError(
            f"{out}: holds an unfinished training; go on with --resume, or start anew with --force"
        )
    if not (out / state.NAME).exists():
        return
    try:
        job = read_job(out)
        members = [one.training for one in plan_of(job).members]
        done = [_epochs_done(member_folder(out, n), one) for n, one in enumerate(members)]
    except TrainingError:
        return  # nothing that could be gone on with
    left = [epochs for epochs in done if epochs is not None]
    if left:
        number = done.index(left[0])
        model = f" of model {number + 1}" if len(members) > 1 else ""
        raise TrainingError(
            f"{out}: holds an unfinished training ({left[0]} of {members[number].epochs} "
            f"epochs{model}); "
            "go on with --resume, or start anew with --force"
        )


def _epochs_done(folder: Path, settings: Any) -> int | None:
    """How far a model came, None if it is finished."""
    from cfnade.training import state
    from cfnade.training.loop import Schedule

    schedule, run = Schedule.of(settings, 1), state.LoopState()
    for record in state.read_history(folder) if (folder / state.NAME).exists() else []:
        run.epoch, run.best_epoch = record["epoch"], record["best_epoch"]
        schedule.end_epoch(run)
    return None if run.epoch >= settings.epochs or schedule.finished(run) else run.epoch


def _settled(asked: Job) -> Job:
    """Data and paths that mean the same in any folder and at any time."""
    from cfnade.data.load import split_file
    from cfnade.data.remote import pin_source

    now = dict(asked)
    if asked["data"] is not None:
        now["data"], now["reading"] = pin_source(asked["data"], asked["reading"])
    if asked["split"] is not None and asked["split"].startswith("file:"):
        now["split"] = f"file:{pin_source(split_file(asked['split']), {})[0]}"
    if "item_features" in now["reading"]:
        features = pin_source(now["reading"]["item_features"], {})[0]
        now["reading"] = now["reading"] | {"item_features": features}
    now["from"] = None if asked["from"] is None else str(Path(asked["from"]).resolve())
    return now


def _check_side(side: str, where: str = "") -> None:
    from cfnade.recipes import check_side

    try:
        check_side(side)
    except TrainingError as error:
        raise TrainingError(f"{where} {error}" if where else str(error)) from error


def _filled(options: Job) -> Job:
    return {name: value for name, value in options.items() if value is not None}


def _shown(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _damaged(out: Path, what: str) -> TrainingError:
    return TrainingError(f"{out / RUN}: cannot be resumed: {what}; start anew without --resume")
