"""Small tables and typed values: pairs, histories, new items, times; frames to write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt
import polars as pl

from cfnade.cli.process import gc_frozen
from cfnade.data.column_roles import COLUMN_NAMES, bare_name, find_name
from cfnade.data.raw_table import parse_or_raise, to_numbers
from cfnade.data.readers.text import decode
from cfnade.exceptions import DataError, PredictionError

if TYPE_CHECKING:
    from cfnade.inference.histories import UserHistory
    from cfnade.inference.predictor import Predictor

_ITEM_NAMES = (*COLUMN_NAMES["item"], "id", "title", "name")
_RATING_NAMES = (*COLUMN_NAMES["rating"], "yourrating")
_SEPARATORS = (",", ";", "\t", "|")


def load_predictor(model: Path) -> Predictor:
    """Load a saved model."""
    with gc_frozen():
        from cfnade.inference.predictor import Predictor

        return Predictor.load(model)


class Table:
    """The columns of a CSV or Parquet file as text, by their usual names."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._frame = _read(file)
        # polars appends a suffix to repeated names
        self._names = [name.split("_duplicated_")[0] for name in self._frame.columns]

    def __len__(self) -> int:
        return len(self._frame)

    def column(self, role: str, names: Sequence[str] | None = None) -> list[str]:
        """Return the texts of a required column."""
        texts = self.optional_column(role, names)
        if texts is None:
            examples = ", ".join((names or COLUMN_NAMES[role])[:3])
            raise PredictionError(
                f"{self.file}: has no column {role} ({examples} …); rename one of its columns: "
                f"{', '.join(self._names)}"
            )
        return texts

    def optional_column(self, role: str, names: Sequence[str] | None = None) -> list[str] | None:
        """Return the column with the first of the names that occurs; it must occur once."""
        place = find_name(names or COLUMN_NAMES[role], self._names)
        if place is None:
            return None
        name = bare_name(self._names[place])
        count = [bare_name(other) for other in self._names].count(name)
        if count > 1:
            raise PredictionError(f"{self.file}: {count} columns are named {name}; keep one")
        texts: list[Any] = self._frame.to_series(place).to_list()
        if None in texts:
            row = self.locate(texts.index(None))
            raise PredictionError(f"{row}: {self._names[place]} is missing; fill it in")
        return texts

    def ratings(self) -> list[float]:
        """Return the column of ratings."""
        texts = self.column("rating", _RATING_NAMES)
        numbers: list[float | None] = to_numbers(pl.Series(texts, dtype=pl.String)).to_list()
        if None in numbers:
            row = numbers.index(None)
            raise PredictionError(f"{self.locate(row)}: rating {texts[row]!r} is not a number")
        return cast("list[float]", numbers)

    def locate(self, row: int) -> str:
        """Return the place of a row: its line in a text, whose fields may have line breaks."""
        if self.file.suffix == ".parquet":
            return f"{self.file}, row {row}"
        breaks = "".join(self._frame.columns).count("\n")
        for column in self._frame.head(row):
            breaks += int(column.str.count_matches("\n", literal=True).sum())
        return f"{self.file}:{row + 2 + breaks}"


def _read(file: Path) -> pl.DataFrame:
    if not file.exists():
        raise PredictionError(f"{file}: there is no such file")
    if file.is_dir():
        raise PredictionError(f"{file}: is a folder; give a CSV or Parquet file")
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
        raise _with_advice(error, "give CSV with a header, in UTF-8, or Parquet") from error


def _with_advice(error: DataError, advice: str) -> PredictionError:
    """Return the error with other advice: its own is about files of ratings."""
    return PredictionError(f"{str(error).partition(';')[0]}; {advice}")


def parse_times(texts: list[str], locate: Callable[[int], str]) -> npt.NDArray[np.int64]:
    """Return the seconds since 1970 of numbers or ISO dates. Shape (n,)."""
    try:
        columns = {"time": pl.Series(texts, dtype=pl.String)}
        parsed, _ = parse_or_raise(columns, lambda row, _: locate(row), is_text=True)
        return parsed["time"].to_numpy()
    except DataError as error:
        raise _with_advice(error, "correct it") from error


