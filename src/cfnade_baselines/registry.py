"""Baselines by name, and presets: the options with which the comparison fits them.

Presets are tables of presets/rating.toml and presets/ranking.toml, which explain their keys. A new
baseline needs a class, its entry here, a preset, and a case in tests/baselines/cases/.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module, metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from cfnade.exceptions import ModelError
from cfnade.utils.validation import describe_unknown

if TYPE_CHECKING:
    from cfnade_baselines.base import RatingPredictor, Recommender

Task = Literal["rating", "ranking"]

RATING_PREDICTORS = {
    "means": "factor_model:Means",
    "autorec": "autorec:AutoRec",
    "rbm": "rbm:RBM",
    "llorma": "llorma:LLORMA",
    "nnmf": "nnmf:NNMF",
    "cfnade": "cfnade:CFNADERatings",
    "pmf": "cornac:PMF",
    "biasmf": "cornac:BiasMF",
    "bfm": "myfm:BayesianFM",
    "bfm-ordinal": "myfm:OrderedProbitFM",
    "als": "lenskit:ALS",
    "svd": "surprise:SVD",
    "svdpp": "surprise:SVDPP",
}
RECOMMENDERS = {
    "popularity": "irspack:Popularity",
    "item-knn": "irspack:ItemKNN",
    "ease": "irspack:EASE",
    "ials": "irspack:IALS",
    "implicit-als": "implicit:ImplicitALS",
    "implicit-bpr": "implicit:ImplicitBPR",
    "mult-vae": "cornac:MultVAE",
    "recvae": "cornac:RecVAE",
    "ease+ials": "irspack:EaseAndIals",
    "cfnade": "cfnade:CFNADEInteractions",
}
"""Name → module:class."""

_CLASSES: Mapping[Task, Mapping[str, str]] = {
    "rating": RATING_PREDICTORS,
    "ranking": RECOMMENDERS,
}
_NOUNS: Mapping[Task, str] = {"rating": "model", "ranking": "top-n model"}


def baseline_class(name: str, task: Task = "rating") -> Any:
    """Return the class of this name; imports its module."""
    classes = _CLASSES[task]
    if name not in classes:
        raise ModelError(describe_unknown(_NOUNS[task], name, classes))
    module, attribute = classes[name].split(":")
    return getattr(import_module(f"cfnade_baselines.{module}"), attribute)


def create(name: str, **options: Any) -> RatingPredictor:
    """Return an unfitted rating model: create("autorec", side="item")."""
    return cast("RatingPredictor", _create(name, "rating", options))


def create_recommender(name: str, **options: Any) -> Recommender:
    """Return an unfitted top-n model: create_recommender("ease", regularization=500.0)."""
    return cast("Recommender", _create(name, "ranking", options))


def _create(name: str, task: Task, options: Mapping[str, Any]) -> Any:
    try:
        return baseline_class(name, task)(**options)
    except TypeError as error:  # names an option that the dataclass does not have
        raise ModelError(f"{name}: {error}") from error


def library_version(name: str, task: Task) -> str | None:
    """Return the library that fits a model, such as "cornac 3.0.1"; None for own code."""
    library = baseline_class(name, task).library
    if library is None:
        return None
    try:
        return f"{library} {metadata.version(library)}"
    except metadata.PackageNotFoundError:
        return None


# -- presets ---------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A model of the comparison: its class and options."""

    name: str
    title: str
    model: str
    options: dict[str, Any] = field(default_factory=dict)
    ml_100k: dict[str, Any] = field(default_factory=dict)
    max_ratings: int | None = None
    with_validation: bool = False
    search: list[dict[str, Any]] = field(default_factory=list)
    search_notes: str | None = None

    def options_for(self, data: str) -> dict[str, Any]:
        """Return the options for a data set, by its name."""
        return self.options | self.ml_100k if data == "ml-100k" else dict(self.options)


def preset_names(task: Task = "rating") -> list[str]:
    """Return the names of all presets."""
    return sorted(_tables(task))


def load_preset(name: str, task: Task = "rating") -> Preset:
    """Return the preset of this name."""
    tables = _tables(task)
    if name not in tables:
        raise ModelError(describe_unknown(_NOUNS[task], name, tables))
    fields = {key.replace("-", "_"): value for key, value in tables[name].items()}
    return Preset(name=name, **fields)


@cache
def _tables(task: Task) -> dict[str, dict[str, Any]]:
    path = Path(__file__).parent / "presets" / f"{task}.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))
