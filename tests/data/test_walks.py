"""Reading a file passes few modules and functions, so that a reader can follow it."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path

import pytest
from tests.support.walks import ROOT, entered_functions

from cfnade import load

MAX_FRESH = 12, 80
"""Modules and functions that are entered to parse a CSV file and to store it in the cache."""
MAX_CACHED = 5, 25
"""The same for a file that is in the cache."""


@pytest.fixture
def ratings_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CFNADE_CACHE", str(tmp_path / "cache"))
    # A test of the command line may have left its handler, whose functions are not those of `load`.
    monkeypatch.setattr(logging.getLogger("cfnade"), "handlers", [])
    path = tmp_path / "ratings.csv"
    rows = (f"{u},{i},{1 + u * i % 5},{10**9 + u * i}" for u in range(30) for i in range(u % 7, 20))
    path.write_text("user,item,rating,timestamp\n" + "\n".join(rows) + "\n")
    return path


def test_loading_enters_few_modules_and_functions(ratings_file: Path) -> None:
    for max_modules, max_functions in (MAX_FRESH, MAX_CACHED):
        entered = entered_functions(partial(load, ratings_file))
        modules = sorted({code.co_filename.removeprefix(ROOT) for code in entered})
        assert len(modules) <= max_modules, modules
        assert len(entered) <= max_functions, sorted(code.co_qualname for code in entered)
    assert "/data/storage.py" in modules
    assert not any("readers" in module for module in modules)
