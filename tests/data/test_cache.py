"""What was parsed once is kept, checked, and never trusted when it should not be."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.support.raw_tables import raw_table

from cfnade.data.dataset import Dataset
from cfnade.data.load import LoadOptions
from cfnade.data.storage import cached
from cfnade.data.validate import build


def ratings_of(text: str) -> Dataset:
    stars = np.array([int(c) for c in text])
    return build(
        raw_table(np.arange(len(stars)), np.zeros(len(stars), np.int64), stars), LoadOptions()
    )


class Parser:
    """Parses a file of digits and counts how often it was asked to."""

    def __init__(self, path: Path) -> None:
        self.path, self.calls = path, 0

    def __call__(self) -> tuple[Dataset, str]:
        self.calls += 1
        return ratings_of(self.path.read_text()), "digits"


@pytest.fixture
def source(tmp_path: Path) -> Parser:
    path = tmp_path / "ratings"
    path.write_text("12345")
    return Parser(path)


def kept_file(folder: Path) -> Path:
    (file,) = (folder / "parsed").glob("*.safetensors")
    return file


def touch(path: Path, seconds: int) -> None:
    os.utime(path, (seconds, seconds))


def test_a_source_is_parsed_once_per_options(source: Parser) -> None:
    first = cached(source.path, "plain", source)
    again = cached(source.path, "plain", source)
    assert source.calls == 1
    assert first == again == (ratings_of("12345"), "digits")
    cached(source.path, "bins=3", source)
    assert source.calls == 2


def test_a_changed_source_is_parsed_again(source: Parser) -> None:
    cached(source.path, "plain", source)
    source.path.write_text("54321")
    touch(source.path, 10**9)
    assert cached(source.path, "plain", source)[0] == ratings_of("54321")
    assert source.calls == 2


@pytest.mark.parametrize("damage", ["flip", "truncate", "empty", "garbage"])
def test_a_damaged_cache_is_rebuilt(
    source: Parser, own_cache: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    cached(source.path, "plain", source)
    file = kept_file(own_cache)
    raw = bytearray(file.read_bytes())
    raw[-3] ^= 1
    broken = {"flip": bytes(raw), "truncate": bytes(raw[:-9]), "empty": b"", "garbage": b"x" * 99}
    file.write_bytes(broken[damage])
    with caplog.at_level(logging.WARNING):
        assert cached(source.path, "plain", source)[0] == ratings_of("12345")
    assert source.calls == 2
    assert "parsing the source again" in caplog.text
    cached(source.path, "plain", source)
    assert source.calls == 2, "the rebuilt cache is sound"


def test_a_file_with_an_unexpected_note_is_rebuilt(source: Parser, own_cache: Path) -> None:
    cached(source.path, "plain", source)
    for number, note in enumerate(("", "[]", '{"stamp": 3}', "{"), 2):
        ratings_of("12345").save(kept_file(own_cache), note)
        assert cached(source.path, "plain", source)[0] == ratings_of("12345")
        assert source.calls == number


def test_a_source_that_changes_while_parsed_is_not_cached(source: Parser, own_cache: Path) -> None:
    def parse() -> tuple[Dataset, str]:
        result = source()
        source.path.write_text("555551")
        return result

    cached(source.path, "plain", parse)
    assert not list((own_cache / "parsed").glob("*"))
    assert cached(source.path, "plain", source)[0] == ratings_of("555551")


def test_an_unwritable_cache_is_a_warning(
    source: Parser, own_cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (own_cache / "parsed").write_text("a file where the folder should be")
    assert cached(source.path, "plain", source)[0] == ratings_of("12345")
    assert "cannot be cached" in caplog.text


FILL = """
import sys
from pathlib import Path
import numpy as np
from cfnade.data.storage import cached
from cfnade.data.load import LoadOptions
from cfnade.data.raw_table import RawTable
from cfnade.data.validate import build

path = Path(sys.argv[1])
stars = np.array([int(c) for c in path.read_text()])
table = RawTable.from_arrays(np.arange(len(stars)), np.zeros(len(stars), np.int64), stars)
expected = build(table, LoadOptions()), "digits"
for number in range(10):
    assert cached(path, f"way {number}", lambda: expected) == expected
"""


def test_concurrent_processes_fill_the_cache(source: Parser, own_cache: Path) -> None:
    command = [sys.executable, "-c", FILL, str(source.path)]
    workers = [subprocess.Popen(command) for _ in range(2)]
    assert [worker.wait(120) for worker in workers] == [0, 0]
    assert len(list((own_cache / "parsed").glob("*.safetensors"))) == 10
    assert not list((own_cache / "parsed").glob(".*"))
    for number in range(10):
        assert cached(source.path, f"way {number}", source) == (ratings_of("12345"), "digits")
    assert source.calls == 0


def test_changed_companion_files_invalidate_the_cache(source: Parser, tmp_path: Path) -> None:
    titles = tmp_path / "titles"
    titles.write_text("a")
    cached(source.path, "plain", source, [titles])
    cached(source.path, "plain", source, [titles])
    assert source.calls == 1
    titles.write_text("b")
    touch(titles, 10**9)
    cached(source.path, "plain", source, [titles])
    assert source.calls == 2
