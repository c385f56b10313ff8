"""Asked with pandas, answered with pandas, and so on; the numbers are always the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import polars as pl
import pyarrow as pa
import pytest
from tests.support.close import assert_close

from cfnade import CFNADE, Dataset, synthetic
from cfnade.data.synthetic import synthetic_interactions
from cfnade.exceptions import PredictionError

SMALL: dict[str, Any] = {
    "side": "user",
    "hidden": (6,),
    "epochs": 2,
    "batch_rows": 8,
    "n_threads": 1,
}
USERS, ITEMS = [1, 2, 7], [3, 4, 5]
HISTORY = {3: 5.0, 4: 1.0}
# As each library has it: a column, a table, and the type that its tables are of.
KINDS: dict[str, tuple[Any, Any, Any]] = {
    "pandas": (pd.Series, pd.DataFrame, pd.DataFrame),
    "polars": (pl.Series, pl.DataFrame, pl.DataFrame),
    "pyarrow": (lambda values: pa.chunked_array([values]), pa.table, pa.Table),
}
kinds = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(scope="module")
def ratings() -> Dataset:
    return synthetic(30, 20, 300, seed=3).ratings


@pytest.fixture(scope="module")
def model(ratings: Dataset) -> CFNADE:
    return CFNADE(**SMALL).fit(ratings)


def rows(frame: Any) -> list[dict[str, Any]]:
    """What stands in any of them."""
    if isinstance(frame, pd.DataFrame):
        return [
            {name: None if one is None or one != one else one for name, one in row.items()}
            for row in frame.to_dict("records")
        ]
    return list(frame.to_pylist() if isinstance(frame, pa.Table) else frame.to_dicts())


@kinds
def test_arrays_are_returned_for_columns(model: CFNADE, kind: str) -> None:
    column, _, _ = KINDS[kind]
    users, items = column(USERS), column(ITEMS)
    for method in (model.predict, model.predict_proba):
        for one, other in ((users, items), (1, items), (users, 3)):
            found = method(one, other)
            assert isinstance(found, np.ndarray)
            assert_close(found, method(np.asarray(one).tolist(), np.asarray(other).tolist()))


@kinds
def test_answers_have_the_library_of_the_arguments(model: CFNADE, kind: str) -> None:
    column, made, table = KINDS[kind]
    rated = made({"item": [*HISTORY], "rating": [*HISTORY.values()]})
    people = made({"user": ["a", "a"], "item": [*HISTORY], "rating": [*HISTORY.values()]})
    pairs = [
        (
            model.predict_frame(column(USERS), column(ITEMS)),
            model.predict_frame(USERS, ITEMS),
        ),
        (model.recommend(column([1, 2]), n=3), model.recommend([1, 2], n=3)),
        (model.recommend(history=rated, n=3), model.recommend(history=HISTORY, n=3)),
        (model.explain(history=rated, item=5), model.explain(history=HISTORY, item=5)),
        (
            model.suggest_items_to_rate(history=rated, n=3),
            model.suggest_items_to_rate(history=HISTORY, n=3),
        ),
        (
            model.recommend(histories=people, n=3),
            model.recommend(histories={"a": HISTORY}, n=3),
        ),
    ]
    for found, expected in pairs:
        assert isinstance(found, table)
        assert isinstance(expected, pl.DataFrame)
        assert_close(rows(found), rows(expected))
    asked = ["a", "a"], [5, 6]
    ratings = model.predict(*asked, histories={"a": HISTORY})
    assert_close(model.predict(*asked, histories=people), ratings)


def test_pandas_keeps_the_index(model: CFNADE) -> None:
    index = pd.Index(["x", "y", "z"])
    users, items = pd.Series(USERS, index=index), pd.Series(ITEMS, index=index)
    answer: Any = model.predict_frame(users, items)
    assert answer.index.equals(index)
    frame = pd.DataFrame({"user": users, "item": items})
    frame["predicted"] = model.predict(frame["user"], frame["item"])
    assert_close(frame["predicted"].to_numpy(), model.predict(USERS, ITEMS))


@kinds
def test_answers_have_the_library_of_the_training_data(ratings: Dataset, kind: str) -> None:
    _, made, table = KINDS[kind]
    users, items = ratings.user_ids[ratings.users], ratings.item_ids[ratings.items]
    model = CFNADE(**SMALL).fit(made({"user": users, "item": items, "rating": ratings.values}))
    assert isinstance(model.recommend([1]), table)
    assert isinstance(model.similar_items(3), table)
    assert isinstance(model.predict([1], [3]), np.ndarray)
    asked = pd.Series([1]) if kind == "polars" else pl.Series([1])
    assert isinstance(model.recommend(asked), pd.DataFrame if kind == "polars" else pl.DataFrame)


def test_set_output(ratings: Dataset) -> None:
    model = CFNADE(**SMALL).fit(ratings).set_output("pandas")
    assert isinstance(model.recommend(pl.Series([1])), pd.DataFrame)
    assert isinstance(model.suggest_items_to_rate(1), pd.DataFrame)
    assert isinstance(model.set_output(None).recommend([1]), pl.DataFrame)
    with pytest.raises(
        PredictionError, match=r"library \(='spark'\) must be one of pandas, polars"
    ):
        model.set_output("spark")  # type: ignore[arg-type]


def test_a_history_can_be_a_pandas_series(model: CFNADE) -> None:
    expected = model.recommend(history=HISTORY, n=3)
    assert_close(rows(model.recommend(history=pd.Series(HISTORY), n=3)), rows(expected))
    with pytest.raises(PredictionError, match="a table of items and ratings"):
        model.recommend(history=pl.Series([3, 4]))


def test_a_history_of_interactions_can_be_a_column() -> None:
    model = CFNADE().fit(
        synthetic_interactions(users=60, items=20, per_user=6, seed=1).interactions
    )
    expected = rows(model.recommend(history=[3, 4], n=3))
    for history in (pl.Series([3, 4]), pd.Series([3, 4]), pl.DataFrame({"item": [3, 4]})):
        assert_close(rows(model.recommend(history=history, n=3)), expected)


def test_a_history_with_other_columns_is_refused(model: CFNADE) -> None:
    with pytest.raises(PredictionError, match="columns 'a', 'b', 'c'; it needs item, rating"):
        model.recommend(history=pl.DataFrame({"a": [3], "b": [4], "c": [5]}))
