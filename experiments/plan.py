"""What an experiment file asks for: its runs, and the choices to be made before they start."""

from __future__ import annotations

import itertools
import tomllib
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from cfnade.config import TrainingConfig
from cfnade.exceptions import CfnadeError
from cfnade.models.config import CFNADEConfig
from cfnade.recipes import load_recipe


class PlanError(CfnadeError):
    """An experiment file that cannot be followed."""


@dataclass(frozen=True)
class Configuration:
    """Everything that a run depends on, apart from the split and the seed."""

    side: str
    model: dict[str, Any]
    training: dict[str, Any]
    variant: str | None = None
    """One of variants.py: what the authors' code does and the product does not."""
    unseen: str = "mean"
    """The rule for users and items that training never saw; the paper predicts 3."""
    members: int = 1
    """Models trained from this many seeds, their distributions averaged; each is scored too."""
    whole: bool = False
    """Train on train and validation together, where every choice was made before."""
    beside: tuple[dict[str, Any], ...] = ()
    """Members of other kinds, each with its side and the fields of its model."""
    shares: tuple[float, ...] = ()
    """What each kind counts where no validation part says it."""

    def changed(self, values: dict[str, Any]) -> Configuration:
        """The same with some fields of the model or the training changed, each by its name."""
        model = {name: v for name, v in values.items() if name in _MODEL}
        training = {name: v for name, v in values.items() if name not in _MODEL}
        return replace(self, model=self.model | model, training=self.training | training)


_MODEL = {*CFNADEConfig.__dataclass_fields__, "ridge", "gains", "time"}


@dataclass(frozen=True)
class Entry:
    """A line of a table, or a point of a figure: one configuration on some splits and seeds."""

    name: str
    label: str
    configuration: Configuration
    splits: tuple[str, ...]
    seeds: tuple[int, ...] = (0,)
    choose: dict[str, list[Any]] = field(default_factory=dict)
    """Values to choose among by validation, on the first split, before anything is tested."""
    choose_epochs: int | None = None
    """Epochs of the runs to choose by, where those of the schedule would take too long."""
    choose_like: str | None = None
    """The entry whose choice is taken over."""
    facts: dict[str, Any] = field(default_factory=dict)
    """What the report wants to know: the paper's number, the x of a figure …"""

    def candidates(self) -> list[dict[str, Any]]:
        """All combinations of the values to choose among."""
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
        found = {entry.name: entry for entry in self.entries}
        if name not in found:
            near = get_close_matches(name, found, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise PlanError(f"{self.table} has no run {name!r}{hint} (it has {', '.join(found)})")
        return found[name]


def read_plan(path: Path) -> Plan:
    """Read an experiment file; what it does not know it refuses."""
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise PlanError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise PlanError(f"{path}: is not TOML: {error}") from error
    _refuse_unknown(given, {"title", "data", "common", "runs"}, str(path))
    for name in ("title", "data", "runs"):
        if name not in given:
            raise PlanError(f"{path}: {name!r} is missing")
    common = given.get("common", {})
    for run in given["runs"]:
        _refuse_mixed(common, run, str(path))
    entries = tuple(_entry(_merged(common, run), str(path)) for run in given["runs"])
    names = [entry.name for entry in entries]
    if twice := {name for name in names if names.count(name) > 1}:
        raise PlanError(f"{path}: two runs have the name {sorted(twice)[0]!r}")
    return Plan(path.stem, given["title"], given["data"], entries)


_KEYS = {
    *("name", "label", "side", "recipe", "model", "training", "variant", "unseen"),
    *("members", "whole", "beside", "shares"),
    *("splits", "seeds", "choose", "choose_epochs", "choose_like", "facts"),
}


def _refuse_mixed(common: dict[str, Any], run: dict[str, Any], where: str) -> None:
    """The common fields would come before those of the run's own recipe, and nobody see it."""
    mixed = [part for part in ("model", "training") if part in common]
    if "recipe" in run and mixed:
        raise PlanError(
            f"{where}: run {run.get('name')} has a recipe, whose {mixed[0]} the common one would "
            "change; leave one of them out"
        )


def _merged(common: dict[str, Any], run: dict[str, Any]) -> dict[str, Any]:
    """A run's own values before the common ones; tables are merged key by key."""
    both = dict(common)
    for key, value in run.items():
        both[key] = both.get(key, {}) | value if isinstance(value, dict) else value
    return both


def _entry(given: dict[str, Any], where: str) -> Entry:
    _refuse_unknown(given, _KEYS, where)
    for key in ("name", "splits"):
        if key not in given:
            raise PlanError(f"{where}: a run has no {key!r}")
    where = f"{where}, run {given['name']}"
    side, model, training = given.get("side"), {}, {}
    if "recipe" in given:
        base = load_recipe(given["recipe"])
        side, model, training = side or base.side, dict(base.model), base.training.to_dict()
    if side is None:
        raise PlanError(f"{where}: give a side, or a recipe that has one")
    configuration = Configuration(
        side,
        model | given.get("model", {}),
        training | given.get("training", {}),
        given.get("variant"),
        given.get("unseen", "mean"),
        given.get("members", 1),
        given.get("whole", False),
        tuple(given.get("beside", ())),
        tuple(given.get("shares", ())),
    )
    TrainingConfig.from_dict(configuration.training)  # finds a misspelled name now
    return Entry(
        given["name"],
        given.get("label", given["name"]),
        configuration,
        tuple(given["splits"]),
        tuple(given.get("seeds", [0])),
        given.get("choose", {}),
        given.get("choose_epochs"),
        given.get("choose_like"),
        given.get("facts", {}),
    )


def _refuse_unknown(given: dict[str, Any], known: set[str], where: str) -> None:
    for key in given:
        if key not in known:
            near = get_close_matches(key, known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sorted(known))}"
            raise PlanError(f"{where}: unknown key {key!r}; {hint}")
