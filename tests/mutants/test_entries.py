"""Every deliberate fault can still be made, and names tests that are there."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ENTRIES = tomllib.loads((Path(__file__).parent / "mutants.toml").read_text("utf-8"))["mutant"]


@pytest.mark.parametrize("file", sorted({entry["file"] for entry in ENTRIES}))
def test_a_fault_stands_once_in_its_file(file: str) -> None:
    source = (ROOT / file).read_text("utf-8")
    for entry in (one for one in ENTRIES if one["file"] == file):
        assert source.count(entry["old"]) == 1, entry
        assert entry["new"] != entry["old"], entry
        for path in entry["tests"].split():
            assert (ROOT / path.partition("::")[0]).exists(), entry
