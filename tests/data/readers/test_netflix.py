"""The text of the Netflix Prize is read as a plain Python loop reads it."""

from __future__ import annotations

import gzip
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.raw_tables import item_texts, write_files

from cfnade.data.raw_table import RawTable
from cfnade.data.readers import NETFLIX, netflix, published_files
from cfnade.data.readers.files import open_source
from cfnade.data.readers.netflix import FINE, parse_lines
from cfnade.exceptions import DataError

TEXT = "1:\n1488844,3,2005-09-06\n822109,5,2005-05-13\n17:\n885013,4,2000-02-29\n"
TITLES = "1,2003,Dinosaur Planet\n17,NULL,Well, Well, caf\xe9\n"
SECONDS = 86_400


def write_texts(folder: Path, texts: dict[str, str]) -> None:
    write_files(folder, {name: text.encode("latin-1") for name, text in texts.items()})


def read(path: Path) -> RawTable:
    return netflix.read(open_source(path))


def plain_reading(text: str) -> list[tuple[int, int, int, int]]:
    rows, movie = [], 0
    for line in text.split():
        if line.endswith(":"):
            movie = int(line[:-1])
        else:
            user, stars, day = line.split(",")
            seconds = (date.fromisoformat(day) - date(1970, 1, 1)).days * SECONDS
            rows.append((int(user), movie, int(stars), seconds))
    return rows


def rows_of(table: RawTable) -> list[tuple[Any, ...]]:
    return table.frame.select("user", "item", "rating", "time").rows()


def test_combined_files_are_read_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    tenth = "99:\n7,1,1999-12-31\n"
    write_texts(tmp_path, {"combined_data_2.txt": TEXT, "combined_data_10.txt": tenth})
    assert rows_of(read(tmp_path)) == plain_reading(TEXT + tenth)


def test_titles_are_latin_1_and_keep_commas(tmp_path: Path) -> None:
    write_texts(tmp_path, {"combined_data_1.txt": TEXT, "movie_titles.csv": TITLES})
    assert item_texts(read(tmp_path), "title") == {
        1: "Dinosaur Planet (2003)",
        17: "Well, Well, café",
    }


def test_a_compressed_file_is_recognized_by_content(tmp_path: Path) -> None:
    path = tmp_path / "sample.gz"
    path.write_bytes(gzip.compress(TEXT.encode()))
    assert published_files(open_source(path)) == [NETFLIX]
    assert rows_of(read(path)) == plain_reading(TEXT)


def test_pieces_of_a_file_give_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "".join(f"{m}:\n" + f"{m + 5},4,2003-01-0{m}\n" * m for m in range(1, 9))
    write_texts(tmp_path, {"combined_data_1.txt": text})
    whole = rows_of(read(tmp_path))
    for size in (1, 7, 30, 64):
        monkeypatch.setattr(netflix, "_PIECE", size)
        assert rows_of(read(tmp_path)) == whole == plain_reading(text)


def test_rows_are_located(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(netflix, "_PIECE", 25)
    write_texts(tmp_path, {"combined_data_1.txt": TEXT, "combined_data_2.txt": TEXT})
    columns = read(tmp_path)
    name = tmp_path.name
    expected = [f"{name}/combined_data_{f}.txt:{line}" for f in (1, 2) for line in (2, 3, 5)]
    assert [columns.locate(row) for row in range(6)] == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("\n\n", "the file is empty"),
        ("7,3,2005-09-06\n", r":1: a rating before any movie"),
        ("1:\n7,3,2005-09-06\n\n8,3,2005-09-06\n", r":3: the line is empty"),
        ("1:\n7,6,2005-09-06\n", r":2: rating '6' is off the scale 1–5"),
        ("1:\n7,0,2005-09-06\n", r":2: rating '0' is off the scale 1–5"),
        ("1:\n7,3.5,2005-09-06\n", r":2: rating '3.5' is off the scale"),
        ("1:\n7,3,2005-02-29\n", r":2: date '2005-02-29' is not a day"),
        ("1:\n7,3,2005-13-01\n", r":2: date '2005-13-01' is not a day"),
        ("1:\n7,3,05-09-06\n", r":2: date '05-09-06' is not a day"),
        ("1:\n7,3\n", r":2: '7,3' is neither .* \(2 fields\)"),
        ("1:\n7,3,2005-09-06,x\n", r":2: .* \(4 fields\)"),
        ("1:\n-7,3,2005-09-06\n", r":2: user '-7' is not a whole number"),
        ("1:\n1234567890,3,2005-09-06\n", r":2: user '1234567890' is not a whole number"),
        ("1:\nnonsense\n", r":2: 'nonsense' is neither"),
        ("1:\n7,3,2005-09-0", r":2: date '2005-09-0' is not a day"),
    ],
)
def test_invalid_lines_are_located(tmp_path: Path, text: str, message: str) -> None:
    write_texts(tmp_path, {"combined_data_1.txt": text})
    with pytest.raises(DataError, match=message):
        read(tmp_path)


def test_ratings_in_both_layouts_are_refused(tmp_path: Path) -> None:
    write_texts(tmp_path, {"combined_data_1.txt": TEXT, "mv_0000001.txt": TEXT})
    with pytest.raises(DataError, match="the same ratings twice"):
        read(tmp_path)


@given(st.dates(min_value=date(1970, 1, 1), max_value=date(2037, 12, 31)))
def test_days_follow_the_calendar(day: date) -> None:
    text = np.frombuffer(f"1:\n7,3,{day.isoformat()}".encode(), np.uint8)
    users, days, heads = (np.zeros(2, np.int32) for _ in range(3))
    arrays = users, np.zeros(2, np.uint8), days, heads, np.zeros(2, np.int64)
    assert parse_lines(text, 0, len(text), *arrays)[0] == FINE
    assert days[0] == (day - date(1970, 1, 1)).days
