"""How each model of the comparison is fitted: readable TOML files beside this one.

title = "I-AutoRec"    its name in tables
model = "autorec"      its class in the registry
most_ratings = 200000  for slow ones: with more it is fitted only if it is named
[options]              found by validation on MovieLens 1M, and used for any other data
[ml-100k]              what differs on MovieLens 100K, found by validation there
[measured]             what it gave, on which split, with which seed, in how many seconds
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from cfnade.errors import ModelError
from cfnade_rivals import CLASSES

_FOLDER = Path(__file__).parent
_TABLES = ("options", "ml-100k", "measured")


@dataclass(frozen=True)
class Recipe:
    """A model's class and its options."""

    name: str
    title: str
    model: str
    options: dict[str, Any]
    on_100k: dict[str, Any] = field(default_factory=dict)
    measured: dict[str, Any] = field(default_factory=dict)
    most_ratings: int | None = None

    def options_for(self, data: str) -> dict[str, Any]:
        """The options for a data set, given its name."""
        return self.options | self.on_100k if data == "ml-100k" else dict(self.options)


def names() -> list[str]:
    """The recipes that come with cfnade."""
    return sorted(path.stem for path in _FOLDER.glob("*.toml"))


def recipe(name: str) -> Recipe:
    """The recipe of this name."""
    path = _FOLDER / f"{name}.toml"
    if name not in names():
        near = get_close_matches(name, names(), 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ModelError(f"unknown model {name!r}{hint} (known: {', '.join(names())})")
    given = tomllib.loads(path.read_text(encoding="utf-8"))
    unknown = set(given) - {"title", "model", "most_ratings", *_TABLES}
    if unknown or given.get("model") not in CLASSES:
        what = sorted(unknown)[0] if unknown else f"model {given.get('model')!r}"
        raise ModelError(f"{path.name}: {what} is not understood; see recipes/__init__.py")
    options, on_100k, measured = (given.get(table, {}) for table in _TABLES)
    title, most = given.get("title", name), given.get("most_ratings")
    return Recipe(name, title, given["model"], options, on_100k, measured, most)
