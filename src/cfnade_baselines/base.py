"""What every model of the comparison can do, whoever wrote it.

Users and items are indices as in `Ratings.users` and `Ratings.items`; -1 stands for somebody or
something that the data does not have. tests/baselines/test_contract.py holds all models to this,
with small options and changed values from tests/baselines/cases/<name>.toml.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, Any, ClassVar, Generic, TypeVar

import numpy as np
import numpy.typing as npt
from annotated_types import Ge, Gt

from cfnade.data.dataset import Dataset
from cfnade.exceptions import ModelError
from cfnade.utils.validation import options

IntArray = npt.NDArray[np.signedinteger[Any]]
FloatArray = npt.NDArray[np.float64]

Count = Annotated[int, Ge(1)]
Positive = Annotated[float, Gt(0)]
NotNegative = Annotated[float, Ge(0)]
"""Options that most models have some of."""


class Fitted(ABC):
    """A model that has learnt."""

    @abstractmethod
    def predict(self, users: IntArray, items: IntArray) -> FloatArray:
        """Expected ratings in stars, inside the scale. Returns (n,).

        -1, and whoever has no training rating, get the model's documented fallback: always finite.
        """

    def probabilities(self, users: IntArray, items: IntArray) -> FloatArray | None:
        """The chance of every level, (n, K); None, as here, if the model has no distribution."""
        del users, items
        return None


F = TypeVar("F", bound=Fitted, covariant=True)


@options(ModelError)
class Rival(ABC, Generic[F]):
    """A model by its options: a frozen dataclass, such as AutoRec(side="item"), that checks them.

    It stays as it is: what a fit has learnt is a thing of its own.
    """

    name: ClassVar[str]
    """As in the registry."""

    def fit(
        self, train: Dataset, valid: Dataset, *, seed: int = 0, threads: int | None = None
    ) -> F:
        """Learn from `train`; `valid` (it may be empty) only says when to stop, or what to keep.

        The same seed and threads give the same bits. Without `threads` all cores are used.
        """
        if len(train) == 0:
            raise ModelError("there are no ratings to learn from; give at least one")
        return self._fit(train, valid, seed, threads)

    @abstractmethod
    def _fit(self, train: Dataset, valid: Dataset, seed: int, threads: int | None) -> F:
        """The same of at least one rating."""


class MissingError(ModelError):
    """A library that a model needs is not installed; the message says how to install it."""


def checked_cells(
    users: npt.ArrayLike, items: npt.ArrayLike, n_users: int, n_items: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Cells as int64, equally many users and items, each an index or -1. Returns (n,), (n,)."""
    out = []
    for name, indices, limit in (("users", users, n_users), ("items", items, n_items)):
        array = np.asarray(indices)
        if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
            raise ModelError(
                f"{name} have dtype {array.dtype} and shape {array.shape}; give a one-dimensional "
                "array of whole numbers"
            )
        if array.size and not -1 <= array.min() <= array.max() < limit:
            bad = array[(array < -1) | (array >= limit)][0]
            raise ModelError(f"{name} contain {bad}; it must lie in 0..{limit - 1}, or be -1")
        out.append(array.astype(np.int64))
    if len(out[0]) != len(out[1]):
        raise ModelError(f"{len(out[0])} users and {len(out[1])} items: give equally many")
    return out[0], out[1]
