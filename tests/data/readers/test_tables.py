"""Typed tables: frames of three libraries, Parquet, Arrow, JSON and spreadsheets."""

from __future__ import annotations

import datetime as dt
import gzip
import io
import json
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.raw_tables import raw_table, read, rows, to_bytes
from tests.support.spreadsheet import workbook

from cfnade.data.dataset import Dataset
from cfnade.data.load import LoadOptions
from cfnade.data.raw_table import RawTable
from cfnade.data.readers import table_kind
from cfnade.data.readers.tables import read_frame, read_table, write_parquet
from cfnade.data.scale import Scale
from cfnade.data.validate import build
from cfnade.exceptions import DataError

pd = pytest.importorskip("pandas")

PLAIN: dict[str, list[Any]] = {
    "user_id": [2, 1, 2],
    "item_id": ["b", "a", "c"],
    "rating": [3.5, 4.0, 1.0],
    "timestamp": [978300760, 978300761, 978300762],
}
FRAME = pl.DataFrame(PLAIN)
EXPECTED = ([2, 1, 2], ["b", "a", "c"], [3.5, 4.0, 1.0], [978300760, 978300761, 978300762])
MAKERS: dict[str, Callable[[dict[str, list[Any]]], Any]] = {
    "pandas": pd.DataFrame,
    "polars": lambda data: pl.DataFrame(data, strict=False),
    "pyarrow": pa.table,
}


def lists(table: RawTable) -> tuple[list[Any], ...]:
    return tuple(table.frame[role].to_list() for role in ("user", "item", "rating", "time"))


def frame_table(frame: Any, **options: Any) -> RawTable:
    return read_frame(frame, LoadOptions(**options))


def file_table(data: bytes) -> RawTable:
    return read_table(data, "r", table_kind(data[:16]) or "", LoadOptions())


def _utc(second: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(second, dt.UTC)


MOMENTS = [_utc(second) for second in PLAIN["timestamp"]]
NAIVE = [moment.replace(tzinfo=None) for moment in MOMENTS]


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame(PLAIN).astype({"item_id": "category", "user_id": "Int32", "rating": "f4"}),
        pd.DataFrame(PLAIN).astype({"item_id": object, "user_id": object}),
        pd.DataFrame(PLAIN).astype({"user_id": float}),
        pd.DataFrame({**PLAIN, "timestamp": pd.to_datetime(NAIVE)}),
        pd.DataFrame({**PLAIN, "timestamp": pd.to_datetime(MOMENTS).tz_convert("Asia/Tokyo")}),
        pd.DataFrame({**PLAIN, "timestamp": [moment.isoformat() for moment in MOMENTS]}),
        pd.DataFrame({**PLAIN, "rating": [Decimal("3.5"), Decimal(4), Decimal(1)]}),
        pd.DataFrame(PLAIN).iloc[::-1].iloc[::-1].set_index(pd.Index([7, 7, 9])),
        pl.DataFrame(PLAIN).with_columns(pl.col("item_id").cast(pl.Categorical)),
        pl.DataFrame(PLAIN).with_columns(pl.col("item_id").cast(pl.Enum(["c", "b", "a"]))),
        pl.DataFrame(PLAIN).with_columns(pl.col("rating").cast(pl.Decimal(10, 2))),
        pl.DataFrame(PLAIN).with_columns(pl.from_epoch("timestamp").cast(pl.Datetime("ns"))),
        pl.DataFrame(PLAIN).with_columns(pl.col("timestamp") * 1000),
        pl.DataFrame(PLAIN).with_columns(pl.col("user_id").cast(pl.UInt64)),
        pa.table(PLAIN).set_column(1, "item_id", pa.array(["b", "a", "c"], pa.large_string())),
        pa.table(PLAIN).set_column(1, "item_id", pa.array(["b", "a", "c"]).dictionary_encode()),
        pa.table(PLAIN).set_column(3, "timestamp", pa.array(NAIVE, pa.timestamp("ms"))),
        pa.table(PLAIN).set_column(2, "rating", pa.array([Decimal("3.5"), Decimal(4), Decimal(1)])),
        pl.DataFrame(list(PLAIN.values()), schema=["0", "1", "2", "3"]),
        pd.DataFrame(dict(enumerate(PLAIN.values()))),
    ],
)
def test_types_of_columns_do_not_matter(frame: Any) -> None:
    assert lists(frame_table(frame)) == EXPECTED


