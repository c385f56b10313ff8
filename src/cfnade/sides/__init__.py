"""Sides: the parts of a member. side.py says what one is, kinds.py which there are.

What trains is imported when first used: to answer takes no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from cfnade.sides.side import AnsweringMember, AnsweringSide, Axis

if TYPE_CHECKING:
    from cfnade.sides.kinds import (
        KINDS,
        WITH_RIDGE,
        Kind,
        are_made,
        bytes_of_weights,
        kernel_task,
        kernel_tasks,
        new_member,
        saved_member,
        side_names,
    )
    from cfnade.sides.trainable import Member, Side

__all__ = [
    "KINDS",
    "WITH_RIDGE",
    "AnsweringMember",
    "AnsweringSide",
    "Axis",
    "Kind",
    "Member",
    "Side",
    "are_made",
    "bytes_of_weights",
    "kernel_task",
    "kernel_tasks",
    "new_member",
    "saved_member",
    "side_names",
]

_MODULES = dict.fromkeys(__all__, "kinds") | dict.fromkeys(("Member", "Side"), "trainable")


def __getattr__(name: str) -> Any:  # imports on first use
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