def parse_item(text: str, predictor: Predictor) -> Any:
    """Return the id of an item that is given by id or title."""
    return predictor.items.raw(predictor.catalog.parse(text))


# -- users and histories --------------------------------------------------------------------------


def parse_user(
    predictor: Predictor, users: list[str], file: Path | None, typed: list[str]
) -> tuple[list[Any] | None, UserHistory | None]:
    """Return known users or the history of a new user; the other one is None."""
    history = parse_history(predictor, file, typed)
    if (history is None) == (not users):
        ratings = "ITEM" if predictor.fitted.context.implicit else "ITEM=RATING"
        raise PredictionError(f"give one user: --user ID, --history FILE, or {ratings}")
    return [predictor.users.parse(text) for text in users] or None, history


def parse_history(predictor: Predictor, file: Path | None, typed: list[str]) -> UserHistory | None:
    """Return the ratings of a new user from a file and those typed as ITEM=RATING."""
    from cfnade.inference.histories import HistoryError

    if file is None and not typed:
        return None
    table = None if file is None else Table(file)
    texts = [] if table is None else table.column("item", _ITEM_NAMES)
    items = [parse_item(text, predictor) for text in texts]
    if predictor.fitted.context.implicit:  # a column of ratings is ignored
        items += [_parse_interaction(text, predictor) for text in typed]
        return predictor.parse_history([*dict.fromkeys(items)])
    ratings = [] if table is None else table.ratings()
    for entry in typed:
        text, _, rating = entry.rpartition("=")
        number = to_numbers(pl.Series([rating if text else ""], dtype=pl.String))[0]
        if number is None:
            raise PredictionError(
                f'{entry!r}: write an item and its rating, such as "Alien (1979)=5", or give a '
                "user of the training data with --user"
            )
        items.append(parse_item(text, predictor))
        ratings.append(number)
    try:
        return predictor.parse_history(list(zip(items, ratings, strict=True)))
    except HistoryError as error:
        n_rows = len(texts)
        if table is None or error.index >= n_rows:
            place = repr(typed[error.index - n_rows])
        else:
            place = table.locate(error.index)
        raise PredictionError(f"{place}: {error}") from error


def _parse_interaction(typed: str, predictor: Predictor) -> Any:
    try:
        return parse_item(typed, predictor)
    except PredictionError:
        name, rating, _ = typed.rpartition("=")
        if rating == "":
            raise
    raise PredictionError(f"{typed!r}: this model has no ratings; give {name!r} alone")


def parse_new_items(predictor: Predictor, file: Path | None) -> dict[Any, list[Any]] | None:
    """Return the first ratings of new items from a file: pairs of user and rating by item."""
    if file is None:
        return None
    table, ratings_by_item = Table(file), dict[Any, list[Any]]()
    columns = table.column("user"), table.column("item"), table.ratings()
    for user, item, rating in zip(*columns, strict=True):
        ratings = ratings_by_item.setdefault(predictor.items.parse(item), [])
        ratings.append((predictor.users.parse(user), rating))
    if not ratings_by_item:
        raise PredictionError(f"{file}: has no ratings of new items; give at least one")
    return ratings_by_item


# -- output ---------------------------------------------------------------------------------------


def require_writable(out: Path | None, *suffixes: str) -> None:
    """Refuse an output file that cannot be written, before the work is done."""
    if out is None:
        return
    suffixes = suffixes or (".parquet", ".csv")
    if out.suffix not in suffixes:
        names = " or ".join(suffixes)
        raise PredictionError(f"{out}: the name of the file to write must end in {names}")
    if out.is_dir():
        raise PredictionError(f"{out}: is a folder; name a file to write")
    if not out.parent.is_dir():
        raise PredictionError(f"{out}: there is no folder {out.parent}; create it first")


def write_frame(frame: pl.DataFrame, out: Path) -> None:
    """Write a frame as Parquet or CSV, by its suffix, atomically."""
    from cfnade.utils.files import atomic_write

    with atomic_write(out) as file:
        if out.suffix == ".parquet":
            frame.write_parquet(file)
        else:
            frame.write_csv(file)
