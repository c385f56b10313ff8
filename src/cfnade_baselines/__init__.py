"""The models that CF-NADE is compared with, by name; each is imported when it is asked for.

`cfnade compare` (cli.py) sets them side by side. This package uses cfnade as any other program
would; in cfnade only the command line imports it. Models that make lists, and no ratings, are in
listers/.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from cfnade.exceptions import ModelError
from cfnade.utils.validation import describe_unknown

if TYPE_CHECKING:
    from cfnade_baselines.base import Fitted, Rival

CLASSES = {
    "means": "cfnade_baselines.means:Means",
    "autorec": "cfnade_baselines.autorec:AutoRec",
    "rbm": "cfnade_baselines.rbm:RBM",
    "llorma": "cfnade_baselines.llorma:LLORMA",
    "nnmf": "cfnade_baselines.nnmf:NNMF",
    "cfnade": "cfnade_baselines.cfnade:Ours",
    "pmf": "cfnade_baselines.cornac:PMF",
    "biasmf": "cfnade_baselines.cornac:BiasMF",
    "bfm": "cfnade_baselines.myfm:BayesianFM",
    "bfm-ordinal": "cfnade_baselines.myfm:OrderedProbitFM",
    "als": "cfnade_baselines.lenskit:ALS",
    "svd": "cfnade_baselines.surprise:SVD",
    "svdpp": "cfnade_baselines.surprise:SVDPP",
}
"""Name → module:class."""


def rival_class(name: str) -> type[Rival[Fitted]]:
    """The class of this name."""
    return cast("type[Rival[Fitted]]", class_of(name, CLASSES, "model"))


def make(name: str, **options: Any) -> Rival[Fitted]:
    """A model of this name, to be fitted: make("autorec", side="item")."""
    return cast("Rival[Fitted]", made(name, rival_class(name), options))


def class_of(name: str, classes: Mapping[str, str], what: str) -> Any:
    """Of the classes, each given as module:class, that of this name; `what` is what they are."""
    if name not in classes:
        raise ModelError(describe_unknown(what, name, classes))
    module, attribute = classes[name].split(":")
    return getattr(import_module(module), attribute)


def made(name: str, kind: Any, options: Mapping[str, Any]) -> Any:
    """One of this class, a dataclass with these fields."""
    try:
        return kind(**options)
    except TypeError as error:  # a dataclass says so of a field that it does not have
        raise ModelError(f"{name}: {error}") from error
