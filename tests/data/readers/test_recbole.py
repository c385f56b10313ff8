"""RecBole's atomic files: text with the types of columns in the header."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.raw_tables import read

from cfnade.data.load import LoadOptions
from cfnade.data.validate import build
from cfnade.exceptions import DataError

HEADER = "user_id:token\titem_id:token\trating:float\ttimestamp:float\n"
ITEMS = (
    "item_id:token\tmovie_title:token_seq\trelease_year:token\tclass:token_seq\n"
    "10\tToy Story\t1995\tAnimation Children's\n20\t\t1996\t\n"
)


def _write(path: Path, text: str, items: str | None = None) -> Path:
    path.write_text(text, newline="")
    if items is not None:
        path.with_suffix(".item").write_text(items)
    return path


def test_integers_titles_and_genres_are_read(tmp_path: Path) -> None:
    path = _write(tmp_path / "ml.inter", HEADER + "2\t10\t3\t881250949\n1\t20\t4.5\t7\n", ITEMS)
    for given in (path, tmp_path):
        columns = read(given, LoadOptions())
        words = columns.description
        ratings = build(columns, LoadOptions())
        header = "user_id, item_id, rating, timestamp"
        assert words == f"tab-separated text with header: {header}"
        assert ratings.user_ids.tolist() == [1, 2]
        assert ratings.values.tolist() == [3.0, 4.5]
        assert ratings.times is not None
        assert ratings.times.tolist() == [881250949, 7]
        assert ratings.titles is not None
        assert ratings.titles.tolist() == ["Toy Story", ""]
        assert ratings.genres is not None
        assert ratings.genres.tolist() == ["Animation|Children's", ""]


def test_tokens_keep_prefixes_quotes_and_carriage_returns_go(tmp_path: Path) -> None:
    text = HEADER + '1m_1\t"Great Performances" Cats (1998)\t5\t978300760\n1m_2\t8 ½ "\t3\t5\n'
    columns = read(_write(tmp_path / "ml-1m.inter", text.replace("\n", "\r\n")), LoadOptions())
    assert list(columns.frame["user"]) == ["1m_1", "1m_2"]
    assert list(columns.frame["item"]) == ['"Great Performances" Cats (1998)', '8 ½ "']


def test_a_single_token_with_blanks_is_not_a_list_of_genres(tmp_path: Path) -> None:
    items = ITEMS.replace("class:token_seq", "genre:token")
    path = _write(tmp_path / "x.inter", HEADER + "1\t10\t3\t5\n1\t20\t4\t5\n", items)
    genres = build(read(path, LoadOptions()), LoadOptions()).genres
    assert genres is not None
    assert genres.tolist() == ["Animation Children's", ""]


def test_columns_can_be_given(tmp_path: Path) -> None:
    text = "a:token\tb:token\tweight:float\n1\t2\t3\n4\t5\t6\n"
    path = _write(tmp_path / "x.inter", text)
    columns = read(path, LoadOptions(user="b", item="a", rating="weight"))
    assert list(columns.frame["user"]) == [2, 5]
    assert list(columns.frame["item"]) == [1, 4]
    with pytest.raises(DataError, match="which column is the user"):
        read(path, LoadOptions())


def test_types_in_a_header_may_be_in_capitals_or_missing(tmp_path: Path) -> None:
    text = "user_id:Token\tItem_ID:TOKEN\trating:Float\ttimestamp\n1\t2\t3\t7\n4\t5\t6\t9\n"
    columns = read(_write(tmp_path / "own.tsv", text), LoadOptions())
    assert columns.frame.rows() == [(1, 2, 3.0, 7), (4, 5, 6.0, 9)]


@pytest.mark.parametrize(
    ("text", "items", "message"),
    [
        (HEADER + "1\t2\tx\t5\n", None, r"x\.inter:2: rating 'x' is not a number"),
        (HEADER + "1\t2\t3\n", None, r"x\.inter:2: the line has 3 fields, not 4"),
        (HEADER, None, r"x\.inter: holds a header and no ratings"),
        (HEADER + "1\t2\t3\t5\n", "name:token\nx\n", r"x\.item:1: no separator cuts"),
        (HEADER + "1\t2\t3\t5\n", "item_id:token\tq:token\n\ty\n", r"x\.item:2: the item id is"),
    ],
)
def test_a_broken_file_is_named_with_line_and_remedy(
    text: str, items: str | None, message: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=message):
        read(_write(tmp_path / "x.inter", text, items), LoadOptions())
