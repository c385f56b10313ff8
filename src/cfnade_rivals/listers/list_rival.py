"""What every model of lists can do, whoever wrote it.

Nobody is asked about by name: what a person likes is all that a model hears of them. So people
whom it learnt from and people whom it never met are asked about in the same way.
tests/rivals/test_list_contract.py holds all models to this.
"""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from cfnade.errors import ModelError
from cfnade_rivals.listers.likes import Likes

Scores = npt.NDArray[np.float32]


class ListRival(Protocol):
    """A model by its options: a frozen dataclass, such as EASE(regularisation=500.0).

    It stays as it is: what a fit has learnt is a thing of its own.
    """

    name: ClassVar[str]
    """As in the registry."""

    def fit(self, likes: Likes, *, seed: int = 0, threads: int | None = None) -> FittedLists:
        """Learn from what people like; everyone likes something, and somebody each item.

        The same seed and one thread give the same bits. Without `threads` all cores are used.
        """


class FittedLists(Protocol):
    """A model that has learnt."""

    def scores(self, given: Likes) -> Any:
        """The higher, the sooner listed. Returns (people, items), finite, float32.

        What is given has scores, too; whoever asks leaves it out. Of somebody who likes nothing
        yet a model says what it can.
        """


def require_likes(likes: Likes) -> None:
    """Refuse to learn from nothing."""
    if len(likes.columns) == 0:
        raise ModelError("nobody likes anything, so there is nothing to learn from; give likes")
