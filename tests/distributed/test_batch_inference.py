"""The class that engines call: answers are the Predictor's, whoever else is in a table."""

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

from cfnade.distributed.batch_inference import BatchPredictor, Task
from cfnade.estimator import CFNADE
from cfnade.exceptions import PredictionError


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved_model(tmp_path_factory.mktemp("scoring") / "model")


@pytest.mark.parametrize("crowd", [known()[200:], newcomers()], ids=["known", "new"])
@pytest.mark.parametrize("options", [{}, {"n": 3, "rank_by": "threshold", "exclude_seen": False}])
def test_a_list_has_the_same_bits_in_any_company(
    model: Path, crowd: pl.DataFrame, options: dict[str, Any]
) -> None:
    scorer, draw = BatchPredictor(model, **options), random.Random(2)
    whole = scorer(crowd)
    for most in (1, 6, 40):
        at, parts = 0, []
        while at < len(crowd):
            size = draw.randint(1, most)
            parts.append(scorer(crowd.slice(at, size)))
            at += size
            if most == 1 and at > 8:
                break
        assert_frame_equal(pl.concat(parts), whole.head(sum(map(len, parts))), check_exact=True)


def test_lists_are_those_of_the_predictor(model: Path) -> None:
    predictor, scorer = CFNADE.load(model), BatchPredictor(model, n=5)
    lists = scorer(known())
    for user in (1, 77, 9_999):
        asked = predictor.recommend([user], n=5)
        mine = lists.filter(pl.col("user") == user)
        assert mine["item"].to_list() == asked["item"].to_list()
        np.testing.assert_allclose(mine["score"], asked["score"], rtol=1e-5)


def test_lists_of_new_people_are_those_of_their_histories(model: Path) -> None:
    predictor, crowd = CFNADE.load(model), newcomers(12)
    lists = BatchPredictor(model, n=4)(crowd)
    assert set(lists["user"]) == set(crowd["user"])
    for name, items, stars in crowd.iter_rows():
        known_items = {i: s for i, s in zip(items, stars, strict=True) if i <= ITEMS}
        asked = predictor.recommend(history=known_items, n=4)
        mine = lists.filter(pl.col("user") == name)
        assert mine["item"].to_list() == asked["item"].to_list()
        assert not set(mine["item"]) & set(items)


def test_predictions_are_those_of_the_predictor_in_any_company(model: Path) -> None:
    predictor, scorer, asked = CFNADE.load(model), BatchPredictor(model, "predict"), cells()
    whole = scorer(asked)
    np.testing.assert_allclose(
        whole["prediction"], predictor.predict(asked["user"], asked["item"]), rtol=1e-5
    )
    some = pl.concat([scorer(asked[first : first + 3]) for first in range(0, 30, 3)])
    assert_frame_equal(some, whole.head(30), rel_tol=1e-5)  # but for the last bits
    person = newcomers(3).with_columns(item=pl.lit(7))
    said = scorer(person)["prediction"].to_list()
    for (_, items, stars, item), mine in zip(person.iter_rows(), said, strict=True):
        history = {i: s for i, s in zip(items, stars, strict=True) if i <= ITEMS}
        alone = predictor.predict(["x"], [item], histories={"x": history})
        assert mine == pytest.approx(float(alone[0]), rel=1e-5)


def test_ids_may_come_as_texts_and_tables_as_arrow(model: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    scorer = pickle.loads(pickle.dumps(BatchPredictor(model, n=3)))
    crowd = known()[:40]
    plain = scorer(crowd)
    texts = scorer(crowd.with_columns(pl.col("user").cast(pl.String)))
    assert texts["item"].to_list() == plain["item"].to_list()
    arrow = crowd.to_arrow()
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


def test_nobody_is_answered_with_an_empty_table_of_the_same_columns(model: Path) -> None:
    tables: list[tuple[Task, pl.DataFrame]] = [("recommend", known()), ("predict", cells())]
    for what, crowd in [*tables, ("recommend", newcomers())]:
        scorer = BatchPredictor(model, what)
        assert scorer(crowd[:0]).schema == scorer(crowd[:5]).schema


@pytest.mark.parametrize(
    ("crowd", "message"),
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
def test_a_table_that_cannot_be_answered_is_one_error(
    model: Path, crowd: dict[str, list[object]], message: str
) -> None:
    with pytest.raises(PredictionError, match=message):
        BatchPredictor(model)(pl.DataFrame(crowd))


def test_what_it_does_not_know_is_refused(model: Path) -> None:
    with pytest.raises(PredictionError, match="task"):
        BatchPredictor(model, "guess")  # type: ignore[arg-type]
    with pytest.raises(PredictionError, match="n is an option of recommend"):
        BatchPredictor(model, "predict", n=3)
    with pytest.raises(PredictionError, match="tast"):
        BatchPredictor(model, tast=0.5)(known())
