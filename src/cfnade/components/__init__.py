"""Components: the additive parts of a model's scores.

`base.py` defines them, `registry.py` has them by name, `new_member.py` makes new ones. What needs
torch imports it when a component is fitted or trained, so that prediction does without.
"""

from cfnade.components.base import (
    ArraySpec,
    Axis,
    Component,
    FitData,
    Member,
    RatingComponent,
    Trainer,
)
from cfnade.components.registry import COMPONENTS, register

__all__ = [
    "COMPONENTS",
    "ArraySpec",
    "Axis",
    "Component",
    "FitData",
    "Member",
    "RatingComponent",
    "Trainer",
    "register",
]
