"""Recipes: tuned presets as TOML files in this folder, or a file of your own.

side = "item"  (or "user", or "both")
[model]       fields of the model (docs/concepts/model.md)
[training]    training options (docs/how-to/tune.md)
[measured]    accuracy and time, with the data set and the split
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge, Le, Len

from cfnade.components.registry import WITH_RIDGE, component_axis, component_names, is_closed_form
from cfnade.config import TrainingConfig
from cfnade.exceptions import ModelError, TrainingError
from cfnade.models.config import CFNADEConfig, check_factors
from cfnade.utils.text import option
from cfnade.utils.validation import check_options, describe_unknown, options

_FOLDER = Path(__file__).parent
_SIZES = ("columns", "levels", "mean_context")  # determined by the data
_TABLES = ("model", "training", "measured")


@options(TrainingError)
class _ComponentFields:
    """Fields under [model] that are not of the CF-NADE but of components that accompany it."""

    ridge: Annotated[int, Ge(0), Le(1000)] = 0
    samples: Annotated[int, Ge(1)] = 1
    """Samples of a factor analysis; 1: it is fitted by variational Bayes instead."""
    gains: Annotated[tuple[float, ...], Len(3, 3)] = (1.0, 1.0, 0.0)
    """Gains of the neighborhoods of users and of items, and the shift: (1.7, 3.0, -0.08)."""
    time: bool = False


@dataclass(frozen=True)
class Recipe:
    """A side, the fields of the model and the training options."""

    name: str
    side: str
    model: dict[str, Any] = field(default_factory=dict)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    measured: dict[str, Any] = field(default_factory=dict)


def recipe_names() -> list[str]:
    """Return the names of the recipes that are part of cfnade."""
    return sorted(path.stem for path in _FOLDER.glob("*.toml"))


def load_recipe(name: str | Path) -> Recipe:
    """Return the recipe of this name, or the recipe in this TOML file."""
    path = Path(name)
    if path.suffix != ".toml":
        path = _FOLDER / f"{name}.toml"
        if not path.exists():
            raise TrainingError(describe_unknown("recipe", str(name), recipe_names()))
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise TrainingError(f"{path}: cannot be read: {error.strerror}", path=path) from error
    except ValueError as error:
        raise TrainingError(f"{path}: is not a recipe in TOML: {error}", path=path) from error
    return _parse(path.stem, content)


def _parse(name: str, content: dict[str, Any]) -> Recipe:
    where = f"recipe {name}"
    if unknown := sorted(set(content) - {"side", *_TABLES}):
        raise TrainingError(
            f"{where}: unknown part {unknown[0]!r}; a recipe has side, [model], [training] and "
            "[measured]"
        )
    for table in _TABLES:
        if not isinstance(content.get(table, {}), dict):
            raise TrainingError(
                f"{where}: {table} (={content[table]!r}) must be a table: write [{table}] and its "
                "fields below"
            )
    side = content.get("side", "user")
    with _located(where):
        check_side(side)
    model = model_fields(content.get("model", {}), where)
    training = training_config(content.get("training", {}), where)
    return Recipe(name, side, model, training, content.get("measured", {}))


def model_fields(values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Check the fields of a model, except its sizes; error messages begin with `where`."""
    network = [field.name for field in fields(CFNADEConfig) if field.name not in _SIZES]
    valid: dict[str, type] = dict.fromkeys(network, CFNADEConfig)
    valid |= {field.name: _ComponentFields for field in fields(_ComponentFields)}
    checked: dict[str, Any] = {}
    with _located(where):
        for name, value in values.items():
            if name not in valid:
                raise TrainingError(describe_unknown("model field", name, valid), field=name)
            checked |= check_options(valid[name], {name: value})
        check_factors(checked.get("hidden", CFNADEConfig.hidden), checked.get("factors"))
    return checked


def training_config(values: Mapping[str, Any], where: str) -> TrainingConfig:
    """Create training options; error messages begin with `where`."""
    with _located(where):
        return TrainingConfig.from_dict(values)


@contextmanager
def _located(where: str) -> Iterator[None]:
    """Put the place in front of an error."""
    try:
        yield
    except (ModelError, TrainingError) as error:
        raise TrainingError(
            f"{where}: {error}", field=error.field, value=error.value, reason=error.reason
        ) from error


# -- sides ----------------------------------------------------------------------------------------


def member_kinds(side: str) -> list[str]:
    """Return the kinds of ensemble members that a side names, separated by commas."""
    return side.split(",") if isinstance(side, str) else [side]


def check_side(side: str) -> None:
    """Raise a TrainingError if a side is unknown or names a kind twice."""
    kinds = member_kinds(side)
    for kind in kinds:
        component_names(kind)
        if kinds.count(kind) > 1:
            raise TrainingError(
                f"side (={side!r}) names {kind} twice; several members of one kind are "
                f"{option('n_seeds', 2)}"
            )


def uses_blocks(side: str) -> bool:
    """Return whether the first member conditions on users and items, and so trains on blocks."""
    axes = {component_axis(name) for name in component_names(member_kinds(side)[0])}
    return axes >= {"user", "item"}


def default_recipe(side: str, ridge: int | None = None) -> Recipe:
    """Return the recipe of a side for which none is given; with several kinds, of the first.

    Users get a ridge component unless `ridge` is 0.
    """
    first = member_kinds(side)[0]
    if uses_blocks(side):
        name = "default-both"
    elif component_names(first, ridge=1) in WITH_RIDGE.values() and (ridge or ridge is None):
        name = "default" if ridge or first == "user" else "default-plain"
    else:
        name = "default-plain"
    recipe = replace(load_recipe(name), side=side)
    if is_closed_form(component_names(first)):
        recipe = replace(recipe, training=replace(recipe.training, epochs=0, average=0.0))
    return recipe
