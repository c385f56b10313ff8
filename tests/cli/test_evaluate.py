"""`cfnade evaluate` at a shell: ratings and lists."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.close import assert_close

from cfnade import load_split
from cfnade.checkpoint import load
from cfnade.evaluation.evaluate import evaluate, evaluate_ranking
from cfnade.inference.predictor import Predictor

Shell = Any


def test_evaluate_scores_the_test_part_of_its_own_split(
    shell: Shell, user_model: Path, ratings_file: Path
) -> None:
    scores = evaluate(load(user_model), load_split(ratings_file, "paper:0").test)
    done = shell("evaluate", user_model, "--json")
    assert done.code == 0
    figures = json.loads(done.out)
    for name in ("rmse", "mae_of_medians", "nll", "nll_raw", "calibration_error", "rps"):
        assert figures[name] == getattr(scores, name)
    text = shell("evaluate", user_model)
    assert f"{scores.rmse:.4f}" in text.out
    assert "test part of" in text.out


def test_evaluate_scores_given_ratings(shell: Shell, item_model: Path, tmp_path: Path) -> None:
    path = tmp_path / "new.csv"
    path.write_text("user,item,rating\n1000,3,4\n1001,99,2\n")
    done = shell("evaluate", item_model, path, "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["n"] == 2
    assert json.loads(done.out)["unseen_ratings"] == 2


def test_lists_are_scored_if_asked_for(shell: Shell, user_model: Path, ratings_file: Path) -> None:
    test = load_split(ratings_file, "paper:0").test
    expected = evaluate_ranking(
        Predictor.load(user_model), test, k=(2, 5), threshold=3, max_users=20
    )
    options = ("--ranking", "--k", "2, 5", "--threshold", "3", "--max-users", "20")
    done = shell("evaluate", user_model, *options, "--json")
    assert done.code == 0, done.err
    figures = json.loads(done.out)
    assert_close(figures["ranking"], json.loads(json.dumps(expected.as_dict())))
    assert "ranking" not in json.loads(shell("evaluate", user_model, "--json").out)
    text = shell("evaluate", user_model, *options).out
    assert "recommendations for 20 users, relevant from 3" in text
    for k in (2, 5):
        assert f"@{k}" in text
        for name, found in expected.by_k[k].items():
            assert f"{found.mean:.4f} ± {found.error:.4f}" in text, name
