"""What every model of the comparison can do, whoever wrote it.

Users and items are indices as in `Ratings.users` and `Ratings.items`; -1 stands for somebody or
something that the data does not have. Models are made from options (`AutoRec(side="item")`), which
a frozen dataclass documents and checks. tests/rivals/test_contract.py holds all of them to this,
with small options and changed values from tests/rivals/cases/<name>.toml.
"""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from cfnade.data.ratings import Ratings
from cfnade.errors import ModelError

IntArray = npt.NDArray[np.signedinteger[Any]]
FloatArray = npt.NDArray[np.float64]
Arrays = dict[str, npt.NDArray[Any]]


class Rival(Protocol):
    """A model that can be fitted, asked and (if it is our own) saved.

    `fit` may be called again: it starts anew. The same seed and threads give the same bits.
    """

    name: ClassVar[str]
    """As in the registry."""

    @property
    def options(self) -> Any:
        """The frozen dataclass that the model was made with."""

    def fit(
        self, train: Ratings, valid: Ratings, *, seed: int = 0, threads: int | None = None
    ) -> None:
        """Learn from `train`; `valid` (it may be empty) only says when to stop, or what to keep.

        Without `threads` all cores are used.
        """

    def predict(self, users: IntArray, items: IntArray) -> FloatArray:
        """Expected ratings in stars, inside the scale. Returns (n,).

        -1, and whoever has no training rating, get the model's documented fallback: always finite.
        """

    def probabilities(self, users: IntArray, items: IntArray) -> FloatArray | None:
        """The chance of every level, (n, K); None if the model has no distribution."""

    def arrays(self) -> Arrays:
        """All that was learnt, and all else that `predict` needs (the scale's values, too).

        Options are saved beside these by `store.save`. A model that cannot be saved raises a
        ModelError that says so.
        """

    def restore(self, arrays: Arrays) -> None:
        """Take what `arrays` gave, on a model made with the same options and never fitted.

        Afterwards `predict` and `probabilities` give the same bits. Arrays that do not fit each
        other or the options (a missing name, a wrong shape or dtype) are a ModelError.
        """


class Unsaved:
    """For models that other libraries fit: they are fitted again rather than saved."""

    name: ClassVar[str]

    def arrays(self) -> Arrays:
        """Refuse."""
        raise ModelError(
            f"{self.name} is fitted by another library and cannot be saved; fit it again, or keep "
            "its predictions"
        )

    def restore(self, arrays: Arrays) -> None:
        """Refuse."""
        raise ModelError(
            f"{self.name} is fitted by another library and cannot be loaded ({len(arrays)} arrays "
            "were given); fit it again"
        )


class MissingError(ModelError):
    """A library that a model needs is not installed; the message says how to install it."""


def require_fitted(fitted: bool, name: str) -> None:
    """Refuse questions before there is anything to answer them with."""
    if not fitted:
        raise ModelError(f"{name} has learnt nothing yet; call fit first")


def take(arrays: Arrays, name: str, kind: str, shape: tuple[int | None, ...]) -> npt.NDArray[Any]:
    """The array of this name, with a dtype such as "float32" and a shape; None is any length."""
    if name not in arrays:
        raise ModelError(f"the array {name!r} is missing; there are {sorted(arrays)}")
    array = arrays[name]
    fits = len(array.shape) == len(shape) and all(
        wanted is None or length == wanted
        for length, wanted in zip(array.shape, shape, strict=True)
    )
    if array.dtype != kind or not fits:
        lengths = ", ".join("any" if n is None else str(n) for n in shape)
        raise ModelError(
            f"the array {name!r} is {array.dtype} of shape {array.shape}; it must be {kind} of "
            f"shape ({lengths})"
        )
    return array


def checked_cells(
    users: npt.ArrayLike, items: npt.ArrayLike, n_users: int, n_items: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Cells as int64, equally many users and items, each an index or -1. Returns (n,), (n,)."""
    out = []
    for name, given, limit in (("users", users, n_users), ("items", items, n_items)):
        array = np.asarray(given)
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
