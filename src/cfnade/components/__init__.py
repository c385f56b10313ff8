"""Components: the additive parts of a model's scores.

`base.py` defines them, `registry.py` has them by name and makes members of them. Importing this
package registers all rating components. What needs torch imports it when a component is fitted or
trained, so that prediction does without.
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
from cfnade.components.factor_analysis import FactorComponent
from cfnade.components.nade import NadeComponent
from cfnade.components.neighborhood import NeighborhoodComponent
from cfnade.components.registry import COMPONENTS, register
from cfnade.components.ridge import RidgeComponent
from cfnade.components.time import TimeComponent

__all__ = [
    "COMPONENTS",
    "ArraySpec",
    "Axis",
    "Component",
    "FactorComponent",
    "FitData",
    "Member",
    "NadeComponent",
    "NeighborhoodComponent",
    "RatingComponent",
    "RidgeComponent",
    "TimeComponent",
    "Trainer",
    "register",
]
