"""`cfnade train --side both` and `--n-seeds`: trained, saved, resumed and evaluated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from cfnade.checkpoint import load
from cfnade.components.optimizers import member_network
from cfnade.training import state

Shell = Any
SMALL = ["--hidden", "8", "--epochs", "3", "--n-threads", "1", "--out"]


def weights(out: Path) -> torch.Tensor:
    members = load(out).members
    return torch.cat(
        [p.detach().flatten() for member in members for p in member_network(member).parameters()]
    )


def test_side_both_takes_its_own_recipe_and_can_be_evaluated(
    shell: Shell, ratings_file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "model"
    done = shell("train", ratings_file, "--side", "both", *SMALL, out)
    assert done.code == 0, done.err
    fitted = load(out)
    assert list(fitted.members[0].components) == ["user", "item"]
    job = fitted.metadata["run_config"]
    assert (job["side"], job["recipe"], job["training"]["passes"]) == ("both", "default-both", 8)
    scored = shell("evaluate", out, "--json")
    assert scored.code == 0, scored.err
    assert 0.2 < json.loads(scored.out)["rmse"] < 2.0


def test_seeds_are_shown_saved_as_one_model_and_resumed(
    shell: Shell, ratings_file: Path, tmp_path: Path
) -> None:
    whole, out = tmp_path / "whole", tmp_path / "model"
    options = ("train", ratings_file, "--side", "both", "--n-seeds", "2")
    done = shell(*options, *SMALL, whole)
    assert done.code == 0, done.err
    lines = [line for line in done.err.splitlines() if line.startswith("model")]
    assert [line.split("   ")[0] for line in lines] == ["model 1/2 both"] * 3 + [
        "model 2/2 both"
    ] * 3
    history = [json.loads(line) for line in (whole / "history.jsonl").read_text().splitlines()]
    assert [(one["member"], one["epoch"]) for one in history] == [
        (member, epoch) for member in (0, 1) for epoch in (1, 2, 3)
    ]
    assert len(load(whole).members) == 2

    # As if it had been stopped when the first model was done.
    assert shell(*options, *SMALL, out, "--keep-state").code == 0
    second = state.member_folder(out, 1) / state.NAME
    second.unlink()
    run = json.loads((out / "run.json").read_text())
    del run["finished"]
    (out / "run.json").write_text(json.dumps(run))
    again = shell(*options, *SMALL, out)
    assert again.code != 0
    assert "holds an unfinished run" in again.err
    resumed = shell("train", "--resume", "--out", out)
    assert resumed.code == 0, resumed.err
    assert torch.equal(weights(out), weights(whole))