def test_single_precision_is_rounded_to_decimals() -> None:
    values = [1.1, 3.7, 4.9]
    frame = pl.DataFrame({**PLAIN, "rating": pl.Series(values, dtype=pl.Float32)})
    assert frame_table(frame).frame["rating"].to_list() == values


@pytest.mark.parametrize("library", MAKERS)
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"rating": [1.0, None, 2.0]}, "row 1, column 'rating': the rating is missing; remove"),
        ({"user_id": ["a", None, "b"]}, "row 1, column 'user_id': the user id is missing"),
        ({"item_id": [1, 2, None]}, "row 2, column 'item_id': the item id is missing"),
        ({"timestamp": [1, None, 2]}, "row 1, column 'timestamp': the time is missing"),
        ({"rating": [1.0, 2.0, float("inf")]}, "row 2, column 'rating': rating inf is not a fin"),
        ({"user_id": [1.0, 2.5, 3.0]}, "row 1, column 'user_id': user id 2.5 is not a whole"),
        ({"user_id": [True, False, True]}, "column 'user_id': user id 'True' is of type Boolean"),
        ({"rating": [[1], [2], [3]]}, "column 'rating': rating .* is of type List"),
        ({"rating": ["5", "x", "4"]}, "row 1, column 'rating': rating 'x' is not a number"),
        ({"item_id": [[1], [2], [3]]}, "column 'item_id': item id .* is of type List"),
        ({"item_id": ["a", " ", "b"]}, "row 1, column 'item_id': the item id is missing"),
        ({"user_id": [], "item_id": [], "rating": [], "timestamp": []}, "has columns but no rows"),
    ],
)
def test_invalid_cells_are_located(
    library: str, changed: dict[str, list[Any]], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        frame_table(MAKERS[library]({**PLAIN, **changed}))


@pytest.mark.parametrize(
    ("frame", "options", "message"),
    [
        (pl.DataFrame(PLAIN).lazy().select("no"), {}, "the LazyFrame cannot be collected"),
        ([1, 2, 3], {}, "row 0 is '1'; each must hold"),
        (
            pl.DataFrame(PLAIN),
            {"user": "nobody"},
            'user="nobody" is no column; there are 4',
        ),
        (
            pl.DataFrame({"a": [1], "b": [2]}),
            {},
            "which column is the user, which .* 'a', 'b'; name them",
        ),
        (
            pl.DataFrame(PLAIN),
            {"separator": ","},
            "takes no separator=",
        ),
        (
            pd.DataFrame({**PLAIN, "user_id": ["a", 1, 2.5]}),
            {},
            "column 'user_id': it holds values of",
        ),
        (
            pl.DataFrame({**PLAIN, "user_id": pl.Series([1, 2, 2**63], dtype=pl.UInt64)}),
            {},
            "row 2, column 'user_id': user id 9223372036854775808 does not fit into 64 bits",
        ),
    ],
)
def test_unusable_frames_are_refused_with_a_reason(
    frame: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        read_frame(frame, LoadOptions(**options))


def test_columns_of_lists_are_ignored() -> None:
    frame = pl.DataFrame({"extra": [[1], [2], [3]], **PLAIN})
    for write in (frame.write_parquet, frame.write_ipc):
        assert lists(file_table(to_bytes(write))) == EXPECTED


@pytest.mark.parametrize("write", [FRAME.write_parquet, FRAME.write_ipc])
def test_truncated_files_are_refused(write: Callable[[io.BytesIO], object]) -> None:
    data = to_bytes(write)
    for end in (8, 60, len(data) // 2, len(data) - 1):
        with pytest.raises(DataError, match=r"^r: cannot be read as a table .*write it again"):
            file_table(data[:end])


def _ratings(text_ids: bool = False, **changed: Any) -> Dataset:
    raw: list[Any] = ["007", "1", "é"] if text_ids else [7, -1, 2**40]
    columns = raw_table(
        users=pl.Series([raw[i] for i in (2, 0, 1, 0)]),
        items=pl.Series([raw[i] for i in (0, 1, 2, 2)]),
        ratings=np.array([1.0, 4.5, 3.0, 2.0]),
        times=np.array([5, -3, 2**33, 200_000_000_000]),
        titles={raw[0]: "Seven, the", raw[2]: "Ünï"},
        genres={raw[1]: "Comedy|Drama"},
        source="a set",
    )
    scale = Scale((0.5, 1.0, 2.0, 3.0, 4.5, 7.0))
    return build(columns, LoadOptions(scale=changed.get("scale", scale), bins=changed.get("bins")))


@pytest.mark.parametrize(
    "ratings", [_ratings(), _ratings(text_ids=True), _ratings(scale=None, bins=3)]
)
def test_parquet_round_trip(ratings: Dataset, tmp_path: Path) -> None:
    path = tmp_path / "new" / "r.parquet"
    write_parquet(ratings, path)
    columns = read(path, LoadOptions())
    copy = build(columns, LoadOptions())
    assert copy == ratings
    assert copy.scale == ratings.scale
    assert copy.source == "a set"
    assert columns.description == "Parquet table"
    names = pq.read_schema(path).names
    assert names == ["user", "item", "rating", "timestamp", "title", "genres"]


def test_damaged_metadata_is_refused(tmp_path: Path) -> None:
    table = pa.table(PLAIN).replace_schema_metadata({"cfnade.scale": "[1, 2", "cfnade.edges": ""})
    pq.write_table(table, tmp_path / "r.parquet")
    with pytest.raises(DataError, match=r"r\.parquet: its cfnade\.\* metadata is damaged"):
        read(tmp_path / "r.parquet", LoadOptions())


# -- JSON and spreadsheets -------------------------------------------------------------------------

RECORDS = [dict(zip(PLAIN, row, strict=True)) for row in zip(*PLAIN.values(), strict=True)]
RECORDS[1]["rating"], RECORDS[2]["note"] = 4, "extra"


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(map(json.dumps, RECORDS)) + "\n",
        " \n" + json.dumps(RECORDS, indent=2),
        "\ufeff" + json.dumps(RECORDS),
    ],
)
def test_json_may_have_blanks_a_byte_order_mark_and_extra_keys(text: str, tmp_path: Path) -> None:
    (tmp_path / "own.json").write_bytes(gzip.compress(text.encode()))
    table = read(tmp_path / "own.json", LoadOptions())
    assert lists(table) == EXPECTED
    assert table.description.startswith("JSON")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"user": 1, "item": 2, "rating": "x"}\n', r"own\.json, row 0, column 'rating': .*'x' is"),
        ('[{"user": 1, "item": 2, "rating": 3}', r"own\.json: cannot be read as a table"),
        ('{"user": 1}\n{"user"', r"own\.json: cannot be read as a table"),
        ('{"ratings": [{"user": 1}]}', r"own\.json: is a JSON object; give JSON Lines"),
        ('{"ann": {"alien": 3, "heat": 4}, "bob": {"heat": 2}}', r"own\.json: is a JSON object"),
        ('[["ann", "alien", 3]]', r"own\.json: this is a JSON array of arrays; give JSON Lines"),
        ("[]", r"own\.json: (has columns but no rows|cannot be read)|which column"),
        ('[{"user": 1, "item": 2, "rating": [3]}]', "is of type List"),
    ],
)
def test_unusable_json_is_refused_with_a_reason(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "own.json").write_text(text)
    with pytest.raises(DataError, match=message):
        read(tmp_path / "own.json", LoadOptions())


