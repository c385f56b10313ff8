"""Predict for tables of users or pairs with a saved model: in this process, on Ray or on Spark.

`predict_to_parquet` is a whole job. In a pipeline of your own, `BatchPredictor` is what the engine
calls:

    ray:    users.map_batches(BatchPredictor, fn_constructor_args=["model"], batch_format="pyarrow")
    spark:  users.mapInArrow(predictor.map_arrow, predictor.spark_schema("bigint"))
    local:  predictor(frame)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl

from cfnade.data.load import LoadOptions
from cfnade.data.raw_table import RawTable, parse_or_raise
from cfnade.data.scale import Scale
from cfnade.data.validate import build
from cfnade.distributed.batch_tables import column, has_histories, parse_histories, raw_ids
from cfnade.evaluation import rating_metrics
from cfnade.evaluation.evaluate import match_test
from cfnade.exceptions import PredictionError
from cfnade.inference.predictor import Predictor
from cfnade.inference.results import probability_names
from cfnade.inference.scorer import FEW_PAIRS
from cfnade.utils.validation import check_choice

Task = Literal["recommend", "predict", "evaluate"]
TASKS = ("recommend", "predict", "evaluate")
_SPARK_TYPES = {pl.Int64: "bigint", pl.Float64: "double", pl.String: "string"}
_SPARK_INTEGERS = ("tinyint", "smallint", "int", "bigint")


@lru_cache(maxsize=1)
def _load(folder: str, modified: int) -> Predictor:
    del modified  # a model that replaced another in the same folder is loaded again
    return Predictor.load(folder)


def load_predictor(folder: str) -> Predictor:
    """Return the model in a folder, loaded once by a process."""
    return _load(folder, Path(folder).stat().st_mtime_ns)


class BatchPredictor:
    """Picklable callable, table in, table out; each process loads the model at the first table.

    The rows of a result do not depend on the other rows of the table.

    - recommend: a column user. With columns items and ratings, which hold lists, each row is a new
      user with that history, and user is any label.
    - predict: columns user and item, and items and ratings for new users; time if the model uses
      timestamps.
    - evaluate: columns user, item and rating; none of these ratings may be part of the model.

    Args:
        model: Folder of a saved model.
        task: What to do.
        options: Those of `CFNADE.recommend`, such as n, for the task recommend.
    """

    def __init__(self, model: str | Path, task: Task = "recommend", **options: Any) -> None:
        check_choice("task", task, TASKS, error=PredictionError)
        if options and task != "recommend":
            raise PredictionError(f"{min(options)} is an option of recommend; leave it out")
        self.model, self.task, self.options = str(Path(model).absolute()), task, options

    def __call__(self, table: Any) -> Any:
        """Return the result as the kind of table that was given: pyarrow or polars."""
        if isinstance(table, pl.DataFrame):
            return self._predict(table)
        frame = pl.from_arrow(table)
        if not isinstance(frame, pl.DataFrame):
            raise PredictionError(f"a {type(table).__name__} is not a table")
        return self._predict(frame).to_arrow(compat_level=pl.CompatLevel.oldest())

    def map_arrow(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Map record batches to record batches, as Spark's mapInArrow asks for."""
        import pyarrow

        for batch in batches:
            yield from self(pyarrow.Table.from_batches([batch])).to_batches()

    def spark_schema(self, user_type: str) -> str:
        """Return the columns of results in Spark's notation.

        Args:
            user_type: Spark's type of the input's column user, such as "bigint" or "string".
        """
        predictor = load_predictor(self.model)
        item_type = pl.String if predictor.items.are_texts else pl.Int64
        empty = pl.DataFrame(
            schema={"user": pl.String, "item": item_type, "rating": pl.Float64, "time": pl.Int64}
        )
        columns = {
            name: _SPARK_TYPES[kind.base_type()]
            for name, kind in self._predict(empty).schema.items()
        }
        columns["user"] = "bigint" if user_type in _SPARK_INTEGERS else user_type
        return ", ".join(f"`{name}` {kind}" for name, kind in columns.items())

    def _predict(self, frame: pl.DataFrame) -> pl.DataFrame:
        predictor = load_predictor(self.model)
        if self.task == "recommend":
            result = _recommend(predictor, frame, self.options)
        elif self.task == "predict":
            result = _predict_pairs(predictor, frame)
        else:
            result = _evaluate_pairs(predictor, frame)
        small = [name for name, kind in result.schema.items() if kind.is_integer()]
        return result.with_columns(pl.col(small).cast(pl.Int64))  # a type that every engine has


