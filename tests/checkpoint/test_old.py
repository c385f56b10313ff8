"""Folders of versions 1 and 2 of the format still load, and say what they said.

tests/checkpoint/old was written by the last cfnade that wrote these versions: models of 12 users
and 9 items, each beside a JSON of what it predicted then.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cfnade import CFNADE
from cfnade.checkpoint import load, save
from cfnade.data.array_files import digest_text
from cfnade.exceptions import CheckpointError
from cfnade.predictor import Predictor

OLD = Path(__file__).parent / "old"
NAMES = sorted(path.stem for path in OLD.glob("*.json"))


def said(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((OLD / f"{name}.json").read_text())
    return content


def check(model: Predictor | CFNADE, then: dict[str, Any]) -> None:
    if "users" in then:
        stars = model.predict(then["users"], then["items"], times=then["times"])
        np.testing.assert_allclose(stars, then["predictions"], atol=2e-6)
    if "history" in then:
        asked = then["history"]
        history = dict(asked["rated"])
        stars = model.predict("new", asked["items"], histories={"new": history})
        np.testing.assert_allclose(stars, asked["predictions"], atol=2e-6)


def test_every_kind_is_there() -> None:
    kinds = ["both", "both-seeds", "both-time", "item", "user", "user-deep-factored"]
    assert [*kinds, "user-without-context"] == NAMES
    assert {said(name)["version"] for name in NAMES} == {1, 2}


@pytest.mark.parametrize("name", NAMES)
def test_an_old_folder_says_what_it_said(name: str, tmp_path: Path) -> None:
    then = said(name)
    written = json.loads((OLD / name / "model.json").read_text())
    assert written["version"] == then["version"]
    fitted = load(OLD / name)
    assert fitted.facts == written["facts"]
    assert fitted.side == written["side"]
    check(Predictor(fitted), then)
    save(fitted, tmp_path)  # and once more in the present version
    assert json.loads((tmp_path / "model.json").read_text())["version"] == 5
    check(Predictor.load(tmp_path), then)


@pytest.mark.parametrize("name", NAMES)
def test_the_estimator_takes_the_old_arguments(name: str) -> None:
    estimator = CFNADE.load(OLD / name)
    parts = name.split("-")
    assert estimator.side == parts[0]
    assert estimator.hidden == ((3, 3) if "deep" in parts else (3,))
    assert estimator.factors == (2 if "factored" in parts else None)
    assert (estimator.time, estimator.seeds) == ("time" in parts, 2 if "seeds" in parts else 1)
    assert (estimator.seed, estimator.epochs) == (3, 1)
    assert len(estimator.history_) == estimator.seeds


def forged(folder: Path, **changes: Any) -> None:
    """Change model.json and its own digest."""
    path = folder / "model.json"
    content = json.loads(path.read_text()) | changes
    content.pop("check")
    content["check"] = digest_text(json.dumps(content, sort_keys=True))
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architecture": {"members": 2, "of": {}}}, "does not describe a model"),
        ({"architecture": {"members": 10**9, "of": {}}}, "members"),
        ({"architecture": {"members": "3", "of": {}}}, "members"),
        ({"architecture": {"user": 3, "item": 4}}, "does not describe a model"),
        ({"architecture": [1]}, "does not describe a model"),
        ({"architecture": {}, "side": ["user"]}, "does not describe a model"),
        ({"side": "item"}, "id table has 12 columns, the model 9"),
    ],
)
def test_an_old_model_json_that_lies_is_refused(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    for name in ("user", "both") if "side" not in changes else ("user",):
        shutil.copytree(OLD / name, tmp_path / name)
        forged(tmp_path / name, **changes)
        with pytest.raises(CheckpointError, match=message) as caught:
            load(tmp_path / name)
        assert str(tmp_path / name) in str(caught.value)
