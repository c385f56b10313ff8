"""Every form in which ratings can be given, from CSV to a database, keeps the same promises."""

from __future__ import annotations

import gzip
import io
import json
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from tests.support.raw_tables import to_bytes, zip_bytes
from tests.support.site import site
from tests.support.spreadsheet import workbook

from cfnade import DataError, load

__all__ = ["site"]

TABLE = pl.DataFrame(
    {
        "user": [2, 1, 2, 7],
        "item": ["b", "a", "c", "b"],
        "rating": [3.5, 4.0, 1.0, 5.0],
        "time": [978300760, 978300761, 978300762, 978300763],
        "title": ["Brazil", "Alien", "Cube", "Brazil"],
    }
)
RATINGS = TABLE.drop("title")
TEXT_LINE, TABLE_ROW = r":3: ", r"row 1, column 'rating': "
"""Where a message finds the rating of the second row."""


def delimited(frame: pl.DataFrame, separator: str = ",", decimal: str = ".") -> str:
    """Return a frame as text with a header."""

    def cell(value: Any) -> str:
        return f"{value:g}".replace(".", decimal) if isinstance(value, float) else str(value)

    lines = [frame.columns, *(map(cell, row) for row in frame.iter_rows())]
    return "".join(separator.join(line) + "\n" for line in lines)


def write_file(name: str, content: bytes, request: pytest.FixtureRequest) -> Path:
    path: Path = request.getfixturevalue("tmp_path") / name
    path.write_bytes(content)
    return path


def file_writer(name: str, content: Callable[[pl.DataFrame], bytes]) -> Callable[..., Path]:
    return lambda frame, request: write_file(name, content(frame), request)


def text_writer(name: str, *dialect: str, encoding: str = "utf-8") -> Callable[..., Path]:
    return file_writer(name, lambda frame: delimited(frame, *dialect).encode(encoding))


def to_sheet(frame: pl.DataFrame) -> bytes:
    return workbook([frame.columns, *map(list, frame.iter_rows())])


def to_structured_array(frame: pl.DataFrame, _: pytest.FixtureRequest) -> Any:
    columns = [np.array(frame[name].to_list()) for name in frame.columns]
    fields = [(name, column.dtype) for name, column in zip(frame.columns, columns, strict=True)]
    return np.array(frame.rows(), fields)


def to_database(frame: pl.DataFrame, request: pytest.FixtureRequest) -> str:
    path = request.getfixturevalue("tmp_path") / "shop.db"
    names = ", ".join(frame.columns)
    with sqlite3.connect(path) as connection:
        connection.execute(f"create table reviews ({names})")
        marks = ", ".join("?" * frame.width)
        connection.executemany(f"insert into reviews values ({marks})", frame.rows())
    connection.close()
    return f"sqlite:///{path}"


def to_server(frame: pl.DataFrame, request: pytest.FixtureRequest) -> str:
    server = request.getfixturevalue("site")
    server.files["/own.csv"] = delimited(frame).encode()
    return f"{server.home}/own.csv"


def to_pipe(frame: pl.DataFrame, request: pytest.FixtureRequest) -> str:
    stream = io.BytesIO(gzip.compress(delimited(frame).encode()))
    request.getfixturevalue("monkeypatch").setattr("sys.stdin", io.TextIOWrapper(stream))
    return "-"


def json_lines(frame: pl.DataFrame) -> bytes:
    return "\n".join(json.dumps(row) for row in frame.to_dicts()).encode()


@dataclass(frozen=True)
class Form:
    """A form of ratings: how to write a frame in it, and where its messages find a bad cell."""

    write: Callable[[pl.DataFrame, pytest.FixtureRequest], Any]
    place: str = TABLE_ROW
    options: Mapping[str, Any] = field(default_factory=dict)

    def load(self, frame: pl.DataFrame, request: pytest.FixtureRequest, **options: Any) -> Any:
        return load(self.write(frame, request), **self.options, **options)


