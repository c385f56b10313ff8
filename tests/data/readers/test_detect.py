"""Formats of files are recognized without options; other files are refused with a remedy."""

from __future__ import annotations

import gzip
import io
import re
import tarfile
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from tests.support.raw_tables import item_texts, read, to_bytes, write_files, zip_bytes

from cfnade.data.load import LoadOptions, companion_files
from cfnade.data.readers.files import HEAD
from cfnade.data.validate import build
from cfnade.exceptions import DataError

CSV = b"userId,movieId,rating,timestamp\n1,10,4.5,978300760\n2,20,3,978300761\n"
DAT = b"1::10::4::978300760\n2::20::3::978300761\n"
INTER = b"user_id:token\titem_id:token\trating:float\n1\t2\t3\n4\t5\t6\n"
NETFLIX = b"1:\n1488844,3,2005-09-06\n822109,5,2005-05-13\n"
FRAME = pl.DataFrame({"user": [1, 2], "item": [10, 20], "rating": [4.5, 3.0]})


def _tar() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("a"))
    return out.getvalue()


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (
            {"my ratings.txt": CSV},
            "comma-separated text with header: userId, movieId, rating, timestamp",
        ),
        ({"x": gzip.compress(CSV)}, "comma-separated text with header: userId"),
        ({"x.zip": zip_bytes({"a.csv": CSV})}, "comma-separated text with header: userId"),
        ({"ratings.csv": CSV, "README.md": b"# a\n"}, "comma-separated text with header: userId"),
        ({"ratings.dat": DAT}, r"MovieLens files \(ratings\.dat\)"),
        ({"other.dat": DAT}, '"::"-separated text without header: user, item, rating, time in co'),
        ({"a.inter": INTER}, "tab-separated text with header: user_id, item_id, rating"),
        ({"any.txt": NETFLIX}, "Netflix Prize text"),
        ({"mv_0000001.txt": NETFLIX, "mv_0000002.txt": b"2:\n5,1,2005-01-01\n"}, "Netflix Prize"),
        ({"r.bin": to_bytes(FRAME.write_parquet)}, "Parquet table"),
        ({"r.bin": to_bytes(FRAME.write_ipc)}, r"Arrow \(Feather\) table"),
        ({"r.csv": CSV, "movies.csv": b"1,Toy Story,Comedy\n"}, "comma-separated text with head"),
        ({"r.zip": zip_bytes({"r.parquet": to_bytes(FRAME.write_parquet)})}, "Parquet table"),
        (
            {"r.csv": CSV.replace(b",", b";"), "items.csv": b"isbn;name\n1;a\n"},
            "semicolon-separated",
        ),
    ],
)
def test_formats_are_recognized(files: dict[str, bytes], words: str, tmp_path: Path) -> None:
    columns = read(write_files(tmp_path, files), LoadOptions())
    assert re.match(words, columns.description)
    assert len(build(columns, LoadOptions())) >= 2


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"train.csv": CSV, "test.csv": CSV}, r"several files could be .*: test\.csv, train\.csv;"),
        ({"a.inter": INTER, "b.inter": INTER}, r"several .*: a\.inter, b\.inter; give the path of"),
        (
            {"mv_0000001.txt": NETFLIX, "u.data": b"1\t2\t3\t4\n"},
            r"the Netflix Prize's files, u\.da",
        ),
        ({"x.zip": zip_bytes({"a.csv": CSV, "b.csv": CSV})}, r"a\.csv, b\.csv; unpack it and give"),
        (
            {"notes.txt": b"hello\n", "b.bin": b"\0\1"},
            r"none of its 2 files is recognized as ratings: b\.bin, notes\.txt\. MovieLens and Net",
        ),
        (
            {"movie_titles.txt": b"1,2003,Dinosaur Planet\n2,2004,Isle of Man\n", "b.bin": b"\0\1"},
            r"none of its 2 files is recognized as ratings: b\.bin, movie_titles\.txt\.",
        ),
        (
            {"r.csv": CSV + b"1,2,x,4\n", "notes.txt": b"hello\n"},
            r"/r\.csv:4: rating 'x' is not a n",
        ),
        ({"page.csv": b"<!DOCTYPE html><html>"}, "this is HTML or XML: perhaps an error page"),
        ({"r.json": b'{"user": 1}\n'}, r"r\.json: is a JSON object; give JSON Lines"),
        ({"r.h5": b"\x89HDF\r\n\x1a\n"}, "this is HDF5; save"),
        ({"r.tar.gz": gzip.compress(_tar())}, "a tar archive; unpack it and give the folder"),
        ({"r.bin": b"\x07\x00\x01garbage"}, r"r\.bin:1: a NUL byte: this is not text"),
        ({"r.csv": b""}, r"r\.csv: is empty"),
    ],
)
def test_unrecognized_files_are_listed(
    files: dict[str, bytes], message: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=message):
        read(write_files(tmp_path, files), LoadOptions())


