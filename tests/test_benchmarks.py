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
from benchmarks.common import (
    Case,
    Speed,
    alternate,
    fused_epoch,
    model_without_users,
    torch_batches,
)
from benchmarks.kernel_costs import OUTSIDE, limit, profile
from benchmarks.server import parse_wrk
from benchmarks.torch_steps import dense_step, gather_step
from cfnade.models import CFNADEConfig, CFNADENetwork


@pytest.mark.parametrize("factors", [None, 3])
def test_an_epoch_is_timed_in_three_implementations(factors: int | None) -> None:
    rows = synthetic(60, 40, 900, seed=3).ratings.rows("user")
    case = Case("small", rows, "made up", hidden=(6,), factors=factors, batch=16)
    parts_of_epoch = profile(fused_epoch(case, 1))
    assert min(parts_of_epoch.values()) > 0
    assert OUTSIDE in parts_of_epoch
    for step in (dense_step, gather_step):
        torch_batches(case, step, 1, 2)()
    seconds, parts = limit(case, Speed(1e9, 1e9), 1)
    assert seconds == pytest.approx(sum(part["seconds"] for part in parts))


def test_alternate_times_in_turn_after_a_warm_up() -> None:
    runs: list[str] = []
    clock = iter(range(100)).__next__
    works = {name: partial(runs.append, name) for name in "ab"}
    times = alternate(works, 3, lambda: float(clock()))
    assert "".join(runs) == "ab" + "ab" * 3
    assert times == {"a": [1.0] * 3, "b": [1.0] * 3}


def test_chunks_on_disk_round_trip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "USERS", 100)
    path = tmp_path / "ratings.bin"
    growth.write(path, 50_000)
    read = list(growth.chunks(path, 1 << 40))
    assert len(read) > 1
    for number, rows in enumerate(read):
        made = growth.synthetic_chunk(number)
        for name in ("offsets", "columns", "levels"):
            np.testing.assert_array_equal(getattr(rows, name), getattr(made, name))
        rising = np.diff(rows.columns) > 0  # no title twice in a row
        assert rising[np.setdiff1d(np.arange(len(rising)), rows.offsets[1:-1] - 1)].all()
        assert rows.columns.min() >= 0
        assert rows.columns.max() < rows.n_columns
    assert len(list(growth.chunks(path, 1))) == 1


def test_predictions_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: dict[str, Any] = {
        "COLUMNS": 50,
        "LEVELS": 4,
        "ROWS": 20,
        "PAIRS": 900,
        "HISTORY": 9,
        "REQUESTS": 25,
    }
    sizes |= {"SCALE_DOWN": 100, "N_SINGLE": 3}
    for name, value in sizes.items():
        monkeypatch.setattr(prediction, name, value)
    network = CFNADENetwork(CFNADEConfig(columns=50, levels=4, hidden=(6,), factors=3))
    assert prediction.pairs_per_second(network, 1) > 0
    nade = model_without_users(network, 1)
    for fitted in (nade, prediction.with_ridge(nade)):
        assert prediction.latencies(fitted)["p99_ms"] > 0
    for side in ("user", "both"):
        assert prediction.lists(side, 6, 0, 1)["ratio"] > 0


def test_parse_wrk() -> None:
    output = """Running 2s test @ http://127.0.0.1:8000/recommend
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
    assert parse_wrk(output) == {
        "per_second": 215.36,
        "p50_ms": 4.89,
        "p99_ms": 1200.0,
        "errors": 7,
    }
