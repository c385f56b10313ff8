"""A scikit-learn regressor: X are pairs of a user and an item, y what the one gave the other."""

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
from cfnade.integrations.base import Parameters, model_of

FloatArray = npt.NDArray[np.float64]
Kind = Literal["whole number", "number", "text"]


@dataclass(kw_only=True, eq=False, repr=False)
class CFNADERegressor(RegressorMixin, BaseEstimator, Parameters):  # type: ignore[misc]
    """Predicts the expected rating of pairs; what else there is to ask, `model_` answers.

    Beside the arguments below it takes those of CFNADE. A pair that comes twice counts once, with
    the mean of its ratings.
    """

    user: str | int = 0
    item: str | int = 1
    """The columns of X with users and items, by name or position; others are not looked at."""

    bins: int = 10
    """Into so many levels y is cut if its values fit no scale, such as 1 to 5 by 0.5."""

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from pairs (n, columns) and their ratings (n,)."""
        X, y = validate_data(self, X, y, dtype=None, y_numeric=True, ensure_min_samples=2)
        users, items = self._columns(X)
        self.user_kind_, self.item_kind_ = kind_of(users), kind_of(items)
        ids = ids_of(users, self.user_kind_), ids_of(items, self.item_kind_)
        self.model_ = model_of(self, *ids, y, bins=None if _on_scale(y) else self.bins)
        return self

    def predict(self, X: Any) -> FloatArray:
        """The expected rating of each pair. Returns (n,)."""
        check_is_fitted(self)
        users, items = self._columns(validate_data(self, X, dtype=None, reset=False))
        ids = ids_of(users, self.user_kind_), ids_of(items, self.item_kind_)
        return self.model_.predictor_.predict(*ids)

    def _columns(self, X: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        names = list(getattr(self, "feature_names_in_", ()))
        return X[:, _place(X, names, self.user, "user")], X[:, _place(X, names, self.item, "item")]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        # Of any regression; people and items are not what the checks have in their columns.
        tags.regressor_tags.poor_score = True
        return tags


def _place(X: npt.NDArray[Any], names: list[str], wanted: str | int, which: str) -> int:
    """Where the column of users or items stands."""
    if isinstance(wanted, str) and wanted in names:
        return names.index(wanted)
    if isinstance(wanted, int) and 0 <= wanted < X.shape[1]:
        return wanted
    has = ", ".join(map(repr, names)) if names else f"{X.shape[1]} feature(s) without names"
    raise DataError(
        f"{which}={wanted!r} is no column of X, which has {has}; X needs one of users and one of "
        f"items: give {which}= its name, or its position from 0"
    )


def kind_of(column: npt.NDArray[Any]) -> Kind:
    """What the ids in a column are."""
    if column.dtype.kind in "iu":
        return "whole number"
    if column.dtype.kind == "f":
        return "whole number" if (column == np.rint(column)).all() else "number"
    if all(isinstance(one, str) for one in column):
        return "text"
    for one in column:
        if not isinstance(one, Real):
            raise TypeError(
                f"an id is {one!r}; an argument must be a string or a number, and a column's ids "
                "all one of the two"
            )
    return "whole number" if all(one == int(one) for one in column) else "number"


def ids_of(column: npt.NDArray[Any], kind: Kind) -> npt.NDArray[np.int64] | pl.Series:
    """Ids as the model has them; `kind` is that of the column that it learnt from."""
    own = kind_of(column)
    if own == "text" and kind == "text":
        return pl.Series(column.tolist(), dtype=pl.String)
    if "text" in (own, kind) or (own == "number" and kind == "whole number"):
        raise PredictionError(
            f"ids such as {column.tolist()[0]!r} are a {own}, but were a {kind} in fit(); give "
            "them as there"
        )
    if kind == "number":
        return pl.Series([repr(float(one)) for one in column], dtype=pl.String)
    return np.array([int(one) for one in column.tolist()], np.int64)


def _on_scale(y: FloatArray) -> bool:
    try:
        infer_scale(y)
    except DataError:
        return len(np.unique(y)) < 2  # which is an error of its own
    return True
