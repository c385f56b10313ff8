"""Tables in, predictions out: those of Predictor, whatever else is in a table."""

from __future__ import annotations

import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from tests.distributed.batches import ITEMS, cells, known, newcomers, saved_model

from cfnade.distributed.batch_inference import BatchPredictor
from cfnade.estimator import CFNADE
from cfnade.exceptions import PredictionError


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved_model(tmp_path_factory.mktemp("scoring") / "model")


@pytest.mark.parametrize("table", [known()[200:], newcomers()], ids=["known", "new"])
@pytest.mark.parametrize("options", [{}, {"n": 3, "rank_by": "threshold", "exclude_seen": False}])
def test_a_list_has_the_same_bits_in_any_batch(
    model: Path, table: pl.DataFrame, options: dict[str, Any]
) -> None:
    scorer, draw = BatchPredictor(model, **options), random.Random(2)
    whole = scorer(table)
    assert scorer(table[:0]).schema == whole.schema
    for most in (1, 6, 40):
        row, parts = 0, []
        while row < len(table):
            size = draw.randint(1, most)
            parts.append(scorer(table.slice(row, size)))
            row += size
            if most == 1 and row > 8:
                break
        assert_frame_equal(pl.concat(parts), whole.head(sum(map(len, parts))), check_exact=True)


def test_lists_are_those_of_the_predictor(model: Path) -> None:
    predictor, scorer = CFNADE.load(model), BatchPredictor(model, n=5)
    lists = scorer(known())
    for user in (1, 77, 9_999):
        expected = predictor.recommend([user], n=5)
        result = lists.filter(pl.col("user") == user)
        assert result["item"].to_list() == expected["item"].to_list()
        np.testing.assert_allclose(result["score"], expected["score"], rtol=1e-5)


def test_lists_of_new_users_are_those_of_their_histories(model: Path) -> None:
    predictor, table = CFNADE.load(model), newcomers(12)
    lists = BatchPredictor(model, n=4)(table)
    assert set(lists["user"]) == set(table["user"])
    for name, items, stars in table.iter_rows():
        known_items = {i: s for i, s in zip(items, stars, strict=True) if i <= ITEMS}
        expected = predictor.recommend(history=known_items, n=4)
        result = lists.filter(pl.col("user") == name)
        assert result["item"].to_list() == expected["item"].to_list()
        assert not set(result["item"]) & set(items)


def test_predictions_are_those_of_the_predictor_in_any_batch(model: Path) -> None:
    predictor, scorer, pairs = CFNADE.load(model), BatchPredictor(model, "predict"), cells()
    whole = scorer(pairs)
    np.testing.assert_allclose(
        whole["prediction"], predictor.predict(pairs["user"], pairs["item"]), rtol=1e-5
    )
    some = pl.concat([scorer(pairs[first : first + 3]) for first in range(0, 30, 3)])
    assert_frame_equal(some, whole.head(30), rel_tol=1e-5)  # but for the last bits
    history_rows = newcomers(3).with_columns(item=pl.lit(7))
    predictions = scorer(history_rows)["prediction"].to_list()
    for (_, items, stars, item), result in zip(history_rows.iter_rows(), predictions, strict=True):
        history = {i: s for i, s in zip(items, stars, strict=True) if i <= ITEMS}
        single = predictor.predict(["x"], [item], histories={"x": history})
        assert result == pytest.approx(float(single[0]), rel=1e-5)


def test_ids_may_be_text_and_tables_arrow(model: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    scorer = pickle.loads(pickle.dumps(BatchPredictor(model, n=3)))
    table = known()[:40]
    plain = scorer(table)
    texts = scorer(table.with_columns(pl.col("user").cast(pl.String)))
    assert texts["item"].to_list() == plain["item"].to_list()
    arrow = table.to_arrow()
    answered = scorer(arrow)
    assert isinstance(answered, pyarrow.Table)
    assert_frame_equal(pl.DataFrame(answered), plain)
    batches = list(scorer.map_arrow(arrow.to_batches(max_chunksize=7)))
    assert_frame_equal(pl.DataFrame(pyarrow.Table.from_batches(batches)), plain)


@pytest.mark.parametrize("user_type", [pl.Int32, pl.Int64, pl.String])
@pytest.mark.parametrize("task", ["recommend", "predict", "evaluate"])
def test_batches_for_spark_have_the_types_of_the_schema(
    model: Path, task: Any, user_type: Any
) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    predictor = BatchPredictor(model, task)
    table = {
        "recommend": newcomers(4).with_columns(user=pl.Series(["17", "3", "9999", "0"])),
        "predict": cells(4),
        "evaluate": pl.read_parquet(model.parent / "test.parquet").head(4),
    }[task].with_columns(pl.col("user").cast(user_type))
    (batch,) = predictor.map_arrow(table.to_arrow().to_batches())
    result = pl.DataFrame(pyarrow.Table.from_batches([batch]))
    names = {pl.Int32: "int", pl.Int64: "bigint", pl.String: "string"}
    types = {pl.Int64: "bigint", pl.Float64: "double", pl.String: "string"}
    assert predictor.spark_schema(names[user_type]) == ", ".join(
        f"`{name}` {types[kind.base_type()]}" for name, kind in result.schema.items()
    )


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"person": [1]}, "no column user; its columns are person"),
        ({"user": [1, None]}, "row 1: user is missing"),
        ({"user": ["1", "anna"]}, "row 1: user 'anna': the user ids of this model are whole"),
        ({"user": ["a"], "items": [1], "ratings": [2.0]}, "items is of type .*group_by"),
        ({"user": ["a"], "items": [[1, 2]], "ratings": [[2.0]]}, "2 items and 1 ratings"),
        ({"user": ["a", "b"], "items": [[1], [2]], "ratings": [[2.0], [9.0]]}, "row 1: rating 9"),
        (
            {"user": ["a"], "items": [[1, 1]], "ratings": [[2.0, 3.0]]},
            "row 0: item 1 is rated more than once",
        ),
        ({"user": ["a"], "items": [[1]]}, "no column ratings"),
    ],
)
def test_an_invalid_table_is_one_error(
    model: Path, table: dict[str, list[object]], message: str
) -> None:
    with pytest.raises(PredictionError, match=message):
        BatchPredictor(model)(pl.DataFrame(table))


def test_unknown_tasks_and_options_are_refused(model: Path) -> None:
    with pytest.raises(PredictionError, match="task"):
        BatchPredictor(model, "guess")  # type: ignore[arg-type]
    with pytest.raises(PredictionError, match="n is an option of recommend"):
        BatchPredictor(model, "predict", n=3)
    with pytest.raises(PredictionError, match="tast"):
        BatchPredictor(model, tast=0.5)(known())
