"""How each model of the comparison is fitted: readable TOML files beside this one.

title = "I-AutoRec"    its name in tables
model = "autorec"      its class in the registry
most_ratings = 200000  for slow ones: with more it is fitted only if it is named
with_validation = true it learns from validation ratings, too; its options, which validation has
                       chosen before, say when it ends
[options]              found by validation on MovieLens 1M, and used for any other data
[ml-100k]              what differs on MovieLens 100K, found by validation there
[measured]             what it gave, on which split, with which seed, in how many seconds

Those of lists (`cfnade compare --ranking`) are in lists/. Their [options] are what all settings
have in common, and what they start from:
[[search]]             what differs, once for each setting that validation chooses from
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cfnade.exceptions import ModelError
from cfnade.utils.validation import describe_unknown
from cfnade_baselines import CLASSES
from cfnade_baselines.listers import LISTERS

_FOLDER = Path(__file__).parent
_TABLES = ("most_ratings", "with_validation", "options", "ml-100k", "measured")
_LIST_TABLES = ("most_ratings", "with_validation", "options", "search")


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
    search: list[dict[str, Any]] = field(default_factory=list)
    with_validation: bool = False

    def options_for(self, data: str) -> dict[str, Any]:
        """The options for a data set, by its name."""
        return self.options | self.on_100k if data == "ml-100k" else dict(self.options)


def names(*, lists: bool = False) -> list[str]:
    """All that can be compared, by ratings or by lists."""
    return sorted(path.stem for path in _folder(lists).glob("*.toml"))


def contestant(name: str, *, lists: bool = False) -> Contestant:
    """The contestant of this name."""
    if name not in names(lists=lists):
        raise ModelError(describe_unknown("model", name, names(lists=lists)))
    path = _folder(lists) / f"{name}.toml"
    parts = tomllib.loads(path.read_text(encoding="utf-8"))
    strange = set(parts) - {"title", "model", *(_LIST_TABLES if lists else _TABLES)}
    if strange or parts.get("model") not in (LISTERS if lists else CLASSES):
        what = sorted(strange)[0] if strange else f"model {parts.get('model')!r}"
        raise ModelError(f"{path.name}: {what} is not understood; see presets/__init__.py")
    return Contestant(
        name,
        parts.get("title", name),
        parts["model"],
        parts.get("options", {}),
        parts.get("ml-100k", {}),
        parts.get("measured", {}),
        parts.get("most_ratings"),
        parts.get("search", []),
        parts.get("with_validation", False),
    )


def _folder(lists: bool) -> Path:
    return _FOLDER / "lists" if lists else _FOLDER
