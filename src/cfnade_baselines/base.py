"""Interfaces of the baselines, argument checks, early stopping, and imports of optional libraries.

Users and items are indices into the tables of the data; -1 is a user or an item that the data does
not have. tests/baselines/test_rating_contract.py and test_ranking_contract.py hold every model to
these interfaces, with the options of tests/baselines/cases/.
"""

from __future__ import annotations

import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module, metadata, util
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from annotated_types import Ge, Gt

from cfnade.data.dataset import Dataset
from cfnade.exceptions import ModelError, TrainingError
from cfnade.utils.validation import options

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

IntArray = npt.NDArray[np.signedinteger[Any]]
FloatArray = npt.NDArray[np.float64]
Scores = npt.NDArray[np.float32]

Count = Annotated[int, Ge(1)]
Positive = Annotated[float, Gt(0)]
NonNegative = Annotated[float, Ge(0)]
"""Types of options that several models share."""


class MissingDependencyError(ModelError):
    """A library that a model needs is not installed; the message has the install command."""


class NotFittedError(ModelError, AttributeError):
    """A model was used before `fit`."""


@options(ModelError)
class Baseline(ABC):
    """A model described by its options; what `fit` learns has names that end in an underscore."""

    name: ClassVar[str]
    """Name in the registry."""
    library: ClassVar[str | None] = None
    """Distribution that fits the model, such as "cornac"; None for own code."""

    def _set(self, **learned: Any) -> Self:
        """Set learned attributes; the options stay frozen."""
        vars(self).update(learned)
        return self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not name.endswith("_"):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        raise NotFittedError(f"{self.name} is not fitted; call fit first")


class RatingPredictor(Baseline):
    """Predicts ratings."""

    def fit(
        self, train: Dataset, valid: Dataset, *, seed: int = 0, n_threads: int | None = None
    ) -> Self:
        """Learn from `train`.

        Args:
            train: Ratings to learn from; at least one.
            valid: Ratings that choose the epoch, for models with early stopping. May be empty.
            seed: The same seed and number of threads give the same bits.
            n_threads: Number of threads; None means all cores.
        """
        if len(train) == 0:
            raise ModelError("there are no ratings to learn from; give at least one")
        self._fit(train, valid, seed, n_threads)
        return self

    @abstractmethod
    def _fit(self, train: Dataset, valid: Dataset, seed: int, n_threads: int | None) -> None:
        """Learn from at least one rating."""

    @abstractmethod
    def predict(self, users: IntArray, items: IntArray) -> FloatArray:
        """Return expected ratings within the scale, (n,).

        Unknown users and items, and those without training ratings, get the fallback that the
        module documents. Predictions are always finite.
        """

    def predict_proba(self, users: IntArray, items: IntArray) -> FloatArray | None:
        """Return the probability of every level, (n, K); None for models without a distribution."""
        del users, items
        return None


class Recommender(Baseline):
    """Scores items for users that are given by the items they interacted with."""

    def fit(self, interactions: csr_matrix, *, seed: int = 0, n_threads: int | None = None) -> Self:
        """Learn from a matrix of ones, users × items.

        Args:
            interactions: Every user and every item has at least one interaction.
            seed: The same seed and one thread give the same bits.
            n_threads: Number of threads; None means all cores.
        """
        if interactions.nnz == 0:
            raise ModelError("there are no interactions to learn from; give at least one")
        self._fit(interactions, seed, n_threads)
        return self

    @abstractmethod
    def _fit(self, interactions: csr_matrix, seed: int, n_threads: int | None) -> None:
        """Learn from at least one interaction."""

    @abstractmethod
    def score(self, interactions: csr_matrix) -> Scores:
        """Return finite scores of all items for users given by their rows, (B, M) float32.

        Items of the row get scores, too; the caller excludes them. A row may be empty.
        """


def check_pairs(
    users: npt.ArrayLike, items: npt.ArrayLike, n_users: int, n_items: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return users and items as int64 arrays of one length, each an index or -1. (n,), (n,)."""
    out = []
    for name, indices, limit in (("users", users, n_users), ("items", items, n_items)):
        array = np.asarray(indices)
        if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
            raise ModelError(
                f"{name} have dtype {array.dtype} and shape {array.shape}; give a one-dimensional "
                "array of integers"
            )
        if array.size and not -1 <= array.min() <= array.max() < limit:
            bad = array[(array < -1) | (array >= limit)][0]
            raise ModelError(f"{name} contain {bad}; it must lie in 0..{limit - 1}, or be -1")
        out.append(array.astype(np.int64))
    if len(out[0]) != len(out[1]):
        raise ModelError(f"{len(out[0])} users and {len(out[1])} items: give equally many")
    return out[0], out[1]


# -- early stopping -------------------------------------------------------------------------------


def select_by_validation(
    model: RatingPredictor,
    states: Iterable[Mapping[str, Any]],
    valid: Dataset,
    *,
    remedy: str,
    until_worse: bool = False,
) -> None:
    """Set the learned attributes of `model` to the state with the least squared error on `valid`.

    Args:
        model: Gets each state in turn to predict with it.
        states: Learned attributes by name; arrays must not change afterwards.
        valid: Validation ratings; if empty, the last state is kept.
        remedy: Ends the message of the error that is raised if no state gives finite predictions.
        until_worse: Stop at the first state that is worse than the one before.
    """
    best, least = None, np.inf
    for state in states:
        model._set(**state)
        errors = model.predict(valid.users, valid.items) - valid.values
        error = float(np.square(errors).sum())
        if error < least or len(valid) == 0:
            best, least = state, error
        elif until_worse:
            break
    if best is None:
        raise TrainingError(f"the fit diverged: no prediction is a finite number; {remedy}")
    model._set(**best)


# -- optional libraries ----------------------------------------------------------------------------


def import_library(module: str, package: str, model: str) -> Any:
    """Import a module, or raise a MissingDependencyError with the install command."""
    try:
        # Warnings that libraries issue while they are imported do not concern the user.
        with warnings.catch_warnings(), _pkg_resources():
            warnings.simplefilter("ignore")
            return import_module(module)
    except ImportError as error:
        raise MissingDependencyError(
            f"{model} needs {package}, which cannot be imported ({error}); install it with: "
            "pip install 'cfnade[compare]'"
        ) from error


def blas_threads(n_threads: int | None, model: str) -> AbstractContextManager[Any]:
    """Limit the threads of NumPy's and SciPy's BLAS; None sets no limit."""
    if n_threads is None:
        return nullcontext()
    limits = import_library("threadpoolctl", "threadpoolctl", model).threadpool_limits
    limited: AbstractContextManager[Any] = limits(n_threads, "blas")
    return limited


@contextmanager
def _pkg_resources() -> Iterator[None]:
    """Provide pkg_resources, which setuptools no longer has, while a library is imported.

    myFM 0.4 imports two names from it and uses neither.
    """
    name = "pkg_resources"
    if name in sys.modules or util.find_spec(name) is not None:
        yield
        return
    substitute = ModuleType(name)
    substitute.__dict__["get_distribution"] = metadata.distribution
    substitute.__dict__["DistributionNotFound"] = metadata.PackageNotFoundError
    sys.modules[name] = substitute
    try:
        yield
    finally:
        del sys.modules[name]
