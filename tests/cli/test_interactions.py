"""A model of what people pick, without ratings, asked at a shell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.inference.implicit_cases import picked_model

from cfnade.checkpoint import save
from cfnade.inference.predictor import Predictor

Shell = Any


@pytest.fixture
def model(tmp_path: Path) -> Path:
    save(picked_model(), tmp_path / "model")
    return tmp_path / "model"


def test_somebody_new_names_what_they_picked(shell: Shell, model: Path) -> None:
    listed = Predictor.load(model).recommend(history=[3, 5], n=4)["item"].to_list()
    done = shell("recommend", model, "3", "5", "-n", "4", "--json")
    assert done.code == 0, done.err
    assert all(f'"item": {item}' in done.out for item in listed)


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["3=5"], "'3=5': this model has no ratings; give '3' alone"),
        (["999"], "'999' is not an item id, and this model knows no titles; give an id"),
        ([], "give one user: --user ID, --history FILE, or ITEM"),
        (["3", "--balance", "0.3"], "this model knows no ratings; leave it out"),
    ],
)
def test_what_makes_no_sense_without_ratings_is_refused(
    shell: Shell, model: Path, typed: list[str], said: str
) -> None:
    done = shell("recommend", model, *typed)
    assert done.code == 1
    assert said in done.said
