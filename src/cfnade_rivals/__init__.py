"""The models that CF-NADE is compared with, by name; each is imported when it is asked for.

`cfnade compare` (command.py) sets them side by side. This package uses cfnade as any other program
would, and nothing in cfnade imports it. Models that make lists, and no ratings, are in lists/.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from cfnade.errors import ModelError
from cfnade.options import unknown

if TYPE_CHECKING:
    from cfnade_rivals.interface import Rival

CLASSES = {
    "means": "cfnade_rivals.means:Means",
    "autorec": "cfnade_rivals.autorec:AutoRec",
    "rbm": "cfnade_rivals.rbm:RBM",
    "llorma": "cfnade_rivals.llorma:LLORMA",
    "nnmf": "cfnade_rivals.nnmf:NNMF",
    "cfnade": "cfnade_rivals.ours:Ours",
    "pmf": "cfnade_rivals.cornac:PMF",
    "biasmf": "cfnade_rivals.cornac:BiasMF",
    "bfm": "cfnade_rivals.myfm:BayesianFM",
    "bfm-ordinal": "cfnade_rivals.myfm:OrderedProbitFM",
    "als": "cfnade_rivals.lenskit:ALS",
    "svd": "cfnade_rivals.surprise:SVD",
    "svdpp": "cfnade_rivals.surprise:SVDPP",
}
"""Name → module:class."""


def rival_class(name: str) -> type[Rival]:
    """The class of this name."""
    if name not in CLASSES:
        raise ModelError(unknown("model", name, CLASSES))
    module, attribute = CLASSES[name].split(":")
    return cast("type[Rival]", getattr(import_module(module), attribute))


def make(name: str, **options: Any) -> Rival:
    """A model of this name, to be fitted: make("autorec", side="item")."""
    try:
        return rival_class(name)(**options)
    except TypeError as error:  # a dataclass says so of a field that it does not have
        raise ModelError(f"{name}: {error}") from error
