"""The configuration of a training run, which run.json stores for --resume and the model for
`cfnade evaluate`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import Ge

from cfnade.cli.options import (
    ArchitectureArguments,
    LoadArguments,
    TrainingArguments,
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
"""Options on the command line by name; those of `load`, the model and its training are grouped
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
    metric: Literal["ndcg", "recall"] = "ndcg"
    k: Annotated[int, Ge(1)] = 20
    time_budget: float | None = None
    n_seeds: Annotated[int, Ge(1)] = 1
    init_model: str | None = None
    device: str = "cpu"
    n_threads: int | None = None
    without_context: bool = False
    keep_state: bool = False

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

        names = ("side", "learn_interactions", "metric", "k", "device", "n_threads")
        parameters = {name: getattr(self, name) for name in names}
        if self.side == "auto":
            training = {name: self.training[name] for name in ("refit", "seed")}
            return parameters | training | {"time_budget": self.time_budget}
        model = {name: getattr(CFNADEConfig, name) for name in ARCHITECTURE[2:]}
        model |= {"ridge": 0, "samples": None}
        model |= {name: self.model[name] for name in ARCHITECTURE if name in self.model}
        further = {name: value for name, value in self.training.items() if name not in TRAINING}
        return {
            **parameters,
            **model,
            **{name: self.training[name] for name in TRAINING if name in self.training},
            "use_timestamps": self.model.get("time", False),
            "training_options": further or None,
            "n_seeds": self.n_seeds,
        }


# -- from the command line ------------------------------------------------------------------------


def run_options(options: Mapping[str, Any]) -> Options:
    """Group the options of a training command that are on the command line."""
    options = given_options(options)
    model = _select(options, ArchitectureArguments.__annotations__)
    if "use_timestamps" in options:
        model["time"] = options["use_timestamps"]
    if "hidden" in model:
        try:
            model["hidden"] = [int(size) for size in model["hidden"].split(",")]
        except ValueError:
            raise TrainingError(
                f"--hidden {model['hidden']}: write sizes such as 500 or 500,500"
            ) from None
    groups = {
        "load": load_arguments(options),
        "model": model,
        "training": _select(options, TrainingArguments.__annotations__),
    }
    return _select(options, RunConfig.__dataclass_fields__) | groups


def _select(options: Mapping[str, Any], names: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name in names}


def resolve(cli_options: Options) -> RunConfig:
    """Return the configuration of a new run: options, then the recipe, then defaults."""
    from cfnade.config import TrainingConfig
    from cfnade.recipes import check_side, default_recipe, load_recipe, model_fields, uses_blocks

    if "data" not in cli_options:
        raise TrainingError(
            "DATA is missing: give a file, a folder, the name of a data set, a URL, or - for "
            "standard input"
        )
    resolved = _with_absolute_paths(cli_options)
    if _is_automatic(cli_options):
        training = TrainingConfig.from_dict(resolved["training"])
        config = RunConfig(
            **resolved | {"recipe": "auto", "side": "auto", "training": training.to_dict()}
        )
        _require_context("auto", config.without_context)
        return config
    check_side(resolved.get("side", "user"))
    default = default_recipe(resolved.get("side", "user"), resolved["model"].get("ridge"))
    base = load_recipe(resolved["recipe"]) if "recipe" in resolved else default
    side = resolved.get("side", base.side)
    if uses_blocks(side) != uses_blocks(base.side):
        raise TrainingError(
            f"--side {side}: recipe {base.name} is for side {base.side}, and its training options "
            "do not apply. Omit --side or --recipe"
        )
    if uses_blocks(side):
        _require_context(side, resolved.get("without_context", False))
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


def require_source(data: str) -> None:
    """Raise a DataError if a file or data set does not exist, before anything slow begins."""
    from cfnade.data.datasets import DATASETS
    from cfnade.data.load import locate
    from cfnade.data.remote import STANDARD_INPUT, STORE, url_scheme

    is_remote = data == STANDARD_INPUT or data.startswith(STORE) or url_scheme(data) is not None
    if not is_remote and data not in DATASETS:
        locate(data, None)


def _is_automatic(cli_options: Options) -> bool:
    """Return whether members are planned: no option describes the model."""
    from cfnade.training.plan import is_automatic

    described = cli_options["model"] | cli_options["training"]
    for name in ("recipe", "n_seeds", "init_model"):
        if name in cli_options:
            described[name] = cli_options[name]
    described = {n: v for n, v in described.items() if n not in ("refit", "seed")}
    return is_automatic(cli_options.get("side"), cli_options.get("time_budget"), described)


def _require_context(side: str, without_context: bool) -> None:
    if without_context:
        raise TrainingError(
            f"--without-context: models of side {side} need the ratings of the items that they "
            "predict; train with --side user to share a model without ratings"
        )


