"""A model of what people pick, without ratings, asked at a shell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.inference.implicit_cases import picked_model

from cfnade.checkpoint import save
from cfnade.estimator import CFNADE

Shell = Any


@pytest.fixture
def model(tmp_path: Path) -> Path:
    save(picked_model(), tmp_path / "model")
    return tmp_path / "model"


def test_somebody_new_names_what_they_picked(shell: Shell, model: Path) -> None:
    listed = CFNADE.load(model).recommend(history=[3, 5], n=4)["item"].to_list()
    done = shell("recommend", model, "3", "5", "-n", "4", "--json")
    assert done.code == 0, done.err
    assert all(f'"item": {item}' in done.out for item in listed)


def test_explain_prints_the_effect_of_each_interaction(shell: Shell, model: Path) -> None:
    expected = CFNADE.load(model).explain(item=7, history=[3, 5])
    printed = shell("explain", model, "7", "3", "5").out
    for row in expected.to_dicts():
        assert f"{100 * row['prediction_without']:.3f} %" in printed
        assert f"{row['lift']:.2f}" in printed


def test_items_that_are_taken_up_again_are_evaluated_on_request(
    shell: Shell, model: Path, tmp_path: Path
) -> None:
    predictor, test = CFNADE.load(model), tmp_path / "test.csv"
    known = predictor.recommend([4], n=60, exclude_seen=False)["item"].to_list()
    new = predictor.recommend([4], n=60)["item"].to_list()
    again = next(item for item in known if item not in new)
    test.write_text(f"user,item\n4,{again}\n4,{new[0]}\n")
    refused = shell("evaluate", model, test)
    assert refused.code == 1
    assert "--include-seen" in refused.said
    done = shell("evaluate", model, test, "--ranking", "--include-seen", "--k", "60", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["ranking"]["by_k"]["60"]["recall"]["mean"] == 1
    without = shell("evaluate", model, test, "--max-users", "5", "--exclude-seen")
    assert without.code == 1


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["3=5"], "'3=5': this model has no ratings; give '3' alone"),
        (["999"], "'999' is not an item id, and this model knows no titles; give an id"),
        ([], "give one user: --user ID, --history FILE, or ITEM"),
        (
            ["3", "--balance", "0.3"],
            "--balance 0.3: concerns ratings, and this model was trained on interactions",
        ),
    ],
)
def test_what_makes_no_sense_without_ratings_is_refused(
    shell: Shell, model: Path, typed: list[str], said: str
) -> None:
    done = shell("recommend", model, *typed)
    assert done.code == 1
    assert said in done.said
