"""Small tables at a shell: pairs to predict, the ratings of a new person, answers to write."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from cfnade.data.column_roles import COLUMN_NAMES
from cfnade.data.raw_table import parse_or_raise, to_numbers
from cfnade.data.readers.text import decode
from cfnade.exceptions import DataError, PredictionError
from cfnade.inference.predictor import Predictor

_ITEMS = (*COLUMN_NAMES["item"], "id", "title", "name")
_RATINGS = (*COLUMN_NAMES["rating"], "yourrating")
_SEPARATORS = (",", ";", "\t", "|")


class Sheet:
    """A CSV or Parquet file as columns of texts, found by their usual names."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._frame = _read(file)

    def column(self, role: str, names: tuple[str, ...] | None = None) -> list[str]:
        """The texts of a column that must be there."""
        texts = self.column_if_any(role, names)
        if texts is None:
            usual, columns = (
                ", ".join((names or COLUMN_NAMES[role])[:3]),
                ", ".join(self._frame.columns),
            )
            raise PredictionError(
                f"{self.file}: has no column {role} ({usual} …); its columns are {columns}"
            )
        return texts

    def column_if_any(self, role: str, names: tuple[str, ...] | None = None) -> list[str] | None:
        """The first column with a usual name, ignoring case and punctuation."""
        for name in names or COLUMN_NAMES[role]:
            columns = [column for column in self._frame.columns if _plain(column) == name]
            if len(columns) > 1:
                raise PredictionError(
                    f"{self.file}: {len(columns)} columns are named {name}; keep one"
                )
            if columns:
                return self._whole(columns[0])
        return None

    def where(self, row: int) -> str:
        """Where a row stands: its line in a text, whose fields may hold line breaks."""
        if self.file.suffix == ".parquet":
            return f"{self.file}, row {row}"
        breaks = "".join(self._frame.columns).count("\n")
        for column in self._frame.head(row):
            breaks += int(column.str.count_matches("\n", literal=True).sum())
        return f"{self.file}:{row + 2 + breaks}"

    def _whole(self, column: str) -> list[str]:
        texts: list[Any] = self._frame[column].to_list()
        if None in texts:
            raise PredictionError(
                f"{self.where(texts.index(None))}: {column} is missing; fill it in"
            )
        return texts


def _read(file: Path) -> pl.DataFrame:
    if not file.exists():
        raise PredictionError(f"{file}: there is no such file")
    try:
        if file.suffix == ".parquet":
            return pl.read_parquet(file).select(pl.all().cast(pl.String))
        data, _ = decode(file.read_bytes(), str(file))
        separator = max(_SEPARATORS, key=data.partition(b"\n")[0].decode().count)
        return pl.read_csv(data, separator=separator, infer_schema=False)
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise PredictionError(f"{file}: cannot be read as CSV or Parquet: {reason}") from error
    except DataError as error:
        raise _advising(error, "give CSV with a header, in UTF-8, or Parquet") from error


def _advising(error: DataError, cure: str) -> PredictionError:
    """The same fault; what was advised is for files of ratings."""
    return PredictionError(f"{str(error).partition(';')[0]}; {cure}")


def _plain(column: str) -> str:
    name = column.split("_duplicated_")[0]  # what polars adds to a name that it has met before
    return "".join(c for c in name.lower() if c.isalnum())


def seconds_of(texts: list[str], where: Callable[[int], str]) -> npt.NDArray[np.int64]:
    """Seconds since 1970 of numbers or ISO dates. Returns (n,)."""
    try:
        columns = {"time": pl.Series(texts, dtype=pl.String)}
        parsed = parse_or_raise(columns, lambda row, _: where(row), is_text=True)
        return parsed.frame["time"].to_numpy()
    except DataError as error:
        raise _advising(error, "correct it") from error


