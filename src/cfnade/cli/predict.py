"""`cfnade predict`: ratings of given users and items."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cfnade.cli.options import Model, argument, option
from cfnade.cli.process import print_status
from cfnade.exceptions import PredictionError
from cfnade.utils.text import count_of

if TYPE_CHECKING:
    import polars as pl

    from cfnade.cli.user_input import Table
    from cfnade.inference.predictor import Predictor


def predict(
    model: Model,
    pairs: Annotated[Path, argument("PAIRS", "CSV or Parquet with columns user and item.")],
    *,
    out: Annotated[
        Path | None, option("FILE", ".parquet or .csv.  [default: standard output]")
    ] = None,
    timestamp: Annotated[
        str | None, option("TIME", "Seconds since 1970, or a date, for all pairs.")
    ] = None,
    unknown: Annotated[
        Literal["mean", "nan", "raise"] | None,
        option("RULE", "For unknown ids: mean, nan or raise.  [default: mean]"),
    ] = None,
    new_items: Annotated[
        Path | None, option("FILE", "Table of first ratings of new items.")
    ] = None,
) -> None:
    """Predict the ratings of pairs of users and items.

    For many pairs, see `cfnade batch predict`.

    \b
      cfnade predict model pairs.csv
      cfnade predict model pairs.csv --out predictions.parquet
      cfnade predict model pairs.csv --timestamp 2005-09-06
      cfnade predict model pairs.csv --new-items first-ratings.csv
    """
    from cfnade.cli.user_input import (
        Table,
        load_predictor,
        parse_new_items,
        require_writable,
        write_frame,
    )

    require_writable(out)
    predictor, table = load_predictor(model), Table(pairs)
    predictions = predictor.predict(
        [predictor.users.parse(text) for text in table.column("user")],
        [predictor.items.parse(text) for text in table.column("item")],
        new_items=parse_new_items(predictor, new_items),
        timestamp=_timestamps(predictor, table, timestamp),
        unknown=unknown or "mean",
    ).to_frame()
    if unknown is None:
        _report_unknown(predictions)
    if out is None:
        sys.stdout.write(predictions.write_csv())
    else:
        write_frame(predictions, out)
        print_status(f"{out}: {count_of(len(predictions), 'prediction')}")


def _timestamps(predictor: Predictor, table: Table, timestamp: str | None) -> Any:
    """Return the time of each pair, or of all; None for a model without effects of time."""
    from cfnade.cli.user_input import parse_times

    if not predictor.fitted.needs_times:
        if timestamp is not None:
            raise PredictionError(
                f"--timestamp {timestamp}: predictions of this model do not depend on time; omit "
                "it, or use a model that was trained with --use-timestamps"
            )
        return None
    if timestamp is not None:
        return parse_times([timestamp], lambda _: "--timestamp")[0]
    texts = table.optional_column("time")
    if texts is None:
        raise PredictionError(
            f"{table.file}: this model needs the time of each rating; give a column time, or one "
            "time for all with --timestamp"
        )
    return parse_times(texts, table.locate)


def _report_unknown(frame: pl.DataFrame) -> None:
    users = frame.filter(frame["n_user_ratings"] == 0)["user"].n_unique()
    items = frame.filter(frame["n_item_ratings"] == 0)["item"].n_unique()
    if users or items:
        print_status(
            f"unknown to the model: {count_of(users, 'user')}, {count_of(items, 'item')}; their "
            "predictions are means (--unknown nan gives NaN)"
        )
