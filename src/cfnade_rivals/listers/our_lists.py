"""What this package learns of picks (docs/picks.md), in the interface of its rivals.

A twentieth of the likes is held back: it says when the network has learnt enough, and what each
path counts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from cfnade.choice import Choice
from cfnade.choice.picks import Picks
from cfnade.choice.planning import choice_plan
from cfnade.data.dataset import Interactions
from cfnade.data.split_protocols import add_validation
from cfnade.data.splits import apply_labels
from cfnade.training.run import train_picks
from cfnade_rivals.interface import Count
from cfnade_rivals.listers.likes import Likes
from cfnade_rivals.listers.list_rival import FittedLists, ListRival, Scores


@dataclass(frozen=True)
class FittedChoice(FittedLists):
    """A choice, asked about people by what they like."""

    choice: Choice

    def scores(self, given: Likes) -> Scores:
        """The weighed sum of its paths. Returns (people, M)."""
        n = len(given.columns)
        levels, weights = np.zeros(n, np.uint8), np.ones(n, np.float32)
        columns = np.asarray(given.columns, np.int32)
        picks = Picks(given.offsets, columns, levels, weights, given.n_items)
        return self.choice.scores(picks)


@dataclass(frozen=True, kw_only=True)
class OurLists(ListRival[FittedChoice]):
    """All else follows from the data."""

    name: ClassVar[str] = "cfnade"

    hidden: Count = 300
    """Units of the network."""
    epochs: Count = 60
    """Passes over the likes, at most."""

    def _fit(self, likes: Likes, seed: int, threads: int | None) -> FittedChoice:
        """Train, as `cfnade train` does on interactions."""
        picked = Interactions(
            likes.rows(),
            np.asarray(likes.columns, np.int32),
            np.arange(len(likes)),
            np.arange(likes.n_items),
        )
        held_back = add_validation(np.zeros(len(picked), np.uint8), seed)
        split = apply_labels(picked, held_back, "compared")
        plan = choice_plan(split.train, seed=seed)
        plan = replace(plan, nade=replace(plan.nade, hidden=self.hidden, epochs=self.epochs))
        choice = train_picks(split, plan, threads=threads).fitted.choice
        assert choice is not None
        return FittedChoice(choice)