def test_a_header_in_brackets_is_not_json(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text("[user],[item],[rating]\n1,2,3\n1,3,4\n")
    assert rows(read(path, LoadOptions())) == [(1, 2, 3.0), (1, 3, 4.0)]


CELLS: list[list[Any]] = [[*PLAIN], *map(list, zip(*PLAIN.values(), strict=True))]


def test_a_spreadsheet_is_recognized_by_its_content_and_blank_rows_are_ignored(
    tmp_path: Path,
) -> None:
    (tmp_path / "own.csv").write_bytes(workbook([*CELLS, [None] * 4]))
    table = read(tmp_path / "own.csv", LoadOptions())
    assert lists(table) == EXPECTED
    assert table.description == "spreadsheet table"


def test_truncated_spreadsheets_are_refused(tmp_path: Path) -> None:
    whole = workbook(CELLS)
    for end in (30, len(whole) // 2, len(whole) - 30):
        (tmp_path / "own.xlsx").write_bytes(whole[:end])
        with pytest.raises(DataError, match=r"own\.xlsx: cannot be read"):
            read(tmp_path / "own.xlsx", LoadOptions())


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastexcel", None)
    (tmp_path / "own.xlsx").write_bytes(workbook(CELLS))
    with pytest.raises(DataError, match=r"pip install 'cfnade\[excel\]'"):
        read(tmp_path / "own.xlsx", LoadOptions())
