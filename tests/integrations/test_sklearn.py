"""The regressor passes scikit-learn's checks and predicts what the estimator predicts.

The checks cover cloning, pickling and errors before fit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import polars as pl
import pytest
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks
from tests.integrations.exported import FAST
from tests.support.close import assert_close

from cfnade import CFNADE, DataError, Dataset, synthetic
from cfnade.exceptions import PredictionError
from cfnade.integrations.sklearn import CFNADERegressor


@parametrize_with_checks([CFNADERegressor(**FAST)])
def test_scikit_learns_own_checks(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.fixture(scope="module")
def ratings() -> Dataset:
    return synthetic(30, 20, 300, seed=3).ratings


@pytest.fixture(scope="module")
def frame(ratings: Dataset) -> pd.DataFrame:
    users, items = ratings.user_ids[ratings.users], ratings.item_ids[ratings.items]
    return pd.DataFrame({"user": users, "item": items, "rating": ratings.values})


@pytest.fixture(scope="module")
def fitted(frame: pd.DataFrame) -> CFNADERegressor:
    return CFNADERegressor(**FAST).fit(frame[["user", "item"]], frame["rating"])


def test_predictions_are_those_of_the_estimator(
    fitted: CFNADERegressor, ratings: Dataset, frame: pd.DataFrame
) -> None:
    plain = CFNADE(**FAST).fit(ratings)
    expected = plain.predict(frame["user"].to_numpy(), frame["item"].to_numpy())
    assert_close(fitted.predict(frame[["user", "item"]]), expected)


@pytest.mark.parametrize("kind", ["array", "polars", "texts", "other places", "other numbers"])
def test_pairs_come_in_any_shape(fitted: CFNADERegressor, frame: pd.DataFrame, kind: str) -> None:
    """Ids are names: what they are called, and where they stand, changes nothing."""
    y, expected = frame["rating"].to_numpy(), fitted.predict(frame[["user", "item"]])
    X: Any = frame[["user", "item"]].to_numpy()
    own: dict[str, Any] = {}
    if kind == "polars":
        X = pl.DataFrame({"item": X[:, 1], "other": y, "user": X[:, 0]})
        own = {"user": "user", "item": "item"}
    elif kind == "texts":  # of equal length, so that they have the order of the numbers
        X = pd.DataFrame({"user": [f"u{user:03}" for user in X[:, 0]], "item": X[:, 1]})
    elif kind == "other places":
        X, own = np.column_stack([X[:, 1], y, X[:, 0]]), {"user": 2, "item": 0}
    elif kind == "other numbers":  # 1.5, 2.5 …: all of two digits
        X = X + 10.5
    found = CFNADERegressor(**FAST, **own).fit(X, y).predict(X)
    assert_close(found, expected)


def test_unknown_ids_are_predicted_and_other_kinds_of_ids_refused(
    fitted: CFNADERegressor,
) -> None:
    X = pd.DataFrame({"user": [1, 4711], "item": [4712, 2]})
    assert np.isfinite(fitted.predict(X)).all()
    with pytest.raises(
        PredictionError, match=r"ids such as 1\.5 are a number, but were a whole number"
    ):
        fitted.predict(X + 0.5)
    with pytest.raises(
        PredictionError, match=r"ids such as 'a' are a text, but were a whole number"
    ):
        fitted.predict(pd.DataFrame({"user": ["a"], "item": [2]}))


def test_a_column_that_is_not_there_is_named(frame: pd.DataFrame) -> None:
    with pytest.raises(DataError, match=r"user='usr' is no column of X, which has 'user', 'item'"):
        CFNADERegressor(user="usr").fit(frame[["user", "item"]], frame["rating"])


def test_continuous_targets_are_cut_into_levels(frame: pd.DataFrame) -> None:
    y = frame["rating"] + np.random.default_rng(0).normal(0, 0.2, len(frame))
    made = CFNADERegressor(**FAST, bins=4).fit(frame[["user", "item"]], y)
    assert len(made.model_.classes_) == 4
    assert y.min() < made.model_.classes_[0] < made.model_.classes_[-1] < y.max()


def test_a_pair_that_comes_twice_counts_with_its_mean(frame: pd.DataFrame) -> None:
    """As if its ratings, one below and one above, had been the one between."""
    X, y = frame[["user", "item"]], frame["rating"].to_numpy()
    chosen = int(np.argmax(y == 3))
    twice = pd.concat([X, X.iloc[[chosen]]])
    split = np.where(np.arange(len(twice)) == chosen, 2.0, np.append(y, 4.0))
    once = pd.concat([X.drop(index=chosen), X.iloc[[chosen]]])  # where the last of both stands
    expected = CFNADERegressor(**FAST).fit(once, np.append(np.delete(y, chosen), 3.0))
    found = CFNADERegressor(**FAST).fit(twice, split)
    assert_close(found.predict(X), expected.predict(X))


def test_cross_validation_is_that_by_hand(frame: pd.DataFrame) -> None:
    X, y, folds = frame[["user", "item"]], frame["rating"], KFold(3, shuffle=True, random_state=0)
    by_hand = []
    for train, test in folds.split(X):
        model = CFNADE(**FAST).fit(frame.iloc[train])
        cells = X["user"].iloc[test], X["item"].iloc[test]
        gaps = y.iloc[test] - model.predict(*cells, unknown="mean")
        by_hand.append(1 - (gaps**2).sum() / ((y.iloc[test] - y.iloc[test].mean()) ** 2).sum())
    scores = cross_val_score(CFNADERegressor(**FAST), X, y, cv=folds)
    np.testing.assert_allclose(scores, by_hand)


def test_a_grid_is_searched_through_a_pipeline(frame: pd.DataFrame) -> None:
    steps = [("pairs", FunctionTransformer()), ("cfnade", CFNADERegressor(**FAST))]
    grid = {"cfnade__epochs": [1, 6], "cfnade__learning_rate": [0.01]}
    search = GridSearchCV(Pipeline(steps), grid, cv=2, scoring="neg_root_mean_squared_error")
    search.fit(frame[["user", "item"]], frame["rating"])
    best = search.best_estimator_.named_steps["cfnade"]
    assert best.epochs == search.best_params_["cfnade__epochs"]
    assert len(best.model_.history_) == best.epochs
    assert len({*search.cv_results_["mean_test_score"]}) == 2


def test_the_repr_has_the_arguments_that_differ() -> None:
    assert repr(CFNADERegressor(epochs=3)) == "CFNADERegressor(epochs=3)"
