"""Recipes: tested presets as readable TOML files beside this one, or a file of your own.

side = "item"
[model]       fields of the model (docs/model.md)
[training]    training settings (docs/training.md)
[measured]    what it gave, on which data and split, in how many seconds
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, cast

from cfnade.data.ratings import Side
from cfnade.errors import TrainingError
from cfnade.models.config import CFNADEConfig
from cfnade.training.settings import Settings

_FOLDER = Path(__file__).parent
_SIZES = ("columns", "levels", "mean_context")  # these follow from the data


@dataclass(frozen=True)
class Recipe:
    """A side, the model's fields and the training settings."""

    name: str
    side: Side
    model: dict[str, Any] = field(default_factory=dict)
    training: Settings = field(default_factory=Settings)
    measured: dict[str, Any] = field(default_factory=dict)


def names() -> list[str]:
    """The recipes that come with cfnade."""
    return sorted(path.stem for path in _FOLDER.glob("*.toml"))


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
        given = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise TrainingError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise TrainingError(f"{path}: is not a recipe in TOML: {error}") from error
    return _parsed(path.stem, given)


def _parsed(name: str, given: dict[str, Any]) -> Recipe:
    unknown = set(given) - {"side", "model", "training", "measured"}
    if unknown:
        raise TrainingError(
            f"recipe {name}: unknown part {sorted(unknown)[0]!r}; a recipe has side, [model], "
            "[training] and [measured]"
        )
    side = given.get("side", "user")
    if side not in ("user", "item"):
        raise TrainingError(f'recipe {name}: side {side!r} must be "user" or "item"')
    model = dict(given.get("model", {}))
    known = [f for f in CFNADEConfig.__dataclass_fields__ if f not in _SIZES]
    for key in model:
        if key not in known:
            near = get_close_matches(key, known, 1)
            hint = f"; did you mean {near[0]!r}?" if near else f" (known: {', '.join(known)})"
            raise TrainingError(f"recipe {name}: unknown model field {key!r}{hint}")
    if "hidden" in model:
        model["hidden"] = tuple(model["hidden"])
    training = Settings.from_dict(given.get("training", {}))
    return Recipe(name, cast(Side, side), model, training, given.get("measured", {}))
