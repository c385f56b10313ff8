"""Only training is timed, and targets are read from the curve."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.time_to_accuracy import TARGETS, markdown, summarize
from experiments.time_to_accuracy_systems import PATIENCE, Stopwatch, _Ratings

SCRIPT = Path(__file__).parents[2] / "experiments" / "time_to_accuracy_systems.py"


def job(folder: Path, **other: Any) -> dict[str, Any]:
    common = {"started": time.time(), "targets": [0.9, 0.8], "limit": 60.0, "folder": str(folder)}
    return common | {"part": "test", "seed": 1, "threads": 1} | other


def printed(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_the_clock_stops_during_scoring(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    watch = Stopwatch(job(tmp_path))
    watch.prepared()
    for training, scoring in ((2.0, 50.0), (3.0, 70.0)):
        now[0] += training
        watch.stop()
        now[0] += scoring
        watch.score(1.0)
        watch.start()
    assert [line["seconds"] for line in printed(capsys) if "rmse" in line] == [2.0, 5.0]


def test_training_ends_at_the_last_target_or_without_improvement(tmp_path: Path) -> None:
    watch = Stopwatch(job(tmp_path))
    assert not watch.score(0.85)
    assert watch.score(0.8)
    watch = Stopwatch(job(tmp_path))
    assert [watch.score(0.95) for _ in range(PATIENCE + 1)] == [False] * PATIENCE + [True]
    assert Stopwatch(job(tmp_path, limit=-1.0)).score(0.95)


def lines(*curve: tuple[float, float]) -> list[dict[str, Any]]:
    facts: list[dict[str, Any]] = [{"version": "1.0", "load_s": 3.0}, {"prepare_s": 1.5}]
    return [*facts, *({"seconds": seconds, "rmse": rmse} for seconds, rmse in curve)]


def test_a_target_is_reached_at_the_first_score_at_or_below_it() -> None:
    curve = (1.0, 0.9), (2.0, TARGETS[0]), (3.0, 0.835), (4.0, 0.83), (5.0, 0.831)
    found = summarize("myfm", {"rank": 3}, lines(*curve))
    assert list(found["first_s"].values()) == [2.0, 4.0, None, None]
    assert found["lowest"] == 0.83


def test_the_table_has_seconds_with_and_without_preparation() -> None:
    systems = [summarize("cornac", {"k": 3}, lines((2.0, 0.84), (7.0, 0.838)))]
    where = {"cpu": "c", "threads": 2, "cores": 2, "date": "2026", "commit": "a", "load": 0}
    found = {"machine": where, "data": "ml-1m", "split": "authors:1234", "seed": 1}
    text = markdown(found | {"targets": [f"{t:.4f}" for t in TARGETS], "entrants": systems})
    row = "| k 3 | 2.0 s (6.5 s) | not reached | not reached | not reached | 0.8380, 7 s |"
    assert row in text


def ratings(folder: Path) -> None:
    """Write ratings of rank one and biases, without noise."""
    rng = np.random.default_rng(0)
    users, items = np.divmod(rng.permutation(40 * 30), 30)
    values = 3 + rng.normal(0, 0.5, 40)[users] + rng.normal(0, 0.5, 30)[items]
    values += rng.normal(0, 0.5, 40)[users] * rng.normal(0, 0.5, 30)[items]
    train, scored = slice(0, 1000), slice(1000, None)
    np.savez(
        folder / "ratings.npz",
        users=users[train],
        items=items[train],
        values=values[train],
        scored_users=users[scored],
        scored_items=items[scored],
        scored_values=values[scored],
        sizes=[40, 30],
        scale=np.arange(1.0, 6.0),
    )


@pytest.mark.parametrize(
    ("name", "settings"),
    [("cornac", {"k": 2, "learning_rate": 0.02, "lambda_reg": 0.02}), ("myfm", {"rank": 2})],
)
def test_other_libraries_learn_and_print_rising_seconds(
    name: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    if find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    ratings(tmp_path)
    given = job(tmp_path, settings=settings, targets=[0.0], limit=0.5)
    (tmp_path / f"{name}.json").write_text(json.dumps(given))
    done = subprocess.run(
        [sys.executable, str(SCRIPT), name, str(tmp_path)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert {"version", "load_s", "prepare_s"} <= set(found[0]) | set(found[1])
    curve = np.array([(line["seconds"], line["rmse"]) for line in found[2:]])
    assert (np.diff(curve[:, 0]) > 0).all()
    data = _Ratings(given)
    assert curve[:, 1].min() < 0.8 * data.rmse(np.full(len(data.scored_values), data.values.mean()))
