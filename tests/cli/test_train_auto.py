"""`cfnade train` without settings: what it says, keeps and refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Shell

from cfnade import CFNADE
from cfnade.training import state

QUICK = ("--time-budget", "0.1", "--n-threads", "1")


@pytest.fixture
def model(shell: Shell, ratings_file: Path, tmp_path: Path) -> Path:
    out = tmp_path / "model"
    done = shell("train", ratings_file, "--out", out, *QUICK)
    assert done.code == 0, done.err
    assert "training: user-factors (10 samples), " in done.err
    assert "--time-budget 10 trains larger models" in done.err
    assert "user and item means" in done.out
    for name in ("member", "user-factors", "item-factors", "for new users"):
        assert name in done.out
    return out


def test_what_was_tried_is_in_the_folder_and_the_model_answers(shell: Shell, model: Path) -> None:
    facts = json.loads((model / "model.json").read_text())["metadata"]
    assert {"user-factors (10 samples)", "user-factors", "item-factors"} <= {
        one["side"] for one in facts["tried"]
    }
    assert (
        CFNADE.load(model).get_params() | {"n_threads": 1}
        == CFNADE(time_budget=0.1, n_threads=1).get_params()
    )
    for command in (("evaluate", model), ("recommend", model, "--user", "1")):
        assert shell(*command).code == 0


def test_it_is_resumed_as_it_was_begun(shell: Shell, ratings_file: Path, tmp_path: Path) -> None:
    """The state of every member is there: nothing is trained a second time."""
    whole, again = tmp_path / "whole", tmp_path / "again"
    for out in (whole, again):
        done = shell("train", ratings_file, "--out", out, *QUICK, "--keep-state")
        assert done.code == 0, done.err
    assert (again / state.NAME).exists()
    done = shell("train", "--resume", "--out", again)
    assert done.code == 0, done.err
    assert "epoch" not in done.err
    both = [(out / "model.safetensors").read_bytes() for out in (whole, again)]
    assert both[0] == both[1]
    other = shell("train", "--resume", "--out", again, "--time-budget", "5")
    assert "--time-budget was 0.1 when the run began and is 5.0 now" in other.err
