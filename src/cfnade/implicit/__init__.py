"""Models of implicit feedback: which items a user takes up next.

`base.py` says what a component is; importing this package registers them in the order in which
model selection fits them.
"""

from cfnade.implicit.base import ImplicitComponent, interaction_components
from cfnade.implicit.ease import Ease
from cfnade.implicit.filter import SpectralFilter
from cfnade.implicit.ials import ImplicitALS
from cfnade.implicit.interaction_model import InteractionModel, saved_model, saved_spec
from cfnade.implicit.local import LocalRidge
from cfnade.implicit.popularity import Popularity
from cfnade.implicit.rows import InteractionRows
from cfnade.implicit.set_nade import SetNade

__all__ = [
    "Ease",
    "ImplicitALS",
    "ImplicitComponent",
    "InteractionModel",
    "InteractionRows",
    "LocalRidge",
    "Popularity",
    "SetNade",
    "SpectralFilter",
    "interaction_components",
    "saved_model",
    "saved_spec",
]
