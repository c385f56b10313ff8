"""Several models of one kind, trained from different seeds; their distributions are averaged."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from cfnade.models.cfnade import CFNADE
from cfnade.models.checks import require
from cfnade.models.config import CFNADEConfig
from cfnade.models.joint import JointCFNADE, JointConfig


class Ensemble(nn.Module):
    """Members that answer the same questions, in the order of their seeds."""

    def __init__(self, members: Sequence[CFNADE | JointCFNADE]) -> None:
        super().__init__()
        require(len(members) >= 2, f"an ensemble has {len(members)} members; it needs two or more")
        first = members[0].config
        require(
            all(member.config == first for member in members),
            "the members of an ensemble differ in their fields; train them with the same",
        )
        self.members = nn.ModuleList(members)

    @property
    def config(self) -> CFNADEConfig | JointConfig:
        """The fields that all members have."""
        first = self.members[0]
        assert isinstance(first, CFNADE | JointCFNADE)
        return first.config
