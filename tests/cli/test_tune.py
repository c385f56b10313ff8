"""`cfnade tune`: it goes on where it was stopped, with trials that it has not tried yet."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from cfnade.checkpoint import load
from cfnade.config import TrainingConfig
from cfnade.recipes import Recipe, load_recipe

optuna = pytest.importorskip("optuna")

Shell = Any


def test_tune_goes_on_where_it_was_stopped(
    shell: Shell, ratings_file: Path, tmp_path: Path
) -> None:
    recipe, out = tmp_path / "own.toml", tmp_path / "search"
    recipe.write_text("[model]\nhidden = [6]\n[training]\nepochs = 2\nbatch_rows = 16\n")
    first = shell("tune", ratings_file, "--recipe", recipe, "--out", out, "--trials", "2")
    assert first.code == 0, first.err
    more = shell("tune", ratings_file, "--recipe", recipe, "--out", out, "--trials", "3")
    assert more.out.count("valid rmse") == 1
    assert "  3/3" in more.out
    best = tmp_path / "model"
    study = optuna.load_study(study_name=None, storage=f"sqlite:///{out / 'study.db'}")
    tried = [tuple(trial.params.values()) for trial in study.trials]
    assert len(set(tried)) == 3  # one that goes on does not begin with the first one again
    done = shell("train", ratings_file, "--recipe", out / "best.toml", "--out", best)
    assert done.code == 0, done.err
    found = float(re.findall(r"validation RMSE (\d\.\d+)", more.out)[0])
    assert load(best).metadata["valid"]["rmse"] == pytest.approx(found, abs=1e-4)


def test_tune_refuses_a_file_that_is_no_search(
    shell: Shell, ratings_file: Path, tmp_path: Path
) -> None:
    for junk in (b"not a database" * 99, b"SQLite format 3\0" + b"\1" * 5000):
        (tmp_path / "study.db").write_bytes(junk)
        done = shell("tune", ratings_file, "--out", tmp_path)
        assert done.code == 1
        assert "study.db: is not a search that can be resumed" in done.said
        assert "Traceback" not in done.err
        assert (tmp_path / "study.db").read_bytes() == junk


@pytest.mark.parametrize(
    "split", ['file:it"s.csv', "C:\\data\\new.csv", "tab\tand\nline", "users:0"]
)
def test_a_written_recipe_is_read_back(split: str, tmp_path: Path) -> None:
    from cfnade.cli.tune import write_recipe

    recipe = Recipe(
        "best",
        "item",
        {"hidden": (8, 6), "factors": 2, "shared": False},
        TrainingConfig(epochs=3, context_rate=(0.2, 0.9), patience=2),
        {"valid_rmse": 0.9, "split": split},
    )
    write_recipe(tmp_path / "best.toml", recipe)
    assert load_recipe(tmp_path / "best.toml") == recipe
