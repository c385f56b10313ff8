"""Models that make lists, by name; each is imported when it is asked for.

They learn from who liked what, and are asked about people by what these like: list_rival.py.
list_questions.py says who is asked what on a split, and list_scoring.py how good the lists are. A
model of any origin joins by a class in LISTERS and a file in presets/lists/.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from cfnade_baselines import class_of, made

if TYPE_CHECKING:
    from cfnade_baselines.listers.list_rival import FittedLists, ListRival

LISTERS = {
    "popularity": "cfnade_baselines.listers.popularity:Popularity",
    "item-knn": "cfnade_baselines.listers.item_knn:ItemKNN",
    "ease": "cfnade_baselines.listers.ease:EASE",
    "ials": "cfnade_baselines.listers.ials:IALS",
    "implicit-als": "cfnade_baselines.listers.implicit_rivals:ImplicitALS",
    "implicit-bpr": "cfnade_baselines.listers.implicit_rivals:ImplicitBPR",
    "mult-vae": "cfnade_baselines.listers.cornac_networks:MultVAE",
    "recvae": "cfnade_baselines.listers.cornac_networks:RecVAE",
    "ease+ials": "cfnade_baselines.listers.blend:EaseAndIals",
    "cfnade": "cfnade_baselines.listers.our_lists:OurLists",
}
"""Name → module:class."""


def lister_class(name: str) -> type[ListRival[FittedLists]]:
    """The class of this name."""
    return cast("type[ListRival[FittedLists]]", class_of(name, LISTERS, "model of lists"))


def make_lister(name: str, **options: Any) -> ListRival[FittedLists]:
    """A model of this name, to be fitted: make_lister("ease", regularisation=500.0)."""
    return cast("ListRival[FittedLists]", made(name, lister_class(name), options))
