"""The models that CF-NADE is compared with, by name; each is imported when it is asked for."""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from cfnade.errors import ModelError

if TYPE_CHECKING:
    from cfnade.rivals.interface import Rival

CLASSES = {
    "means": "cfnade.rivals.means:Means",
    "autorec": "cfnade.rivals.autorec:AutoRec",
    "rbm": "cfnade.rivals.rbm:RBM",
    "llorma": "cfnade.rivals.llorma:LLORMA",
    "nnmf": "cfnade.rivals.nnmf:NNMF",
    "cfnade": "cfnade.rivals.ours:Ours",
    "pmf": "cfnade.rivals.cornac:PMF",
    "biasmf": "cfnade.rivals.cornac:BiasMF",
    "bfm": "cfnade.rivals.myfm:BayesianFM",
    "bfm-ordinal": "cfnade.rivals.myfm:OrderedProbitFM",
    "als": "cfnade.rivals.lenskit:ALS",
    "svd": "cfnade.rivals.surprise:SVD",
    "svdpp": "cfnade.rivals.surprise:SVDPP",
}
"""Name → module:class."""


def rival_class(name: str) -> type[Rival]:
    """The class of this name."""
    if name not in CLASSES:
        near = get_close_matches(name, CLASSES, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ModelError(f"unknown model {name!r}{hint} (known: {', '.join(CLASSES)})")
    module, attribute = CLASSES[name].split(":")
    return cast("type[Rival]", getattr(import_module(module), attribute))


def make(name: str, **options: Any) -> Rival:
    """A model of this name, not yet fitted: make("autorec", side="item")."""
    try:
        return rival_class(name)(**options)
    except TypeError as error:  # a dataclass says so of a field that it does not have
        raise ModelError(f"{name}: {error}") from error