def history_of(
    predictor: Predictor, file: Path | None, typed: list[str]
) -> dict[Any, float] | None:
    """Ratings of a new person: those of a file and those typed as TITLE=STARS."""
    if predictor.fitted.context.implicit:
        return _picked(predictor, file, typed)
    history: dict[Any, float] = {}
    if file is not None:
        sheet = Sheet(file)
        lines = zip(sheet.column("item", _ITEMS), sheet.column("rating", _RATINGS), strict=True)
        for row, (text, stars) in enumerate(lines):
            where = sheet.where(row)
            _add(history, item_id(text, predictor), _stars(stars, where), where)
    for entry in typed:
        text, _, stars = entry.rpartition("=")
        fault = 'write a title or id and its rating, such as "Alien (1979)=5"'
        number = _stars(stars if text else "", repr(entry), fault)
        _add(history, item_id(text, predictor), number, repr(entry))
    return history if file is not None or typed else None


def _picked(predictor: Predictor, file: Path | None, typed: list[str]) -> dict[Any, float] | None:
    """What a new person picked, where there are no stars; a rating beside it says nothing."""
    texts = [] if file is None else Sheet(file).column("item", _ITEMS)
    ids = [item_id(text, predictor) for text in texts] + [_pick(text, predictor) for text in typed]
    return dict.fromkeys(ids, 1.0) if file is not None or typed else None


def _pick(typed: str, predictor: Predictor) -> Any:
    """As `item_id`; stars are refused as what they are, and not as part of a name."""
    try:
        return item_id(typed, predictor)
    except PredictionError:
        name, stars, _ = typed.rpartition("=")
        if stars == "":
            raise
    raise PredictionError(f"{typed!r}: this model knows no ratings; say {name!r} alone")


def new_items_of(predictor: Predictor, file: Path | None) -> dict[Any, list[Any]] | None:
    """What users said of new items, as a file has it: pairs by item."""
    if file is None:
        return None
    sheet, ratings = Sheet(file), dict[Any, list[Any]]()
    columns = sheet.column("user"), sheet.column("item"), sheet.column("rating", _RATINGS)
    for row, (user, item, stars) in enumerate(zip(*columns, strict=True)):
        rated = ratings.setdefault(predictor.items.typed(item), [])
        rated.append((predictor.users.typed(user), _stars(stars, sheet.where(row))))
    if not ratings:
        raise PredictionError(f"{file}: has no ratings of new items; give at least one")
    return ratings


def _stars(text: str, where: str, fault: str = "") -> float:
    """`fault` is said of what is no number."""
    stars: float | None = to_numbers(pl.Series([text], dtype=pl.String))[0]
    if stars is None:
        raise PredictionError(f"{where}: {fault or f'rating {text!r} is not a number'}")
    return stars


def item_id(text: str, predictor: Predictor) -> Any:
    """An item by its id or its title."""
    return predictor.items.raw(predictor.catalog.typed(text))


def _add(history: dict[Any, float], item: Any, stars: float, where: str) -> None:
    """An item with its stars."""
    if item in history:
        raise PredictionError(
            f"{where}: item {item!r} is rated twice, {history[item]:g} and {stars:g}; give one "
            "rating of each item"
        )
    history[item] = stars


def check_out(out: Path | None) -> None:
    """Refuse a file that could not be written, before the work is done."""
    if out is None:
        return
    if out.suffix not in (".parquet", ".csv"):
        raise PredictionError(f"{out}: the name of the file to write must end in .parquet or .csv")
    if out.is_dir():
        raise PredictionError(f"{out}: is a folder; name a file to write")
    if not out.parent.is_dir():
        raise PredictionError(f"{out}: there is no folder {out.parent}; make it first")


def write_frame(frame: pl.DataFrame, out: Path) -> None:
    """Write a frame as Parquet or CSV, by its name, atomically."""
    from cfnade.utils.files import atomic_write

    with atomic_write(out) as file:
        if out.suffix == ".parquet":
            frame.write_parquet(file)
        else:
            frame.write_csv(file)
