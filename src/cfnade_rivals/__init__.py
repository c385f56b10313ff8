"""The models that CF-NADE is compared with, by name; each is imported when it is asked for.

`cfnade compare` (command.py) sets them side by side. This package uses cfnade as any other program
would, and nothing in cfnade imports it. Models that make lists, and no ratings, are in listers/.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from cfnade.exceptions import ModelError
from cfnade.utils.validation import describe_unknown

if TYPE_CHECKING:
    from cfnade_rivals.interface import Fitted, Rival

CLASSES = {
    "means": "cfnade_rivals.means:Means",
    "autorec": "cfnade_rivals.autorec:AutoRec",
    "rbm": "cfnade_rivals.rbm:RBM",
    "llorma": "cfnade_rivals.llorma:LLORMA",
    "nnmf": "cfnade_rivals.nnmf:NNMF",
    "cfnade": "cfnade_rivals.ours:Ours",
    "pmf": "cfnade_rivals.cornac_rivals:PMF",
    "biasmf": "cfnade_rivals.cornac_rivals:BiasMF",
    "bfm": "cfnade_rivals.myfm:BayesianFM",
    "bfm-ordinal": "cfnade_rivals.myfm:OrderedProbitFM",
    "als": "cfnade_rivals.lenskit_rival:ALS",
    "svd": "cfnade_rivals.surprise_rivals:SVD",
    "svdpp": "cfnade_rivals.surprise_rivals:SVDPP",
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
