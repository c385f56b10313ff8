"""Encodings: UTF-8 and Western texts are found, damage and other scripts are named."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfnade.data.load import LoadOptions
from cfnade.data.readers.text import decode, read_text
from cfnade.exceptions import DataError

NAMES = ["a", "b", "Zoë", "Amélie", "Ångström", "naïve", "Tür", "piñata", "it’s", "€5"]
WORDS = st.lists(st.sampled_from(NAMES))


@given(WORDS)
@settings(max_examples=50, derandomize=True)
def test_a_western_text_is_read_in_the_encoding_of_windows_or_in_utf8(words: list[str]) -> None:
    text = " ".join(["x", *words])
    for encoding in ("cp1252", "utf-8", "utf-8-sig", "utf-16"):
        assert decode(text.encode(encoding), "r.csv")[0].decode() == text


def test_an_encoding_that_was_assumed_is_said() -> None:
    columns = read_text("1,Amélie,4\n".encode("latin-1"), "r.csv", LoadOptions())
    said = columns.description
    assert list(columns.frame["item"]) == ["Amélie"]
    assert said.endswith("; read as cp1252 (Latin-1), for it is not UTF-8")
    assert "cp1252" not in read_text("1,Amélie,4\n".encode(), "r.csv", LoadOptions()).description


@pytest.mark.parametrize(
    ("encoding", "title"), [("cp1251", "Сталкер"), ("gbk", "霸王别姬"), ("shift_jis", "七人の侍")]
)
def test_another_script_is_read_in_the_encoding_that_is_given(encoding: str, title: str) -> None:
    data = f"1,{title},4\n2,{title},5\n".encode(encoding)
    with pytest.raises(DataError, match=r"r\.csv:1: byte 0x.. is not UTF-8, .*encoding="):
        read_text(data, "r.csv", LoadOptions())
    columns = read_text(data, "r.csv", LoadOptions(encoding=encoding))
    assert list(columns.frame["item"]) == [title, title]


def test_damage_in_utf8_is_named_or_its_lines_are_left_out() -> None:
    lines = [f"{user},Zoë,Amélie {user},4".encode() for user in range(5)]
    lines[2] = lines[2].replace("é".encode(), b"\xc3")  # in the title's column, not in an id
    lines[3] = lines[3].replace("ë".encode(), b"\xab")
    data = b"\n".join([b"user,item,note,rating", *lines])
    with pytest.raises(DataError, match=r"r\.csv:4: byte 0xc3 is not UTF-8, .*skip_bad_lines=True"):
        read_text(data, "r.csv", LoadOptions())
    columns = read_text(data, "r.csv", LoadOptions(skip_bad_lines=True))
    words = columns.description
    assert list(columns.frame["user"]) == [0, 1, 2, 4]
    assert "skipped 1 bad line (line 5: the item id holds damaged characters)" in words
