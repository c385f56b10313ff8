"""Models that make lists, by name; each is imported when it is asked for.

They learn from who liked what, and are asked about people by what these like: `interface.py`.
`questions.py` says who is asked what on a split, and `scoring.py` how good the lists are. A model
of any origin joins by a class in LISTERS and a file in contestants/lists/.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from cfnade.errors import ModelError
from cfnade.options import unknown

if TYPE_CHECKING:
    from cfnade_rivals.lists.interface import ListRival

LISTERS = {
    "popularity": "cfnade_rivals.lists.popularity:Popularity",
    "item-knn": "cfnade_rivals.lists.item_knn:ItemKNN",
    "ease": "cfnade_rivals.lists.ease:EASE",
    "ials": "cfnade_rivals.lists.ials:IALS",
    "implicit-als": "cfnade_rivals.lists.implicit:ImplicitALS",
    "implicit-bpr": "cfnade_rivals.lists.implicit:ImplicitBPR",
    "mult-vae": "cfnade_rivals.lists.mult_vae:MultVAE",
    "recvae": "cfnade_rivals.lists.recvae:RecVAE",
    "ease+ials": "cfnade_rivals.lists.blend:EaseAndIals",
    "cfnade": "cfnade_rivals.lists.ours:OurLists",
}
"""Name → module:class."""


def lister_class(name: str) -> type[ListRival]:
    """The class of this name."""
    if name not in LISTERS:
        raise ModelError(unknown("model of lists", name, LISTERS))
    module, attribute = LISTERS[name].split(":")
    return cast("type[ListRival]", getattr(import_module(module), attribute))


def make_lister(name: str, **options: Any) -> ListRival:
    """A model of this name, to be fitted: make_lister("ease", regularisation=500.0)."""
    try:
        return lister_class(name)(**options)
    except TypeError as error:  # a dataclass says so of a field that it does not have
        raise ModelError(f"{name}: {error}") from error
