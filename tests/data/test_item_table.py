"""Tables of items in any format add titles, genres and features to ratings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from cfnade import DataError, load

RATINGS = "user,item,rating\n" + "".join(
    f"{u},{i},{1 + (u + i) % 5}\n" for u in (1, 2) for i in (5, 7)
)
TABLE: dict[str, list[Any]] = {
    "id": [7, 9, 5],
    "title": ["Alien, part 1", "Unrated", "Amélie"],
    "genres": ["A|B", "", ""],
}


@pytest.fixture
def ratings(tmp_path: Path) -> str:
    (tmp_path / "r.csv").write_text(RATINGS)
    return str(tmp_path / "r.csv")


def write(table: dict[str, list[Any]], path: Path) -> Path:
    frame = pl.DataFrame(table)
    match path.suffix:
        case ".parquet":
            frame.write_parquet(path)
        case ".tsv":
            frame.write_csv(path, separator="\t")
        case ".dat":  # MovieLens's own: no header
            path.write_text("".join("::".join(map(str, row)) + "\n" for row in frame.iter_rows()))
        case ".latin":
            path.write_bytes(frame.write_csv().encode("latin-1"))
        case _:
            frame.write_csv(path)
    return path


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet", ".dat", ".latin"])
def test_titles_and_genres_are_joined(suffix: str, ratings: str, tmp_path: Path) -> None:
    got = load(ratings, item_features=write(TABLE, tmp_path / f"items{suffix}"))
    assert got.item_ids.tolist() == [5, 7]
    assert got.titles is not None
    assert got.titles.tolist() == ["Amélie", "Alien, part 1"]
    assert got.genres is not None
    assert got.genres.tolist() == ["", "A|B"]


def test_item_tables_can_be_frames() -> None:
    frame = pa.table({"user": [1, 1], "item": ["a", "b"], "rating": [1, 5]})
    items = pa.table({"Product-ID": ["b", "c"], "name": ["Bee", "Sea"]})
    got = load(frame, item_features=items)
    assert got.titles is not None
    assert got.titles.tolist() == ["", "Bee"]
    assert got.genres is None


def test_titles_of_the_table_replace_known_ones() -> None:
    frame = pl.DataFrame({"user": [1, 1], "item": [1, 2], "rating": [1, 5], "title": ["A", "B"]})
    got = load(frame, item_features=pl.DataFrame({"id": [1, 2], "title": ["New", None]}))
    assert got.titles is not None
    assert got.titles.tolist() == ["New", "B"]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"key9": ["x"], "title": ["A"]}, r"i\.csv: which column holds the ids .*'key9', 'title'"),
        ({"id": [5, 7, 5], "title": ["A"] * 3}, r"i\.csv:4: item 5 is listed again \(1 repeated"),
        ({"id": ["x5"], "title": ["A"]}, r"i\.csv: no item of the ratings .*'x5'.*like '5'"),
        ({"id": [5, None], "title": ["A", "B"]}, r"i\.csv:3: the item id is missing"),
    ],
)
def test_invalid_item_tables_are_refused(
    table: dict[str, list[Any]], message: str, ratings: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=message):
        load(ratings, item_features=write(table, tmp_path / "i.csv"))


def test_other_columns_are_item_features(ratings: str, tmp_path: Path) -> None:
    table: dict[str, list[Any]] = {
        "id": [7, 9, 5],
        "title": ["A", "B", "C"],
        "year": [1979, 1980, None],
    }
    items = write({**table, "colour": ["red", None, "blue"]}, tmp_path / "items.csv")
    got = load(ratings, item_features=items)
    expected = {"year": [None, 1979.0], "colour": ["blue", "red"]}
    assert got.item_features is not None
    assert got.item_features.to_dict(as_series=False) == expected
    shown = {"item": [5, 7], "title": ["C", "A"], **expected}
    assert got.item_table.to_dict(as_series=False) == shown
    assert got.replace(item_features=None).fingerprint == got.fingerprint
    part = got.select(np.array([0]))
    assert part.item_features is got.item_features
    added = load(got, item_features=pl.DataFrame({"id": [5], "year": [1]}))
    assert added.item_table.columns == ["item", "title", "colour", "year"]
    assert added.item_table["year"].to_list() == [1, None]
    with pytest.raises(DataError, match="has no titles, genres or other columns with a name"):
        load(ratings, item_features=pl.DataFrame({"id": [5]}))
