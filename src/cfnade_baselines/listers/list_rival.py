"""What every model of lists can do, whoever wrote it.

Nobody is asked about by name: what a person likes is all that a model hears of them. So people
whom it learnt from and people whom it never met are asked about in the same way.
tests/baselines/test_list_contract.py holds all models to this.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from cfnade._typing import IntArray
from cfnade.exceptions import ModelError
from cfnade.utils.validation import options
from cfnade_baselines.listers.likes import Likes

Scores = npt.NDArray[np.float32]


class FittedLists(ABC):
    """A model that has learnt."""

    @abstractmethod
    def scores(self, given: Likes) -> Any:
        """The higher, the sooner listed. Returns (people, items), finite, float32.

        What is given has scores, too; whoever asks leaves it out. Of somebody who likes nothing
        yet a model says what it can.
        """


L = TypeVar("L", bound=FittedLists, covariant=True)


@options(ModelError)
class ListRival(ABC, Generic[L]):
    """A model by its options: a frozen dataclass, such as EASE(regularisation=500.0).

    It stays as it is: what a fit has learnt is a thing of its own.
    """

    name: ClassVar[str]
    """As in the registry."""

    def fit(self, likes: Likes, *, seed: int = 0, threads: int | None = None) -> L:
        """Learn from what people like; everyone likes something, and somebody each item.

        The same seed and one thread give the same bits. Without `threads` all cores are used.
        """
        _require_likes(likes)
        return self._fit(likes, seed, threads)

    @abstractmethod
    def _fit(self, likes: Likes, seed: int, threads: int | None) -> L:
        """The same of at least one like."""


def _require_likes(likes: Likes) -> None:
    if len(likes.columns) == 0:
        raise ModelError("nobody likes anything, so there is nothing to learn from; give likes")


# -- items that somebody likes are learnt, all items of the data are asked about -----------------


@dataclass(frozen=True)
class FittedOnLiked(FittedLists):
    """A model of some items, asked with the numbers of all."""

    fitted: FittedLists
    items: IntArray

    def scores(self, given: Likes) -> Scores:
        """Of items that the model knows, -inf of the others. Returns (people, M)."""
        out: Scores = np.full((len(given), given.n_items), -np.inf, np.float32)
        out[:, self.items] = self.fitted.scores(given.among(self.items))
        return out


@dataclass(frozen=True, eq=False)
class LikedItems:
    """Likes with the items that somebody likes alone, numbered anew."""

    items: IntArray
    likes: Likes

    @staticmethod
    def of(likes: Likes) -> LikedItems:
        """Leave out what nobody likes."""
        _require_likes(likes)
        items = np.flatnonzero(likes.item_counts())
        return LikedItems(items, likes.among(items))

    def fit(
        self, rival: ListRival[FittedLists], *, seed: int = 0, threads: int | None = None
    ) -> FittedOnLiked:
        """Fit a model that can be asked about all items."""
        return FittedOnLiked(rival.fit(self.likes, seed=seed, threads=threads), self.items)
