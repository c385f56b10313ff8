"""Text of data that is printed cannot control the terminal."""

from __future__ import annotations

import unicodedata

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfnade.cli.process import printable, printable_lines
from cfnade.cli.render import print_similar

BIDI = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]0;owned\x07Alien", "]0;ownedAlien"),
        ("\x1b[2J\x9b31mRed", "[2J31mRed"),
        ("abc\u202egnp.exe", "abcgnp.exe"),
        ("two\nlines\tand\r\nmore\u2028", "two lines and  more "),
        (
            "ordinary – Ünïcödé 東京 שלום 👨\u200d👩\u200d👧",
            "ordinary – Ünïcödé 東京 שלום 👨\u200d👩\u200d👧",
        ),
        ("half \ud800", "half "),
    ],
)
def test_what_controls_a_terminal_is_removed(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text())
def test_nothing_that_is_printed_controls_a_terminal(text: str) -> None:
    """By the categories of Unicode."""
    for character in printable(text):
        assert unicodedata.category(character) not in ("Cc", "Cs", "Zl", "Zp")
        assert unicodedata.bidirectional(character) not in BIDI
    assert printable_lines(text).count("\n") == text.count("\n")


def test_titles_in_tables_are_safe(capsys: pytest.CaptureFixture[str]) -> None:
    frame = pl.DataFrame(
        {
            "rank": [1, 2],
            "item": ["a", "\x1b[2Jb"],
            "title": ["\x1b]0;t\x07\u202eAlien", ""],
            "similarity": [0.5, 0.4],
            "n_item_ratings": [3, 2],
        }
    )
    print_similar(frame)
    shown = capsys.readouterr().out
    assert "Alien" in shown
    assert "[2Jb" in shown
    assert not set("\x1b\x07\u202e") & set(shown)
