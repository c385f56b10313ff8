"""Recipes: tested presets as readable TOML files beside this one, or a file of your own.

side = "item"  (or "user", or "both")
[model]       fields of the model (docs/model.md)
[training]    training settings (docs/training.md)
[measured]    what it gave, on which data and split, in how many seconds
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from cfnade.exceptions import ModelError, TrainingError
from cfnade.models.config import CFNADEConfig
from cfnade.options import TRUE_OR_FALSE, Allowed, checked, number, sequence, unknown, whole
from cfnade.settings import Settings
from cfnade.sides import KINDS, WITH_RIDGE, are_made, side_names
from cfnade.training.run import Plan

_FOLDER = Path(__file__).parent
_NUMBERS = sequence(number(), "[1.7, 3.0, -0.08]")
_GAINS: Allowed[Any] = Allowed(
    "three numbers such as [1.7, 3.0, -0.08]: the gains of user-near and item-near, and the shift",
    lambda given: _NUMBERS.fits(given) and len(given) == 3,
    _NUMBERS.plain,
)
_BESIDE: dict[str, Allowed[Any]] = {
    "ridge": whole(0, 1000),
    "gains": _GAINS,
    "time": TRUE_OR_FALSE,
}  # what stands beside a CF-NADE
_SIZES = ("columns", "levels", "mean_context")  # these follow from the data


@dataclass(frozen=True)
class Recipe:
    """A side, the model's fields and the training settings."""

    name: str
    side: str
    model: dict[str, Any] = field(default_factory=dict)
    training: Settings = field(default_factory=Settings)
    measured: dict[str, Any] = field(default_factory=dict)


def names() -> list[str]:
    """The recipes that come with cfnade."""
    return sorted(path.stem for path in _FOLDER.glob("*.toml"))


def kinds_in(side: str) -> list[str]:
    """The kinds of members that a side names: several are joined by commas."""
    return side.split(",") if isinstance(side, str) else [side]


def default_recipe(side: str, ridge: int | None = None) -> Recipe:
    """What is taken for a side when nothing is said: a ridge part for users, unless it is 0.

    Of several kinds of members it is that of the first.
    """
    first = kinds_in(side)[0]
    if draws_blocks(side):
        name = "default-both"
    elif side_names(first, ridge=1) in WITH_RIDGE.values() and (ridge or ridge is None):
        name = "default" if ridge or first == "user" else "default-plain"
    else:
        name = "default-plain"
    usual = replace(recipe(name), side=side)
    if are_made(side_names(first)):
        usual = replace(usual, training=replace(usual.training, epochs=0, average=0.0))
    return usual


def plans_beside(side: str, seed: int) -> list[Plan]:
    """How members of further kinds are trained: by their default recipes."""
    usual = [default_recipe(kind) for kind in kinds_in(side)[1:]]
    return [Plan(one.side, one.model, replace(one.training, seed=seed)) for one in usual]


def check_side(side: str) -> None:
    """Refuse what names no sides, or a kind twice."""
    kinds = kinds_in(side)
    for kind in kinds:
        side_names(kind)
        if kinds.count(kind) > 1:
            raise TrainingError(
                f"side (={side!r}) names {kind} twice; several members of one kind are seeds=2"
            )


def draws_blocks(side: str) -> bool:
    """Whether a model of that side reads both users and items, so that settings mean blocks."""
    return len({KINDS[name].axis for name in side_names(kinds_in(side)[0])} - {None}) == 2


def recipe(name: str | Path) -> Recipe:
    """The recipe of this name, or in this file."""
    path = Path(name)
    if path.suffix != ".toml":
        path = _FOLDER / f"{name}.toml"
        if not path.exists():
            near = get_close_matches(str(name), names(), 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise TrainingError(f"unknown recipe {str(name)!r}{hint} (known: {', '.join(names())})")
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise TrainingError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise TrainingError(f"{path}: is not a recipe in TOML: {error}") from error
    return _parsed(path.stem, content)


def _parsed(name: str, given: dict[str, Any]) -> Recipe:
    strange = set(given) - {"side", "model", "training", "measured"}
    if strange:
        raise TrainingError(
            f"recipe {name}: unknown part {sorted(strange)[0]!r}; a recipe has side, [model], "
            "[training] and [measured]"
        )
    side = given.get("side", "user")
    try:
        check_side(side)
    except TrainingError as error:
        raise TrainingError(f"recipe {name}: {error}") from error
    for part in ("model", "training", "measured"):
        if not isinstance(given.get(part, {}), dict):
            raise TrainingError(
                f"recipe {name}: {part} (={given[part]!r}) must be a table: write [{part}] and "
                "its fields below"
            )
    return Recipe(
        name,
        side,
        model_fields(given.get("model", {}), f"recipe {name}"),
        training_settings(given.get("training", {}), f"recipe {name}"),
        given.get("measured", {}),
    )


def model_fields(given: dict[str, Any], where: str) -> dict[str, Any]:
    """Fields of a model other than its sizes, checked; `where` begins the message of an error."""
    names = [*(f for f in CFNADEConfig.__dataclass_fields__ if f not in _SIZES), *_BESIDE]
    for key in given:
        if key not in names:
            raise TrainingError(f"{where}: {unknown('model field', key, names)}")
    for name, rule in _BESIDE.items():
        if name in given:
            checked(name, given[name], rule, TrainingError, f"{where}:")
    hidden = given.get("hidden", [])
    if isinstance(hidden, int | float):
        raise TrainingError(f"{where}: hidden (={hidden!r}) must be a list: write [{hidden}]")
    try:
        # Sizes of the data are not known yet; the smallest ones show what else is wrong.
        sizes: dict[str, Any] = {"columns": 1, "levels": 2}
        if given.get("context_scale") == "sqrt":
            sizes["mean_context"] = 1.0
        CFNADEConfig(**{name: v for name, v in given.items() if name not in _BESIDE}, **sizes)
    except ModelError as error:
        raise TrainingError(f"{where}: {error}") from error
    return given | {"hidden": tuple(hidden)} if "hidden" in given else given


def training_settings(given: dict[str, Any], where: str) -> Settings:
    """Training settings, checked."""
    try:
        return Settings.from_dict(given)
    except TrainingError as error:
        raise TrainingError(f"{where}: {error}") from error
    except TypeError as error:  # two numbers were expected, or a text
        raise TrainingError(f"{where}: a training setting has a wrong type: {error}") from error
