"""Models of every kind as plain values and back: what a checkpoint says of a model's fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cfnade.models.cfnade import CFNADE
from cfnade.models.checks import require
from cfnade.models.config import CFNADEConfig
from cfnade.models.ensemble import Ensemble
from cfnade.models.joint import JointCFNADE, JointConfig

_MOST_MEMBERS = 1000


def architecture_of(model: CFNADE | JointCFNADE | Ensemble) -> dict[str, Any]:
    """One side's fields; {"user": …, "item": …}; or {"members": n, "of": either}."""
    if isinstance(model, Ensemble):
        return {"members": len(model.members), "of": model.config.to_dict()}
    return model.config.to_dict()


def model_of(architecture: Mapping[str, Any]) -> CFNADE | JointCFNADE | Ensemble:
    """The model with these fields, its parameters zero."""
    if "members" not in architecture:
        return _single(architecture)
    count = architecture["members"]
    whole = isinstance(count, int) and not isinstance(count, bool)
    require(
        whole and 2 <= count <= _MOST_MEMBERS,
        f"members (={count!r}) of an ensemble must be a whole number in 2..{_MOST_MEMBERS}",
    )
    return Ensemble([_single(architecture["of"]) for _ in range(count)])


def _single(architecture: Mapping[str, Any]) -> CFNADE | JointCFNADE:
    if "user" in architecture:
        return JointCFNADE.from_config(JointConfig.from_dict(architecture))
    return CFNADE.from_config(CFNADEConfig.from_dict(architecture))
