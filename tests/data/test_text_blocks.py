"""Blocks of a text end where lines end, also where quotes hide an end that is none."""

from __future__ import annotations

import csv
import gzip
import io
from itertools import accumulate
from pathlib import Path

import pytest

from cfnade.data.readers import files
from cfnade.data.readers.text_blocks import iter_text_blocks

LINES = [["ann", "Alien", "5"], ["bob", 'two\n"lines"\n', "1"], ["cy", "a, b\n", "2"]] * 5
TEXT = io.StringIO(newline="")
csv.writer(TEXT, lineterminator="\n").writerows(LINES)


@pytest.mark.parametrize("size", [1, 40, 100, 10_000])
@pytest.mark.parametrize("stored", [3, 64])
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "packed"])
def test_a_stream_is_cut_between_lines_whatever_is_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, stored: int, packed: bool
) -> None:
    data, path = TEXT.getvalue().encode(), tmp_path / "ratings.csv"
    path.write_bytes(gzip.compress(data) if packed else data)
    monkeypatch.setattr(files, "_BLOCK", stored)
    pieces = files.open_source(path).blocks(path.name)
    blocks, starts = zip(*iter_text_blocks(pieces, size), strict=True)
    assert b"".join(blocks) == data
    read = [csv.reader(io.StringIO(block.decode(), newline="")) for block in blocks]
    assert [line for lines in read for line in lines] == LINES
    ends = accumulate(block.count(b"\n") for block in blocks)
    assert list(starts) == [1, *(1 + end for end in ends)][:-1]
