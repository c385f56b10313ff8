"""Tables as people have them: asked with pandas, answered with pandas; likewise polars, pyarrow.

Inside everything is NumPy and polars. A question that holds a series or a frame of some library is
answered in it, and a pandas answer has the index of what was asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import narwhals.stable.v1 as nw
import numpy.typing as npt
import polars as pl

from cfnade.data.dataset import Dataset
from cfnade.data.load import load
from cfnade.data.scale import INTERACTIONS, Scale
from cfnade.exceptions import PredictionError

Kind = Literal["pandas", "polars", "pyarrow"]
KINDS: tuple[Kind, ...] = get_args(Kind)
_PAIR, _TRIPLE = ("item", "rating"), ("user", "item", "rating")


def kind_of(*given: Any) -> Kind | None:
    """The library of the first of these that is a table or a column of one."""
    for one in given:
        roots = {parent.__module__.partition(".")[0] for parent in type(one).__mro__}
        for kind in KINDS:
            if kind in roots:
                return kind
    return None


def column_like(values: npt.NDArray[Any], name: str, *asked: Any) -> Any:
    """Values (n,) as a column of the library that the question came in; an array if of none."""
    kind = kind_of(*asked)
    if kind is None:
        return values
    return _indexed(nw.new_series(name, values, backend=kind).to_native(), kind, asked)


def frame_as(frame: pl.DataFrame, kind: Kind | None, *asked: Any) -> Any:
    """A frame in the library that is wanted, polars if none is.

    If there is a line for each of those asked about, pandas has their index.
    """
    if kind is None or kind == "polars":
        return frame
    columns = {name: _plain(frame[name]) for name in frame.columns}
    return _indexed(nw.from_dict(columns, backend=kind).to_native(), kind, asked)


def _plain(column: pl.Series) -> Any:
    return column.to_numpy() if column.dtype.is_numeric() else column.to_list()


def _indexed(made: Any, kind: Kind, asked: Sequence[Any]) -> Any:
    """A pandas answer with the index of the first column that was asked with."""
    columns = [one for one in asked if kind == kind_of(one) == "pandas"]
    if columns:
        made.index = columns[0].index
    return made


def read(data: Any, scale: Scale | None = None) -> Dataset:
    """Ratings as they are; anything else is loaded, on the scale if one is known already."""
    if isinstance(data, Dataset):
        return data
    return load(data, implicit=True) if scale == INTERACTIONS else load(data, scale=scale)


# -- histories ------------------------------------------------------------------------------------


def history_of(given: Any, *, rated: bool) -> Any:
    """A history that came as a table of items and ratings, as pairs; any other as it is.

    A pandas series has ratings by item; where there are no ratings, any column holds the items.
    """
    if kind_of(given) is None:
        return given
    table = nw.from_native(given, eager_only=True, allow_series=True)
    if isinstance(table, nw.Series):
        if not rated:
            return table.to_list()
        if hasattr(given, "items"):
            return [*zip(given.index.tolist(), given.tolist(), strict=True)]
        raise PredictionError(
            "a history of ratings came as one column; give a table of items and ratings"
        )
    return [*_columns(table, _PAIR if rated else _PAIR[:1], "a history")]


def histories_of(given: Any, *, rated: bool) -> Any:
    """Many people's: a table of users, items and ratings, or a mapping of histories."""
    if kind_of(given) is not None:
        table = nw.from_native(given, eager_only=True)
        people: dict[Any, list[Any]] = {}
        for user, *rest in _columns(table, _TRIPLE if rated else _TRIPLE[:2], "histories"):
            people.setdefault(user, []).append(tuple(rest) if rated else rest[0])
        return people
    if isinstance(given, Mapping):
        return {name: history_of(one, rated=rated) for name, one in given.items()}
    return given


def _columns(table: nw.DataFrame[Any], names: Sequence[str], what: str) -> Any:
    """Rows of these columns, by name, or by position if there are no others."""
    if not set(names) <= set(table.columns):
        if len(table.columns) != len(names):
            raise PredictionError(
                f"{what} came as a table with columns {', '.join(map(repr, table.columns))}; it "
                f"needs {', '.join(names)}"
            )
        names = table.columns
    columns = [table[name].to_list() for name in names]
    return columns[0] if len(columns) == 1 else zip(*columns, strict=True)
