"""Who is meant: a known user, a file of ratings, or titles typed with stars."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cfnade.errors import PredictionError
from cfnade.predictor import Predictor
from cfnade.predictor.ids import Ids
from cfnade.predictor.titles import item_named

_ITEMS = ("item", "itemid", "movieid", "movie", "id", "title", "name")
_RATINGS = ("rating", "stars", "score", "yourrating", "value")


def raw_id(text: str, ids: Ids) -> Any:
    """An id as typed, in the type that the model's ids have."""
    if ids.are_texts:
        return text
    try:
        return int(text)
    except ValueError:
        raise PredictionError(
            f"{ids.side} {text!r}: the {ids.side} ids of this model are whole numbers"
        ) from None


def item_id(text: str, predictor: Predictor) -> Any:
    """An item by its id or its title."""
    if predictor.items.are_texts or text.isdecimal():
        raw = raw_id(text, predictor.items)
        if predictor.items.index(raw) >= 0:
            return raw
    at = item_named(text, predictor.bundle.context)
    return predictor.items.table[at : at + 1].tolist()[0]


def history_of(
    predictor: Predictor, file: Path | None, typed: list[str]
) -> dict[Any, float] | None:
    """Ratings of a new person: those of a file and those typed as TITLE=STARS."""
    history: dict[Any, float] = {}
    if file is not None:
        for text, stars in _rows(file):
            history[item_id(text, predictor)] = stars
    for entry in typed:
        text, _, given = entry.rpartition("=")
        try:
            rating = float(given if text else "")
        except ValueError:
            raise PredictionError(
                f'{entry!r}: write a title or id and its rating, such as "Alien (1979)=5"'
            ) from None
        history[item_id(text, predictor)] = rating
    return history if file is not None or typed else None


def table_of(file: Path) -> Any:
    """A CSV or Parquet file as a frame of texts."""
    import polars as pl

    if not file.exists():
        raise PredictionError(f"{file}: there is no such file")
    try:
        if file.suffix == ".parquet":
            return pl.read_parquet(file).select(pl.all().cast(pl.String))
        separator = "\t" if file.suffix in (".tsv", ".tab") else ","
        return pl.read_csv(file, separator=separator, infer_schema=False)
    except (pl.exceptions.PolarsError, OSError, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0]
        raise PredictionError(f"{file}: cannot be read as CSV or Parquet: {reason}") from error


def column_of(frame: Any, names: tuple[str, ...], file: Path) -> list[str]:
    """The first column with one of these names, ignoring case and punctuation."""
    plain = {"".join(c for c in name.lower() if c.isalnum()): name for name in frame.columns}
    for name in names:
        if name in plain:
            values: list[Any] = frame[plain[name]].to_list()
            if None in values:
                line = values.index(None) + 2
                raise PredictionError(f"{file}:{line}: {plain[name]} is missing; fill it in")
            return values
    wanted, there = " or ".join(names[:3]), ", ".join(frame.columns)
    raise PredictionError(f"{file}: has no column {wanted}; its columns are {there}")


def _rows(file: Path) -> list[tuple[str, float]]:
    frame = table_of(file)
    items, stars = column_of(frame, _ITEMS, file), column_of(frame, _RATINGS, file)
    found = []
    for line, (text, rating) in enumerate(zip(items, stars, strict=True), 2):
        try:
            found.append((text, float(rating)))
        except ValueError:
            raise PredictionError(f"{file}:{line}: rating {rating!r} is not a number") from None
    return found
