"""BatchPredictor: a table of people in, a table of answers out, the same on every engine.

    ray:    people.map_batches(BatchPredictor("model"), batch_format="pyarrow")
    spark:  people.mapInArrow(scorer.map_arrow, scorer.spark_schema)
    here:   BatchPredictor("model")(frame)

It pickles to its arguments. A process loads the model once, at the first table. An answer does not
depend on who else is in the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from cfnade.data.load import LoadOptions
from cfnade.data.raw_table import RawTable, parse_or_raise
from cfnade.data.validate import build
from cfnade.distributed.batch_tables import column, parse_histories, raw_ids, tells_histories
from cfnade.evaluation.evaluate import match_test
from cfnade.exceptions import PredictionError
from cfnade.inference.predictor import Predictor
from cfnade.inference.scorer import FEW_CELLS
from cfnade.utils.validation import check_choice

WHAT = ("recommend", "predict", "evaluate")
_DDL = {pl.Int64: "bigint", pl.Float64: "double", pl.String: "string", pl.Int32: "int"}


@lru_cache(maxsize=1)
def _loaded(folder: str, changed: int) -> Predictor:
    del changed  # another model in the same folder is another one
    return Predictor.load(folder)


def predictor_of(folder: str) -> Predictor:
    """The model, loaded once by a process."""
    return _loaded(folder, Path(folder).stat().st_mtime_ns)


class BatchPredictor:
    """Answers tables of people (recommend) or of cells (predict, evaluate) with a saved model.

    recommend: a column user; with columns items and ratings, lists of what each rated, people are
    new and user is any name. Options are those of Predictor.recommend (n, rank_by, balance …).
    predict: columns user and item, and the same lists for new people; time if the model needs it.
    evaluate: columns user, item and rating, none of which the model may know.
    """

    def __init__(self, model: str | Path, what: str = "recommend", **options: Any) -> None:
        check_choice("what", what, WHAT, error=PredictionError)
        if options and what != "recommend":
            raise PredictionError(f"{min(options)} is for lists; leave it out")
        self.model, self.what, self.options = str(Path(model).absolute()), what, options

    def __call__(self, table: Any) -> Any:
        """The answer in the kind of table that was given: pyarrow or polars."""
        if isinstance(table, pl.DataFrame):
            return self.answer(table)
        frame = pl.from_arrow(table)
        if not isinstance(frame, pl.DataFrame):
            raise PredictionError(f"a {type(table).__name__} is not a table of people")
        return self.answer(frame).to_arrow(compat_level=pl.CompatLevel.oldest())

    def map_arrow(self, batches: Iterable[Any]) -> Iterator[Any]:
        """For Spark's mapInArrow: record batches in and out, with the column types of `ddl`."""
        schema = self._schema()
        for batch in batches:
            import pyarrow

            answer = _cast(self(pl.DataFrame(pyarrow.Table.from_batches([batch]))), schema)
            yield from answer.to_arrow(compat_level=pl.CompatLevel.oldest()).to_batches()

    @property
    def spark_schema(self) -> str:
        """The columns of answers as Spark writes them; user as the model has it."""
        kinds = self._schema().items()
        return ", ".join(f"`{name}` {_DDL[kind.base_type()]}" for name, kind in kinds)

    def _schema(self) -> dict[str, pl.DataType]:
        """Return the columns of answers for users of the model."""
        predictor = predictor_of(self.model)
        empty = {
            "user": predictor.users.table[:0].tolist(),
            "item": predictor.items.table[:0].tolist(),
        }
        kinds = {axis: pl.String if ids.are_texts else pl.Int64 for axis, ids in _axes(predictor)}
        frame = pl.DataFrame(empty | {"rating": []}, {**kinds, "rating": pl.Float64})
        return dict(self.answer(frame).schema)

    def answer(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Answers in the order of the questions."""
        predictor = predictor_of(self.model)
        if self.what == "recommend":
            return self._lists(predictor, frame)
        if self.what == "predict":
            return _cells(predictor, frame)
        return _judged(predictor, frame)

    def _lists(self, known: Predictor, frame: pl.DataFrame) -> pl.DataFrame:
        users = column(frame, "user")
        if tells_histories(frame):
            lists = known.lists_of(people=parse_histories(frame, known), **self.options)
        else:
            lists = known.lists_of(raw_ids(users, known.users), **self.options)
        return _plain(lists.with_columns(users.gather(lists["user"])))


def _cast(answer: pl.DataFrame, schema: dict[str, pl.DataType]) -> pl.DataFrame:
    """Cast answers to the types that were declared; names that are no numbers are an error."""
    try:
        return answer.cast({name: schema[name] for name in answer.columns})
    except pl.exceptions.InvalidOperationError:
        names = answer["user"].cast(pl.String)
        wrong = names.filter(names.cast(schema["user"], strict=False).is_null())
        raise PredictionError(
            f"user {wrong[0]!r}: ddl declares whole numbers, as the user ids of this model are; "
            "number new users, too"
        ) from None


def _axes(known: Predictor) -> tuple[tuple[str, Any], ...]:
    return ("user", known.users), ("item", known.items)


def _cells(known: Predictor, frame: pl.DataFrame) -> pl.DataFrame:
    users = column(frame, "user")
    filled = _filled(len(frame))
    beside: dict[str, Any] = {}
    asked: Any = filled
    if tells_histories(frame):
        people = parse_histories(frame, known)
        beside["histories"] = {place: people[place] for place in range(len(people))}
    else:
        asked = _taken(raw_ids(users, known.users), filled)
    if known.fitted.needs_times:
        beside["timestamp"] = _parsed(frame, "time")[filled]
    items = _taken(raw_ids(column(frame, "item"), known.items), filled)
    answers = known.predict_frame(asked, items, **beside).head(len(frame))
    return _plain(answers.with_columns(users))


def _judged(known: Predictor, frame: pl.DataFrame) -> pl.DataFrame:
    """Predictions beside the ratings that came."""
    if not len(frame):
        return _cells(known, frame).with_columns(pl.Series("rating", [], pl.Float64))
    users, items = (column(frame, name) for name in ("user", "item"))
    who, what = pl.Series(raw_ids(users, known.users)), pl.Series(raw_ids(items, known.items))
    stars = _parsed(frame, "rating")
    test = build(RawTable.from_arrays(who, what, stars), LoadOptions(scale=known.scale))
    match_test(known.scorer, test)
    return _cells(known, frame).with_columns(pl.Series("rating", stars))


def _parsed(frame: pl.DataFrame, name: str) -> Any:
    """Return a column of ratings or times as numbers."""
    parsed = parse_or_raise({name: column(frame, name)}, lambda row, _: f"row {row}")
    return parsed.frame[name].to_numpy()


def _filled(count: int) -> Any:
    """Places of all, and of the last one again until they are more than a few. (≥ count,)."""
    return np.minimum(np.arange(max(count, FEW_CELLS + 1) if count else 0), max(count - 1, 0))


def _taken(raws: Any, places: Any) -> Any:
    return [raws[place] for place in places] if isinstance(raws, list) else raws[places]


def _plain(frame: pl.DataFrame) -> pl.DataFrame:
    """Columns of as few types as every engine has."""
    small = [name for name, kind in frame.schema.items() if kind.is_integer()]
    return frame.with_columns(pl.col(small).cast(pl.Int64))