FORMS = {
    "csv": Form(text_writer("own.csv"), TEXT_LINE),
    "tabs": Form(text_writer("own.tsv", "\t"), TEXT_LINE),
    "decimal commas": Form(text_writer("own.csv", ";", ","), TEXT_LINE),
    "double colons": Form(text_writer("own.dat", "::"), TEXT_LINE),
    "utf-16": Form(text_writer("own.csv", encoding="utf-16"), TEXT_LINE),
    "gzip": Form(file_writer("own", lambda f: gzip.compress(delimited(f).encode())), TEXT_LINE),
    "zip": Form(
        file_writer("own.zip", lambda f: zip_bytes({"own.csv": delimited(f).encode()})),
        r"own\.zip/own\.csv:3: ",
    ),
    "spreadsheet": Form(file_writer("own.xlsx", to_sheet), r"row 3, column 'rating': "),
    "json lines": Form(file_writer("own.jsonl", json_lines)),
    "json": Form(file_writer("own.json", lambda f: json.dumps(f.to_dicts()).encode())),
    "parquet": Form(file_writer("own.parquet", lambda f: to_bytes(f.write_parquet))),
    "arrow file": Form(file_writer("own.arrow", lambda f: to_bytes(f.write_ipc))),
    "polars": Form(lambda frame, _: frame),
    "lazy polars": Form(lambda frame, _: frame.lazy()),
    "pandas": Form(lambda frame, _: frame.to_pandas()),
    "pyarrow": Form(lambda frame, _: frame.to_arrow()),
    "dicts": Form(lambda frame, _: frame.to_dicts()),
    "columns": Form(lambda frame, _: frame.to_dict(as_series=False)),
    "structured array": Form(to_structured_array),
    "sqlite": Form(to_database, options={"query": "select * from reviews"}),
    "http": Form(to_server, TEXT_LINE),
    "standard input": Form(to_pipe, TEXT_LINE),
}
forms = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


@forms
def test_ratings_are_those_of_the_frame(form: Form, request: pytest.FixtureRequest) -> None:
    ratings = form.load(RATINGS, request)
    assert ratings == load(RATINGS)
    users, items = ratings.user_ids[ratings.users], ratings.item_ids[ratings.items]
    rows = zip(users, items, ratings.values, ratings.times, strict=True)
    assert sorted(rows) == sorted(RATINGS.rows())


@forms
def test_pairs_are_interactions(form: Form, request: pytest.FixtureRequest) -> None:
    interactions = form.load(RATINGS.select("user", "item"), request)
    assert interactions.implicit
    assert interactions.weights is None
    assert interactions == load(RATINGS.select("user", "item"))


@forms
def test_counts_are_weights(form: Form, request: pytest.FixtureRequest) -> None:
    frame = RATINGS.select("user", "item", plays=pl.Series([3, 1, 8, 2]))
    interactions = form.load(frame, request)
    assert interactions.implicit
    assert sorted(interactions.weights) == [1, 2, 3, 8]
    assert interactions == load(frame)


@forms
def test_columns_can_be_named(form: Form, request: pytest.FixtureRequest) -> None:
    names = {"user": "b", "item": "d", "rating": "a", "time": "c"}
    frame = RATINGS.rename(names).select("a", "b", "c", "d")
    assert form.load(frame, request, **names) == load(RATINGS)


@forms
def test_times_can_be_ignored(form: Form, request: pytest.FixtureRequest) -> None:
    ratings = form.load(RATINGS, request, time=False)
    assert ratings.times is None
    assert ratings == load(RATINGS.drop("time"))


@forms
def test_a_bad_cell_is_located(form: Form, request: pytest.FixtureRequest) -> None:
    texts = pl.Series("rating", ["3.5", "bad", "1", "5"])
    with pytest.raises(DataError, match=form.place + "rating 'bad' is not a number"):
        form.load(RATINGS.with_columns(texts), request)


@forms
def test_titles_are_read(form: Form, request: pytest.FixtureRequest) -> None:
    ratings = form.load(TABLE, request)
    titles = dict(zip(ratings.item_ids, ratings.titles, strict=True))
    assert titles == {"a": "Alien", "b": "Brazil", "c": "Cube"}


def test_a_data_set_is_returned_and_takes_no_options() -> None:
    ratings = load(RATINGS)
    assert load(ratings) is ratings
    with pytest.raises(DataError, match="these are Ratings already"):
        load(ratings, user=1)
    with pytest.raises(DataError, match="these are Ratings already"):
        load(ratings, bins=2)