def test_detection_may_cut_a_file_inside_a_character(tmp_path: Path) -> None:
    row = f"1,2,3,{'é' * 500}\n"
    for padding in ("", "x"):
        data = f"user,item,rating,name{padding}\n{row * 1100}".encode()
        if data[HEAD] == "é".encode()[1]:
            break
    path = write_files(tmp_path, {"r.csv": data, "items.csv": b"isbn;name\n1;a\n"})
    assert (
        read(path, LoadOptions()).description
        == "comma-separated text with header: user, item, rating"
    )


@pytest.mark.parametrize(
    ("files", "options"),
    [
        ({"ratings.dat": DAT}, {"user": 1, "item": 0}),
        ({"r.inter": INTER}, {"user": "item_id", "item": "user_id"}),
        ({"r.csv": CSV, "README": b"x"}, {"user": 1, "item": 0}),
    ],
)
def test_columns_of_published_formats_can_be_given(
    files: dict[str, bytes], options: dict[str, Any], tmp_path: Path
) -> None:
    path = write_files(tmp_path, files)
    straight = read(path, LoadOptions())
    swapped = read(path, LoadOptions(**options))
    assert list(swapped.frame["user"]) == list(straight.frame["item"])
    assert list(swapped.frame["item"]) == list(straight.frame["user"])


@pytest.mark.parametrize(
    "files",
    [
        {"ratings.dat": b"1::10::5::9\n1::10\n2::10::4::9\n", "movies.dat": b"10::Al\xe9::A\n"},
        {
            "a.inter": b"user_id:token\titem_id:token\trating:float\n1\t10\t5\n\n2\t10\t4\n",
            "a.item": "item_id:token\tmovie_title:token_seq\n10\tAl\u00e9\n".encode(),
        },
    ],
)
def test_bad_lines_of_published_formats_are_skipped(
    files: dict[str, bytes], tmp_path: Path
) -> None:
    path = write_files(tmp_path, files)
    columns = read(path, LoadOptions(skip_bad_lines=True))
    description = columns.description
    assert list(columns.frame["user"]) == [1, 2]
    assert item_texts(columns, "title") == {"10": "Al\u00e9"}
    assert "; skipped 1 bad line (line " in description


def test_a_file_with_bad_lines_is_not_chosen_as_ratings(tmp_path: Path) -> None:
    files = {"ratings.csv": b"1,10,5\n2,10,4\n", "people.csv": b"1,25,engineer\n2,30,4\n"}
    path = write_files(tmp_path, files)
    assert list(read(path, LoadOptions(skip_bad_lines=True)).frame["item"]) == [10, 10]


def test_bad_lines_of_netflix_files_are_not_skipped(tmp_path: Path) -> None:
    path = write_files(tmp_path, {"combined_data_1.txt": b"1:\n7,3,2005-09-06\n"})
    with pytest.raises(DataError, match="skip_bad_lines=True is not for Netflix Prize files"):
        read(path, LoadOptions(skip_bad_lines=True))


def test_companion_files_have_titles(tmp_path: Path) -> None:
    names = ("ratings.dat", "movies.dat", "a.inter", "a.item", "b.item", "u.data", "u.item")
    for name in names:
        (tmp_path / name).write_bytes(b"-")
    found = {
        name: [path.name for path in companion_files(tmp_path / name)]
        for name in ("ratings.dat", "a.inter", "u.data", "b.item")
    }
    assert found == {
        "ratings.dat": ["movies.dat"],
        "a.inter": ["a.item"],
        "u.data": ["u.item"],
        "b.item": [],
    }
