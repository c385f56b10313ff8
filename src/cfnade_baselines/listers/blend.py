"""EASE and iALS in one: the sum of their scores, once these are alike in size.

Of each person, either model's scores of all items are shifted to the mean 0 and scaled to the
standard deviation 1; then they are added, iALS with `weight` and EASE with the rest of 1.
Validation chooses the weight.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, ClassVar

import numpy as np
from annotated_types import Ge, Le

from cfnade_baselines.base import Count, Positive
from cfnade_baselines.listers.ease import EASE
from cfnade_baselines.listers.ials import IALS
from cfnade_baselines.listers.likes import Likes
from cfnade_baselines.listers.list_rival import FittedLists, ListRival, Scores


@dataclass(frozen=True)
class FittedBlend(FittedLists):
    """Two models and the second one's share."""

    members: tuple[FittedLists, FittedLists]
    weight: float

    def scores(self, given: Likes) -> Scores:
        """Their sum. Returns (people, M)."""
        first, second = (standardised(member.scores(given)) for member in self.members)
        return np.asarray((1 - self.weight) * first + self.weight * second, np.float32)


def standardised(scores: Any) -> Scores:
    """With the mean 0 and the deviation 1 of each row; a row of equal scores is 0."""
    centred = scores - scores.mean(1, keepdims=True)
    size = centred.std(1, keepdims=True)
    return np.asarray(np.divide(centred, size, out=np.zeros_like(centred), where=size > 0))


@dataclass(frozen=True, kw_only=True)
class EaseAndIals(ListRival[FittedBlend]):
    """The options of both, and the share."""

    name: ClassVar[str] = "ease+ials"

    weight: Annotated[float, Ge(0), Le(1)] = 0.5
    """iALS's share."""
    ease_regularisation: Positive = 500.0
    """As EASE's."""
    factors: Count = 256
    """As iALS's, and so are the rest."""
    unobserved_weight: Positive = 0.1
    regularisation: Positive = 0.01
    epochs: Count = 16

    def _fit(self, likes: Likes, seed: int, threads: int | None) -> FittedBlend:
        """Fit both, unless the last fit was of the same two on the same likes."""
        ease = EASE(regularisation=self.ease_regularisation)
        ials = IALS(
            factors=self.factors,
            unobserved_weight=self.unobserved_weight,
            regularisation=self.regularisation,
            epochs=self.epochs,
        )
        members = _fitted(ease, likes, seed, threads), _fitted(ials, likes, seed, threads)
        return FittedBlend(members, self.weight)


@lru_cache(maxsize=2)  # another weight needs no other fit
def _fitted(
    rival: ListRival[FittedLists], likes: Likes, seed: int, threads: int | None
) -> FittedLists:
    return rival.fit(likes, seed=seed, threads=threads)
