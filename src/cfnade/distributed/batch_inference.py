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
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl

from cfnade.data.load import LoadOptions
from cfnade.data.raw_table import RawTable, parse_or_raise
from cfnade.data.validate import build
from cfnade.evaluation import rating_metrics
from cfnade.evaluation.evaluate import match_test
from cfnade.exceptions import PredictionError
from cfnade.inference.catalog import IdIndex
from cfnade.inference.histories import UserHistory, parse_history
from cfnade.inference.predictor import Predictor
from cfnade.inference.ranking_options import RankingOptions
from cfnade.inference.results import probability_names
from cfnade.inference.scorer import FEW_PAIRS
from cfnade.utils.validation import check_choice

Task = Literal["recommend", "predict", "evaluate"]
TASKS = ("recommend", "predict", "evaluate")
HISTORY = ("items", "ratings")
"""Columns of lists: the items that a new user rated, and the ratings."""
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


# -- tasks ----------------------------------------------------------------------------------------


def _recommend(predictor: Predictor, frame: pl.DataFrame, options: Any) -> pl.DataFrame:
    users = _column(frame, "user")
    if HISTORY[0] in frame.columns:
        histories = dict(enumerate(_parse_histories(frame, predictor)))
        _, entities = predictor.resolve_users(histories=histories)
    else:
        _, entities = predictor.resolve_users(_raw_ids(users, predictor.users))
    top = predictor.recommend(entities, RankingOptions.from_dict(options), equal_batches=True)
    lists = top.to_frame(np.arange(len(top.n_user_ratings)))
    lists = lists.filter(pl.col("user") < len(users))  # a batch is filled up with the last user
    return lists.with_columns(users.gather(lists["user"]))


def _predict_pairs(predictor: Predictor, frame: pl.DataFrame) -> pl.DataFrame:
    users, count = _column(frame, "user"), len(frame)
    # Few pairs are computed in another order of sums, and results must not depend on the batch.
    padded = max(count, FEW_PAIRS + 1) if count else 0
    rows = np.minimum(np.arange(padded), max(count - 1, 0))
    arguments: dict[str, Any] = {}
    if HISTORY[0] in frame.columns:
        arguments["histories"] = dict(enumerate(_parse_histories(frame, predictor)))
        user_ids: Any = rows
    else:
        user_ids = _raw_ids(users.gather(rows), predictor.users)
    if predictor.fitted.needs_times:
        arguments["timestamp"] = _numbers(frame, "time")[rows]
    item_ids = _raw_ids(_column(frame, "item").gather(rows), predictor.items)
    predictions = predictor.predict(user_ids, item_ids, **arguments).to_frame()
    return predictions.head(count).with_columns(users)


def _evaluate_pairs(predictor: Predictor, frame: pl.DataFrame) -> pl.DataFrame:
    """Return predictions with the true ratings and the errors of each."""
    predictions = _predict_pairs(predictor, frame)
    if not len(frame):
        names = ("rating", "squared_error", "absolute_error", "nll", "rps")
        return predictions.with_columns(pl.lit(0.0).alias(name) for name in names)
    ratings, scale = _numbers(frame, "rating"), predictor.scale
    users, items = (
        pl.Series(_raw_ids(frame[axis], index))
        for axis, index in (("user", predictor.users), ("item", predictor.items))
    )
    test = build(RawTable.from_arrays(users, items, ratings), LoadOptions(scale=scale))
    match_test(predictor.scorer, test)  # none of these ratings may be part of the model
    probabilities = predictions.select(probability_names(scale)).to_numpy()
    levels, values = scale.nearest(ratings).astype(np.int64), scale.array()
    return predictions.with_columns(
        rating=ratings,
        squared_error=np.square(ratings - predictions["prediction"].to_numpy()),
        absolute_error=np.abs(ratings - rating_metrics.medians(probabilities, values)),
        nll=rating_metrics.surprisals(probabilities, levels),
        rps=rating_metrics.ranked_probability_scores(probabilities, levels, values),
    )


# -- columns --------------------------------------------------------------------------------------


def _column(frame: pl.DataFrame, name: str) -> pl.Series:
    """Return a column; raise if it is missing or has nulls."""
    if name not in frame.columns:
        raise PredictionError(
            f"the table has no column {name}; its columns are {', '.join(frame.columns) or 'none'}"
        )
    values = frame[name]
    if values.null_count():
        row = values.is_null().arg_max()
        raise PredictionError(f"row {row}: {name} is missing; fill it in or leave the row out")
    return values


def _numbers(frame: pl.DataFrame, name: str) -> Any:
    """Return a column of ratings or times as numbers."""
    parsed, _ = parse_or_raise({name: _column(frame, name)}, lambda row, _: f"row {row}")
    return parsed[name].to_numpy()


def _raw_ids(values: pl.Series, ids: IdIndex) -> Any:
    """Return ids in the type of the model: an array of integers, or strings."""
    if ids.are_texts:
        return values.cast(pl.String).to_list()
    integers = values.cast(pl.Int64, strict=False)
    is_wrong = (integers.cast(values.dtype, strict=False) != values).fill_null(True)
    if is_wrong.any():
        raise PredictionError(
            f"row {is_wrong.arg_max()}: {values.name} {values.filter(is_wrong)[0]!r}: the "
            f"{ids.axis} ids of this model are whole numbers"
        )
    return integers.to_numpy()


def _parse_histories(frame: pl.DataFrame, predictor: Predictor) -> list[UserHistory]:
    """Return the history of each row; items that are unknown to the model are left out."""
    items = _lists(frame, HISTORY[0])
    ratings = items if len(predictor.scale) == 1 else _lists(frame, HISTORY[1])
    flat = items.explode(empty_as_null=False, keep_nulls=False).alias("item")
    ids = iter(np.asarray(_raw_ids(flat, predictor.items)).tolist())
    histories = []
    for row, (count, row_ratings) in enumerate(zip(items.list.len(), ratings, strict=True)):
        if count != len(row_ratings):
            raise PredictionError(
                f"row {row}: {count} items and {len(row_ratings)} ratings; a history has one of "
                "each"
            )
        pairs = list(zip(islice(ids, count), row_ratings.to_list(), strict=True))
        try:
            history = parse_history(
                pairs, predictor.catalog, predictor.scale, find_items=predictor.items.indices
            )
        except PredictionError as error:
            raise PredictionError(f"row {row}: {error}") from error
        histories.append(history)
    return histories


def _lists(frame: pl.DataFrame, name: str) -> pl.Series:
    values = _column(frame, name)
    if not isinstance(values.dtype, pl.List | pl.Array):
        raise PredictionError(
            f"{name} is of type {values.dtype}; it must hold a list for each person, as "
            "group_by(user) with lists of items and ratings makes it"
        )
    return values.cast(pl.List(values.dtype.inner))