def _with_absolute_paths(cli_options: Options) -> Options:
    """Return options that mean the same in any folder and at any time."""
    from cfnade.data.load import split_file
    from cfnade.data.remote import pin_source

    pinned = dict(cli_options)
    if "data" in pinned:
        pinned["data"], pinned["load"] = pin_source(pinned["data"], pinned["load"])
    if pinned.get("split", "").startswith("file:"):
        pinned["split"] = f"file:{pin_source(split_file(pinned['split']), {})[0]}"
    if "item_features" in pinned["load"]:
        features, _ = pin_source(pinned["load"]["item_features"], {})
        pinned["load"] = pinned["load"] | {"item_features": features}
    if "init_model" in pinned:
        pinned["init_model"] = str(Path(pinned["init_model"]).resolve())
    return pinned


# -- run.json -------------------------------------------------------------------------------------


def resume(out: Path, cli_options: Options) -> RunConfig:
    """Return the configuration of an interrupted run; options that differ from it are refused."""
    from cfnade.recipes import load_recipe

    config = read_run(out)
    if "recipe" in cli_options:
        cli_options = cli_options | {"recipe": load_recipe(cli_options["recipe"]).name}
    stored = config.to_json()
    for group, value in _with_absolute_paths(cli_options).items():
        before, now = (
            (stored[group], value) if isinstance(value, dict) else (stored, {group: value})
        )
        for name, value_now in now.items():
            if before.get(name) != value_now:
                raise TrainingError(
                    f"--resume: {_OPTION_NAMES.get((group, name)) or _hyphened(name)} was "
                    f"{_format(before.get(name))} when the run began and is {_format(value_now)} "
                    "now; omit it, or train into another folder"
                )
    return config


_OPTION_NAMES = {
    ("data", "data"): "DATA",
    ("model", "time"): "--use-timestamps",
    ("load", "cache"): "--no-cache",
}


def _hyphened(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _format(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def read_run(out: Path) -> RunConfig:
    """Return the configuration in the run.json of a folder."""
    file = out / RUN_FILE
    values = _read_json(file)
    return from_json({name: values[name] for name in values if name != "finished"}, file)


def is_finished(out: Path) -> bool:
    """Return whether the run in the folder has ended."""
    return bool(_read_json(out / RUN_FILE).get("finished", False))


def _read_json(file: Path) -> dict[str, Any]:
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise TrainingError(
            f"{file.parent}: holds no interrupted run ({RUN_FILE}); start one without --resume"
        ) from None
    except (ValueError, RecursionError) as error:
        raise _damaged(file, str(error)) from error
    if not isinstance(values, dict):
        raise _damaged(file, "it is not a configuration")
    return values


def from_json(values: Mapping[str, Any], file: str | Path) -> RunConfig:
    """Return the configuration with these values; errors name the file."""
    from cfnade.recipes import check_side, model_fields, training_config

    for one_field in fields(RunConfig):
        if one_field.name not in values:
            raise _damaged(file, f"{one_field.name} is missing")
    try:
        config = RunConfig(**check_options(RunConfig, values))
        for name in ("load", "model", "training"):
            if not isinstance(values[name], dict):
                raise TrainingError(f"{name} is not a table")
        if unknown := set(config.load) - set(LoadArguments.__annotations__):
            raise TrainingError(f"load has an unknown argument {min(unknown)!r}")
        if config.side != "auto":
            check_side(config.side)
    except TrainingError as error:
        raise _damaged(file, str(error)) from error
    model_fields(config.model, str(file))
    training_config(config.training, str(file))
    return config


def _damaged(file: str | Path, reason: str) -> TrainingError:
    return TrainingError(f"{file}: cannot be resumed: {reason}; start again without --resume")


# -- data and plan --------------------------------------------------------------------------------


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
    return replace(config, split=parts.name)


def training_plan(config: RunConfig, parts: Split) -> TrainingPlan:
    """Return what is trained on these data."""
    return _plan(config, parts).with_metric(config.metric, config.k)


def _plan(config: RunConfig, parts: Split) -> TrainingPlan:
    from cfnade.training.implicit import implicit_plan
    from cfnade.training.plan import TrainingPlan, plan_automatic, plan_implicit, plan_side

    training, train = config.training_config(), parts.train
    if train.implicit:
        if config.side != "auto" or config.init_model or config.learn_interactions is False:
            raise TrainingError(
                f"{config.data}: these are interactions without ratings; omit the options of "
                "models of ratings (--side, --recipe, --init-model, --no-learn-interactions)"
            )
        seed, time_budget = training.seed, config.time_budget
        return TrainingPlan(implicit=implicit_plan(train, seed=seed, time_budget=time_budget))
    if config.side == "auto":
        return plan_automatic(
            train,
            time_budget=config.time_budget,
            seed=training.seed,
            refit=training.refit,
            learn_interactions=config.learn_interactions,
        )
    plan = plan_side(config.side, config.model, training, n_seeds=config.n_seeds)
    implicit = plan_implicit(train, config.learn_interactions, plan.members, seed=training.seed)
    return replace(plan, implicit=implicit)
