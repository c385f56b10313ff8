"""Sides: the parts of a member. side.py says what one is, kinds.py which there are.

What trains is imported when first used: to answer takes no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cfnade.lazily import first_used
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

_TRAINABLE = ("Member", "Side")
__getattr__ = first_used(
    __name__, {name: "trainable" if name in _TRAINABLE else "kinds" for name in __all__}
)
