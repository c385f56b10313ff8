"""Experiment files: the runs of a table, and the options that validation chooses before them."""

from __future__ import annotations

import itertools
import tomllib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cfnade.config import TrainingConfig
from cfnade.exceptions import CfnadeError
from cfnade.models.config import CFNADEConfig
from cfnade.recipes import load_recipe
from cfnade.utils.validation import describe_unknown


class PlanError(CfnadeError):
    """An experiment file is invalid."""


@dataclass(frozen=True)
class Configuration:
    """Everything that a run depends on, except the split and the seed."""

    side: str
    model: dict[str, Any]
    training: dict[str, Any]
    variant: str | None = None
    """Name of a behavior of the authors' code in variants.py."""
    unseen: str = "mean"
    """Prediction for users and items without training ratings; the paper predicts 3."""
    members: int = 1
    """Number of seeds of an ensemble; each member is scored, too."""
    whole: bool = False
    """Train on the training and validation parts together, with all options chosen before."""
    beside: tuple[dict[str, Any], ...] = ()
    """Further members, each with its side and the fields of its model."""
    shares: tuple[float, ...] = ()
    """Weights of the kinds of members where there is no validation part."""

    def changed(self, values: dict[str, Any]) -> Configuration:
        """Return a configuration with changed fields of the model or the training, by name."""
        model = {name: v for name, v in values.items() if name in _MODEL}
        training = {name: v for name, v in values.items() if name not in _MODEL}
        return replace(self, model=self.model | model, training=self.training | training)


_MODEL = {*CFNADEConfig.__dataclass_fields__, "ridge", "gains", "time"}


@dataclass(frozen=True)
class Entry:
    """A row of a table or a point of a figure: one configuration on some splits and seeds."""

    name: str
    label: str
    configuration: Configuration
    splits: tuple[str, ...]
    seeds: tuple[int, ...] = (0,)
    choose: dict[str, list[Any]] = field(default_factory=dict)
    """Values to choose among by validation, on the first split, before anything is tested."""
    choose_epochs: int | None = None
    """Epochs of the candidates, where the full schedule would take too long."""
    choose_like: str | None = None
    """Name of the entry whose choice is used."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Facts for the report: the paper's figure, the x of a figure …"""

    def candidates(self) -> list[dict[str, Any]]:
        """Return all combinations of the values of `choose`."""
        values = itertools.product(*self.choose.values())
        return [dict(zip(self.choose, combination, strict=True)) for combination in values]


@dataclass(frozen=True)
class Plan:
    """An experiment file: the entries of one table or figure."""

    table: str
    title: str
    data: str
    entries: tuple[Entry, ...]

    def entry(self, name: str) -> Entry:
        """Return the entry of this name."""
        entries = {entry.name: entry for entry in self.entries}
        if name not in entries:
            raise PlanError(f"{self.table}: {describe_unknown('run', name, entries)}")
        return entries[name]


def read_plan(path: Path) -> Plan:
    """Read an experiment file; unknown keys are refused."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise PlanError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise PlanError(f"{path}: is not TOML: {error}") from error
    _refuse_unknown(tables, {"title", "data", "common", "runs"}, str(path))
    for name in ("title", "data", "runs"):
        if name not in tables:
            raise PlanError(f"{path}: {name!r} is missing")
    common = tables.get("common", {})
    for run in tables["runs"]:
        _refuse_mixed(common, run, str(path))
    entries = tuple(_entry(_merged(common, run), str(path)) for run in tables["runs"])
    names = [entry.name for entry in entries]
    if repeated := {name for name in names if names.count(name) > 1}:
        raise PlanError(f"{path}: two runs have the name {sorted(repeated)[0]!r}")
    return Plan(path.stem, tables["title"], tables["data"], entries)


_KEYS = {
    *("name", "label", "side", "recipe", "model", "training", "variant", "unseen"),
    *("members", "whole", "beside", "shares"),
    *("splits", "seeds", "choose", "choose_epochs", "choose_like", "facts"),
}


def _refuse_mixed(common: dict[str, Any], run: dict[str, Any], where: str) -> None:
    """Refuse a recipe beside common fields, which would silently change it."""
    mixed = [part for part in ("model", "training") if part in common]
    if "recipe" in run and mixed:
        raise PlanError(
            f"{where}: run {run.get('name')} has a recipe, whose {mixed[0]} the common one would "
            "change; leave one of them out"
        )


def _merged(common: dict[str, Any], run: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a run, else the common ones; tables are merged key by key."""
    merged = dict(common)
    for key, value in run.items():
        merged[key] = merged.get(key, {}) | value if isinstance(value, dict) else value
    return merged


def _entry(run: dict[str, Any], where: str) -> Entry:
    _refuse_unknown(run, _KEYS, where)
    for key in ("name", "splits"):
        if key not in run:
            raise PlanError(f"{where}: a run has no {key!r}")
    where = f"{where}, run {run['name']}"
    side, model, training = run.get("side"), {}, {}
    if "recipe" in run:
        base = load_recipe(run["recipe"])
        side, model, training = side or base.side, dict(base.model), base.training.to_dict()
    if side is None:
        raise PlanError(f"{where}: give a side, or a recipe that has one")
    configuration = Configuration(
        side,
        model | run.get("model", {}),
        training | run.get("training", {}),
        run.get("variant"),
        run.get("unseen", "mean"),
        run.get("members", 1),
        run.get("whole", False),
        tuple(run.get("beside", ())),
        tuple(run.get("shares", ())),
    )
    TrainingConfig.from_dict(configuration.training)  # refuses unknown options
    return Entry(
        run["name"],
        run.get("label", run["name"]),
        configuration,
        tuple(run["splits"]),
        tuple(run.get("seeds", [0])),
        run.get("choose", {}),
        run.get("choose_epochs"),
        run.get("choose_like"),
        run.get("facts", {}),
    )


def _refuse_unknown(table: dict[str, Any], keys: set[str], where: str) -> None:
    for key in table:
        if key not in keys:
            raise PlanError(f"{where}: {describe_unknown('key', key, keys)}")
