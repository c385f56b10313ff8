"""A scikit-learn regressor: X has a user and an item in each row, y the rating."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import polars as pl
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from cfnade.data.scale import infer_scale
from cfnade.exceptions import DataError, PredictionError
from cfnade.integrations.base import Parameters, fit_model

FloatArray = npt.NDArray[np.float64]
Kind = Literal["whole number", "number", "text"]


@dataclass(kw_only=True, eq=False, repr=False)
class CFNADERegressor(RegressorMixin, BaseEstimator, Parameters):  # type: ignore[misc]
    """Predicts the expected ratings of pairs; `model_` is the fitted CFNADE.

    Takes the arguments of CFNADE, and those below. A repeated pair counts once, with the mean of
    its ratings.
    """

    user: str | int = 0
    item: str | int = 1
    """Columns of X with users and items, by name or position; others are ignored."""

    bins: int = 10
    """Number of levels into which y is binned if its values fit no rating scale."""

    def fit(self, X: Any, y: Any) -> Self:
        """Fit the model to pairs (n, columns) and their ratings (n,)."""
        X, y = validate_data(self, X, y, dtype=None, y_numeric=True, ensure_min_samples=2)
        users, items = self._columns(X)
        self.user_kind_, self.item_kind_ = kind_of(users), kind_of(items)
        ids = ids_of(users, self.user_kind_), ids_of(items, self.item_kind_)
        self.model_ = fit_model(self, *ids, y, bins=None if _on_scale(y) else self.bins)
        return self

    def predict(self, X: Any) -> FloatArray:
        """Return the expected rating of each pair, (n,)."""
        check_is_fitted(self)
        users, items = self._columns(validate_data(self, X, dtype=None, reset=False))
        ids = ids_of(users, self.user_kind_), ids_of(items, self.item_kind_)
        return self.model_.predict(*ids, unknown="mean")

    def _columns(self, X: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        names = list(getattr(self, "feature_names_in_", ()))
        return X[:, _position(X, names, self.user, "user")], X[
            :, _position(X, names, self.item, "item")
        ]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        # The checks regress on columns of random numbers, which are no users and items.
        tags.regressor_tags.poor_score = True
        return tags


def _position(X: npt.NDArray[Any], names: list[str], column: str | int, axis: str) -> int:
    """Return the position of the column of users or items."""
    if isinstance(column, str) and column in names:
        return names.index(column)
    if isinstance(column, int) and 0 <= column < X.shape[1]:
        return column
    has = ", ".join(map(repr, names)) if names else f"{X.shape[1]} feature(s) without names"
    raise DataError(
        f"{axis}={column!r} is no column of X, which has {has}; X needs one of users and one of "
        f"items: give {axis}= its name, or its position from 0"
    )


def kind_of(column: npt.NDArray[Any]) -> Kind:
    """Return the kind of the ids in a column."""
    if column.dtype.kind in "iu":
        return "whole number"
    if column.dtype.kind == "f":
        return "whole number" if (column == np.rint(column)).all() else "number"
    if all(isinstance(value, str) for value in column):
        return "text"
    for value in column:
        if not isinstance(value, Real):
            raise TypeError(
                f"an id is {value!r}; an argument must be a string or a number, and a column's ids "
                "all one of the two"
            )
    return "whole number" if all(value == int(value) for value in column) else "number"


def ids_of(column: npt.NDArray[Any], kind: Kind) -> npt.NDArray[np.int64] | pl.Series:
    """Return ids as the model has them; `kind` is that of the training column."""
    given_kind = kind_of(column)
    if given_kind == "text" and kind == "text":
        return pl.Series(column.tolist(), dtype=pl.String)
    if "text" in (given_kind, kind) or (given_kind == "number" and kind == "whole number"):
        raise PredictionError(
            f"ids such as {column.tolist()[0]!r} are a {given_kind}, but were a {kind} in fit(); "
            "give them as there"
        )
    if kind == "number":
        return pl.Series([repr(float(value)) for value in column], dtype=pl.String)
    return np.array([int(value) for value in column.tolist()], np.int64)


def _on_scale(y: FloatArray) -> bool:
    try:
        infer_scale(y)
    except DataError:
        return len(np.unique(y)) < 2  # which is an error of its own
    return True
