"""Benchmarks run."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cfnade import synthetic

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import growth, prediction
from benchmarks.common import Case, Speed, alternate, our_epoch, rival_batches, unvisited
from benchmarks.limit import limit
from benchmarks.rivals import dense_step, gather_step
from benchmarks.serve_load import wrk_figures
from cfnade.models import CFNADEConfig, CFNADENetwork


@pytest.mark.parametrize("factors", [None, 3])
def test_an_epoch_can_be_timed_three_ways(factors: int | None) -> None:
    rows = synthetic(60, 40, 900, seed=3).ratings.rows("user")
    case = Case("small", rows, "made up", hidden=(6,), factors=factors, batch=16)
    our_epoch(case, 1)()
    for step in (dense_step, gather_step):
        rival_batches(case, step, 1, 2)()
    seconds, parts = limit(case, Speed(1e9, 1e9), 1)
    assert seconds == pytest.approx(sum(part["seconds"] for part in parts))


def test_works_are_timed_in_turn_after_one_to_warm_up() -> None:
    """So that a ratio is of runs side by side."""
    runs: list[str] = []
    clock = iter(range(100)).__next__
    works = {name: partial(runs.append, name) for name in "ab"}
    times = alternate(works, 3, lambda: float(clock()))
    assert "".join(runs) == "ab" + "ab" * 3
    assert times == {"a": [1.0] * 3, "b": [1.0] * 3}


def test_ratings_on_disk_come_back_chunk_by_chunk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growth, "USERS", 100)
    path = tmp_path / "ratings.bin"
    growth.write(path, 50_000)
    read = list(growth.chunks(path, 1 << 40))
    assert len(read) > 1
    for number, rows in enumerate(read):
        made = growth.synthetic_chunk(number)
        for name in ("offsets", "columns", "levels"):
            np.testing.assert_array_equal(getattr(rows, name), getattr(made, name))
        rising = np.diff(rows.columns) > 0  # nobody rates a title twice
        assert rising[np.setdiff1d(np.arange(len(rising)), rows.offsets[1:-1] - 1)].all()
        assert rows.columns.min() >= 0
        assert rows.columns.max() < rows.n_columns
    assert len(list(growth.chunks(path, 1))) == 1


def test_predictions_can_be_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: dict[str, Any] = {
        "COLUMNS": 50,
        "LEVELS": 4,
        "ROWS": 20,
        "CELLS": 900,
        "KNOWN": 9,
        "REQUESTS": 25,
    }
    sizes |= {"SHARE": 100, "ALONE": 3}
    for name, value in sizes.items():
        monkeypatch.setattr(prediction, name, value)
    network = CFNADENetwork(CFNADEConfig(columns=50, levels=4, hidden=(6,), factors=3))
    assert prediction.cells_per_second(network, 1) > 0
    plain = unvisited(network, 1)
    for fitted in (plain, prediction.with_ridge(plain)):
        assert prediction.latencies(fitted)["p99_ms"] > 0
    for side in ("user", "both"):
        assert prediction.lists(side, 6, 0, 1)["ratio"] > 0


def test_what_wrk_prints_is_read() -> None:
    said = """Running 2s test @ http://127.0.0.1:8000/recommend
  Latency Distribution
     50%    4.89ms
     75%    6.00ms
     90%  900.00us
     99%    1.20s
  433 requests in 2.01s, 2.65MB read
  Socket errors: connect 0, read 1, write 0, timeout 2
  Non-2xx or 3xx responses: 4
Requests/sec:    215.36
"""
    assert wrk_figures(said) == {
        "per_second": 215.36,
        "p50_ms": 4.89,
        "p99_ms": 1200.0,
        "errors": 7,
    }
