"""Components: the additive parts of a model's scores.

`base.py` defines them, `registry.py` lists them. What trains is imported on first use, so that
prediction needs no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from cfnade.components.base import AnsweringMember, Axis, Component

if TYPE_CHECKING:
    from cfnade.components.registry import (
        KINDS,
        WITH_RIDGE,
        Kind,
        are_made,
        component_names,
        kernel_groups,
        new_member,
        saved_member,
    )
    from cfnade.components.trainable import Member, TorchComponent

__all__ = [
    "KINDS",
    "WITH_RIDGE",
    "AnsweringMember",
    "Axis",
    "Component",
    "Kind",
    "Member",
    "TorchComponent",
    "are_made",
    "component_names",
    "kernel_groups",
    "new_member",
    "saved_member",
]

_TRAINABLE = ("Member", "TorchComponent")
_MODULES = dict.fromkeys(__all__, "registry") | dict.fromkeys(_TRAINABLE, "trainable")


def __getattr__(name: str) -> Any:  # imports on first use
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