def _recommend(predictor: Predictor, frame: pl.DataFrame, options: Any) -> pl.DataFrame:
    users = column(frame, "user")
    if has_histories(frame):
        lists = predictor.lists_of(people=parse_histories(frame, predictor), **options)
    else:
        lists = predictor.lists_of(raw_ids(users, predictor.users), **options)
    return lists.with_columns(users.gather(lists["user"]))


def _predict_pairs(predictor: Predictor, frame: pl.DataFrame) -> pl.DataFrame:
    users, rows = column(frame, "user"), _padded_rows(len(frame))
    arguments: dict[str, Any] = {}
    if has_histories(frame):
        histories = parse_histories(frame, predictor)
        arguments["histories"] = dict(enumerate(histories))
        user_ids: Any = rows
    else:
        user_ids = _take(raw_ids(users, predictor.users), rows)
    if predictor.fitted.needs_times:
        arguments["timestamp"] = _numbers(frame, "time")[rows]
    item_ids = _take(raw_ids(column(frame, "item"), predictor.items), rows)
    predictions = predictor.predict_frame(user_ids, item_ids, **arguments)
    return predictions.head(len(frame)).with_columns(users)


def _evaluate_pairs(predictor: Predictor, frame: pl.DataFrame) -> pl.DataFrame:
    """Return predictions with the true ratings and the errors of each."""
    ratings = _numbers(frame, "rating") if len(frame) else np.empty(0)
    if len(frame):
        users, items = (
            pl.Series(raw_ids(column(frame, axis), index))
            for axis, index in (("user", predictor.users), ("item", predictor.items))
        )
        table = RawTable.from_arrays(users, items, ratings)
        match_test(predictor.scorer, build(table, LoadOptions(scale=predictor.scale)))
    predictions = _predict_pairs(predictor, frame)
    return predictions.with_columns(_errors(predictions, ratings, predictor.scale))


def _errors(predictions: pl.DataFrame, ratings: Any, scale: Scale) -> list[pl.Series]:
    """Return the errors of each prediction, whose means are the scores of all."""
    names = ("squared_error", "absolute_error", "nll", "rps")
    columns = dict.fromkeys(names, np.empty(0))
    if len(ratings):
        probabilities = predictions.select(probability_names(scale)).to_numpy()
        levels, values = scale.nearest(ratings).astype(np.int64), scale.array()
        errors = (
            np.square(ratings - predictions["prediction"].to_numpy()),
            np.abs(ratings - rating_metrics.medians(probabilities, values)),
            rating_metrics.surprisals(probabilities, levels),
            rating_metrics.ranked_probability_scores(probabilities, levels, values),
        )
        columns = dict(zip(names, errors, strict=True))
    return [pl.Series("rating", ratings), *(pl.Series(name, e) for name, e in columns.items())]


def _numbers(frame: pl.DataFrame, name: str) -> Any:
    """Return a column of ratings or times as numbers."""
    parsed = parse_or_raise({name: column(frame, name)}, lambda row, _: f"row {row}")
    return parsed.frame[name].to_numpy()


def _padded_rows(count: int) -> Any:
    """Return row numbers, the last one repeated if there are few. (≥ count,).

    Few pairs are computed in another order of sums, and results must not depend on the batch.
    """
    return np.minimum(np.arange(max(count, FEW_PAIRS + 1) if count else 0), max(count - 1, 0))


def _take(ids: Any, rows: Any) -> Any:
    return [ids[row] for row in rows] if isinstance(ids, list) else ids[rows]
