"""Who is meant: a known user, a file of ratings, or titles typed with stars."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cfnade.errors import PredictionError
from cfnade.predictor import Predictor

_ITEMS = ("item", "itemid", "movieid", "movie", "id", "title", "name")
_RATINGS = ("rating", "stars", "score", "yourrating", "value")


def item_id(text: str, predictor: Predictor) -> Any:
    """An item by its id or its title."""
    return predictor.items.raw(predictor.catalogue.typed(text))


def history_of(
    predictor: Predictor, file: Path | None, typed: list[str]
) -> dict[Any, float] | None:
    """Ratings of a new person: those of a file and those typed as TITLE=STARS."""
    history: dict[Any, float] = {}
    if file is not None:
        for line, text, stars in _rows(file):
            _add(history, item_id(text, predictor), stars, f"{file}:{line}")
    for entry in typed:
        text, _, given = entry.rpartition("=")
        try:
            rating = float(given if text else "")
        except ValueError:
            raise PredictionError(
                f'{entry!r}: write a title or id and its rating, such as "Alien (1979)=5"'
            ) from None
        _add(history, item_id(text, predictor), rating, repr(entry))
    return history if file is not None or typed else None


def _add(history: dict[Any, float], item: Any, stars: float, where: str) -> None:
    if item in history:
        raise PredictionError(
            f"{where}: item {item!r} is rated twice, {history[item]:g} and {stars:g}; give one "
            "rating of each item"
        )
    history[item] = stars


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
    for name in names:
        found = [column for column in frame.columns if _plain(column) == name]
        if len(found) > 1:
            raise PredictionError(f"{file}: {len(found)} columns are named {name}; keep one")
        if found:
            values: list[Any] = frame[found[0]].to_list()
            if None in values:
                line = values.index(None) + 2
                raise PredictionError(f"{file}:{line}: {found[0]} is missing; fill it in")
            return values
    wanted, there = " or ".join(names[:3]), ", ".join(frame.columns)
    raise PredictionError(f"{file}: has no column {wanted}; its columns are {there}")


def _plain(column: str) -> str:
    name = column.split("_duplicated_")[0]  # what polars adds to a name that it has met before
    return "".join(c for c in name.lower() if c.isalnum())


def _rows(file: Path) -> list[tuple[int, str, float]]:
    frame = table_of(file)
    items, stars = column_of(frame, _ITEMS, file), column_of(frame, _RATINGS, file)
    found = []
    for line, (text, rating) in enumerate(zip(items, stars, strict=True), 2):
        try:
            found.append((line, text, float(rating)))
        except ValueError:
            raise PredictionError(f"{file}:{line}: rating {rating!r} is not a number") from None
    return found
