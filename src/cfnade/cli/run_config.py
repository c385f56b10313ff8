"""The configuration of a training run, which run.json stores for --resume and the model for
`cfnade evaluate`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from annotated_types import Ge

from cfnade.cli.options import (
    ARCHITECTURE_OPTIONS,
    READ_OPTIONS,
    RUN_OPTIONS,
    TRAINING_OPTIONS,
    given_options,
    load_arguments,
)
from cfnade.exceptions import TrainingError
from cfnade.utils.validation import check_options, options

if TYPE_CHECKING:
    from cfnade.config import TrainingConfig
    from cfnade.data.splits import Split
    from cfnade.training.plan import TrainingPlan

RUN_FILE = "run.json"
DEFAULT_SPLIT = "default"
"""Interactions are all for training; of ratings the paper's protocol keeps a test part."""

Options = dict[str, Any]
"""The options on the command line by name; those of `load`, the model and its training are grouped
under "load", "model" and "training"."""


@options(TrainingError, "option")
class RunConfig:
    """Everything that a training run depends on. Fields are named after their options."""

    data: str
    load: dict[str, Any] = field(default_factory=dict)
    """Arguments of `cfnade.load`."""
    split: str = DEFAULT_SPLIT
    recipe: str
    side: str
    model: dict[str, Any] = field(default_factory=dict)
    """Fields of the model, apart from its sizes."""
    training: dict[str, Any] = field(default_factory=dict)
    """Fields of `TrainingConfig`."""
    learn_interactions: bool | None = None
    time_budget: float | None = None
    n_seeds: Annotated[int, Ge(1)] = 1
    init_model: str | None = None
    device: str = "cpu"
    n_threads: int | None = None
    without_context: bool = False
    keep_state: bool = False
    plans: list[dict[str, Any]] | None = None
    """With side "auto": the members that were planned for the data."""

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON can hold them."""
        values: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return values

    def training_config(self) -> TrainingConfig:
        """Return the training options of the first member."""
        from cfnade.config import TrainingConfig

        return TrainingConfig.from_dict(self.training)

    def estimator_parameters(self) -> Options:
        """Return the parameters with which `CFNADE` trains the same model."""
        from cfnade.models.config import CFNADEConfig
        from cfnade.training.parameters import ARCHITECTURE, TRAINING

        names = ("side", "learn_interactions", "device", "n_threads")
        parameters = {name: getattr(self, name) for name in names}
        if self.side == "auto":
            training = {name: self.training[name] for name in ("refit", "seed")}
            return parameters | training | {"time_budget": self.time_budget}
        fields = {"ridge": 0, "samples": None} | {
            name: getattr(CFNADEConfig, name) for name in ARCHITECTURE[2:]
        }
        fields |= {name: self.model[name] for name in ARCHITECTURE if name in self.model}
        further = {name: self.training[name] for name in self.training if name not in TRAINING}
        return {
            **parameters,
            **fields,
            **{name: self.training[name] for name in TRAINING if name in self.training},
            "use_timestamps": self.model.get("time", False),
            "training_options": further or None,
            "n_seeds": self.n_seeds,
        }


# -- from the command line ------------------------------------------------------------------------


def run_options(ctx: typer.Context) -> Options:
    """Return the options of a training command that are on the command line."""
    model = given_options(ctx, ARCHITECTURE_OPTIONS)
    if "use_timestamps" in model:
        model["time"] = model.pop("use_timestamps")
    if "hidden" in model:
        model["hidden"] = _sizes(model["hidden"])
    groups = {
        "load": load_arguments(ctx),
        "model": model,
        "training": given_options(ctx, TRAINING_OPTIONS),
    }
    return given_options(ctx, RUN_OPTIONS) | groups


def _sizes(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise TrainingError(f"--hidden {text}: write sizes such as 500 or 500,500") from None


def resolve(cli_options: Options) -> RunConfig:
    """Return the configuration of a new run: options, then the recipe, then defaults."""
    from cfnade.config import TrainingConfig
    from cfnade.recipes import default_recipe, load_recipe, model_fields, uses_blocks

    if "data" not in cli_options:
        raise TrainingError(
            "DATA is missing: give a file, a folder, the name of a data set, a URL, or - for "
            "standard input"
        )
    if _is_automatic(cli_options):
        return _automatic(cli_options)
    resolved = _with_absolute_paths(cli_options)
    _check_side(resolved.get("side", "user"))
    default = default_recipe(resolved.get("side", "user"), resolved["model"].get("ridge"))
    base = load_recipe(resolved["recipe"]) if "recipe" in resolved else default
    side = resolved.get("side", base.side)
    if uses_blocks(side) != uses_blocks(base.side):
        raise TrainingError(
            f"--side {side}: recipe {base.name} is for side {base.side}, and its training options "
            "do not apply. Omit --side or --recipe"
        )
    if uses_blocks(side) and resolved.get("without_context"):
        raise TrainingError(
            "--without-context: a model of side both needs the ratings of the items that it "
            "predicts; train with --side user to share a model without ratings"
        )
    training = TrainingConfig.from_dict(base.training.to_dict() | resolved["training"])
    return RunConfig(
        **resolved
        | {
            "recipe": base.name,
            "side": side,
            "model": model_fields(base.model | resolved["model"], f"recipe {base.name}"),
            "training": training.to_dict(),
        }
    )


def _is_automatic(cli_options: Options) -> bool:
    """Return whether members are planned: no option describes the model."""
    from cfnade.training.plan import is_automatic

    names = ("recipe", "n_seeds", "init_model")
    described = cli_options["model"] | {
        name: cli_options[name] for name in names if name in cli_options
    }
    described |= cli_options["training"]
    values = {
        name: str(value) if isinstance(value, Path) else value
        for name, value in described.items()
        if name not in ("refit", "seed")
    }
    return is_automatic(cli_options.get("side"), cli_options.get("time_budget"), values)


def _automatic(cli_options: Options) -> RunConfig:
    from cfnade.config import TrainingConfig

    if cli_options.get("without_context"):
        raise TrainingError(
            "--without-context: the members of side auto need the ratings of the items that they "
            "predict; train with --side user to share a model without ratings"
        )
    training = TrainingConfig.from_dict(cli_options["training"]).to_dict()
    resolved = _with_absolute_paths(cli_options)
    return RunConfig(**resolved | {"recipe": "auto", "side": "auto", "training": training})


def _with_absolute_paths(cli_options: Options) -> Options:
    """Return options that mean the same in any folder and at any time."""
    from cfnade.data.load import split_file
    from cfnade.data.remote import pin_source

    pinned = dict(cli_options)
    if "data" in cli_options:
        pinned["data"], pinned["load"] = pin_source(cli_options["data"], cli_options["load"])
    if cli_options.get("split", "").startswith("file:"):
        pinned["split"] = f"file:{pin_source(split_file(cli_options['split']), {})[0]}"
    if "item_features" in pinned["load"]:
        features = pin_source(pinned["load"]["item_features"], {})[0]
        pinned["load"] = pinned["load"] | {"item_features": features}
    if "init_model" in cli_options:
        pinned["init_model"] = str(Path(cli_options["init_model"]).resolve())
    return pinned


def _check_side(side: str, where: str = "") -> None:
    from cfnade.recipes import check_side

    try:
        check_side(side)
    except TrainingError as error:
        if not where:
            raise
        raise TrainingError(f"{where} {error}") from error


# -- run.json -------------------------------------------------------------------------------------


def resume(out: Path, cli_options: Options) -> RunConfig:
    """Return the configuration of an interrupted run; options that differ from it are refused."""
    from cfnade.recipes import load_recipe

    config = read_run(out)
    if "recipe" in cli_options:
        cli_options = cli_options | {"recipe": load_recipe(cli_options["recipe"]).name}
    stored = config.to_json()
    for name, value in _with_absolute_paths(cli_options).items():
        before, now = (stored[name], value) if isinstance(value, dict) else (stored, {name: value})
        for option, value_now in now.items():
            if before.get(option) != value_now:
                label = "DATA" if option == "data" else _OPTION_NAMES.get((name, option), option)
                raise TrainingError(
                    f"--resume: {_hyphened(label)} was {_format(before.get(option))} when the run "
                    f"began and is {_format(value_now)} now; omit it, or train into another folder"
                )
    return config


_OPTION_NAMES = {("model", "time"): "use_timestamps", ("load", "cache"): "no_cache"}


def _hyphened(name: str) -> str:
    return name if name.isupper() else f"--{name.replace('_', '-')}"


def read_run(out: Path) -> RunConfig:
    """Return the configuration in the run.json of a folder."""
    file = out / RUN_FILE
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise TrainingError(
            f"{out}: holds no interrupted run ({RUN_FILE}); start one without --resume"
        ) from None
    except (ValueError, RecursionError) as error:
        raise _damaged(file, str(error)) from error
    if not isinstance(values, dict):
        raise _damaged(file, "it is not a configuration")
    return from_json({n: v for n, v in values.items() if n != "finished"}, file)


def from_json(values: Mapping[str, Any], file: str | Path) -> RunConfig:
    """Return the configuration with these values; errors name the file."""
    from cfnade.recipes import model_fields, training_config

    types: dict[str, type] = {"load": dict, "model": dict, "training": dict}
    for one in fields(RunConfig):
        if one.name not in values:
            raise _damaged(file, f"{one.name} is missing")
        if not isinstance(values[one.name], types.get(one.name, object)):
            raise _damaged(file, f"{one.name} is wrong")
    try:
        config = RunConfig(**check_options(RunConfig, values))
    except TrainingError as error:
        raise _damaged(file, str(error)) from error
    if unknown := set(config.load) - set(READ_OPTIONS):
        raise _damaged(file, f"load has an unknown argument {min(unknown)!r}")
    model_fields(config.model, str(file))
    training_config(config.training, str(file))
    if config.side != "auto":
        _check_side(config.side, f"{file}:")
    return config


def _format(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _damaged(file: str | Path, reason: str) -> TrainingError:
    return TrainingError(f"{file}: cannot be resumed: {reason}; start again without --resume")


def require_no_unfinished_run(out: Path) -> None:
    """Refuse to replace a run that was interrupted."""
    from cfnade.distributed.state import exists
    from cfnade.training import state
    from cfnade.training.state import implicit_folder, member_folder

    advice = "continue it with --resume, or replace it with --overwrite"
    if exists(out):
        raise TrainingError(
            f"{out}: holds an unfinished run of several ranks; {advice}. Resuming needs as many "
            "ranks"
        )
    if (implicit_folder(out) / state.NAME).exists():
        raise TrainingError(f"{out}: holds an unfinished run; {advice}")
    if not (out / state.NAME).exists():
        return
    try:
        members = [member.training for member in training_plan(read_run(out)).members]
        epochs_done = [
            _unfinished_epoch(member_folder(out, n), config) for n, config in enumerate(members)
        ]
    except TrainingError:
        return  # it cannot be resumed
    unfinished = [epochs for epochs in epochs_done if epochs is not None]
    if unfinished:
        number = epochs_done.index(unfinished[0])
        model = f" of model {number + 1}" if len(members) > 1 else ""
        raise TrainingError(
            f"{out}: holds an unfinished run ({unfinished[0]} of {members[number].epochs} "
            f"epochs{model}); {advice}"
        )


def _unfinished_epoch(folder: Path, config: TrainingConfig) -> int | None:
    """Return the last epoch of a member, None if its training is finished."""
    from cfnade.training import state
    from cfnade.training.loop import Schedule

    schedule, run = Schedule.of(config, 1), state.LoopState()
    for record in state.read_history(folder) if (folder / state.NAME).exists() else []:
        run.epoch, run.best_epoch = record["epoch"], record["best_epoch"]
        schedule.end_epoch(run)
    return None if run.epoch >= config.epochs or schedule.finished(run) else run.epoch


# -- data and members -----------------------------------------------------------------------------


def require_source(config: RunConfig) -> None:
    """Raise a DataError if the data does not exist, before anything slow begins."""
    from cfnade.data.datasets import DATASETS
    from cfnade.data.load import locate
    from cfnade.data.remote import STANDARD_INPUT, STORE, url_scheme

    data = config.data
    elsewhere = data == STANDARD_INPUT or data.startswith(STORE) or url_scheme(data) is not None
    if not elsewhere and data not in DATASETS:
        locate(data, None)


def load_parts(config: RunConfig) -> Split:
    """Return the parts of the data of a run: a split, or shards that are divided already."""
    from cfnade.data.load import load, load_split
    from cfnade.data.splits import split
    from cfnade.distributed.shards import ShardedRatings

    if ShardedRatings.is_one(config.data):
        return ShardedRatings.open(config.data).to_split()
    if config.split == DEFAULT_SPLIT:
        ratings = load(config.data, **config.load)
        return split(ratings, "all" if ratings.implicit else "paper:0")
    return load_split(config.data, config.split, **config.load)


def with_split(config: RunConfig, parts: Split) -> RunConfig:
    """Return the configuration with the name of the split that was the default for the data."""
    if config.split != DEFAULT_SPLIT or parts.name == "shards":
        return config
    return replace(config, split="all" if parts.train.implicit else "paper:0")


def with_plans(config: RunConfig, split: Split) -> RunConfig:
    """Return the configuration with planned members if its side is "auto"."""
    from cfnade.training.plan import plan_automatic

    if config.side != "auto" or config.plans is not None:
        return config
    training = config.training_config()
    plan = plan_automatic(
        split.train, time_budget=config.time_budget, seed=training.seed, refit=training.refit
    )
    described = [
        {
            "side": member.side,
            "model": member.model,
            "training": member.training.to_dict(),
            "stage": member.stage,
        }
        for member in plan.members
    ]
    return replace(config, plans=json.loads(json.dumps(described)))


def training_plan(config: RunConfig) -> TrainingPlan:
    """Return the plan of the members, without that of the interaction model."""
    from cfnade.config import TrainingConfig
    from cfnade.recipes import model_fields
    from cfnade.training.plan import MemberPlan, TrainingPlan, plan_side

    if config.side != "auto":
        training = config.training_config()
        return plan_side(config.side, config.model, training, n_seeds=config.n_seeds)
    members = [
        MemberPlan(
            member["side"],
            model_fields(member["model"], RUN_FILE),
            TrainingConfig.from_dict(member["training"]),
            member.get("stage", 0),
        )
        for member in config.plans or []
    ]
    return TrainingPlan(tuple(members), "select")
