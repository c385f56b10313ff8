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
from pathlib import Path
from typing import Any

from cfnade.errors import ModelError
from cfnade.options import unknown
from cfnade_rivals import CLASSES

_FOLDER = Path(__file__).parent
_TABLES = ("options", "ml-100k", "measured")


@dataclass(frozen=True)
class Contestant:
    """A model's class and its options."""

    name: str
    title: str
    model: str
    options: dict[str, Any]
    on_100k: dict[str, Any] = field(default_factory=dict)
    measured: dict[str, Any] = field(default_factory=dict)
    most_ratings: int | None = None

    def options_for(self, data: str) -> dict[str, Any]:
        """The options for a data set, by its name."""
        return self.options | self.on_100k if data == "ml-100k" else dict(self.options)


def names() -> list[str]:
    """All that can be compared."""
    return sorted(path.stem for path in _FOLDER.glob("*.toml"))


def contestant(name: str) -> Contestant:
    """The contestant of this name."""
    if name not in names():
        raise ModelError(unknown("model", name, names()))
    path = _FOLDER / f"{name}.toml"
    parts = tomllib.loads(path.read_text(encoding="utf-8"))
    strange = set(parts) - {"title", "model", "most_ratings", *_TABLES}
    if strange or parts.get("model") not in CLASSES:
        what = sorted(strange)[0] if strange else f"model {parts.get('model')!r}"
        raise ModelError(f"{path.name}: {what} is not understood; see contestants/__init__.py")
    options, on_100k, measured = (parts.get(table, {}) for table in _TABLES)
    title, most = parts.get("title", name), parts.get("most_ratings")
    return Contestant(name, title, parts["model"], options, on_100k, measured, most)
