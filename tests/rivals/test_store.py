"""Saved models: whole or refused, and never code."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from cfnade.data.synthetic import synthetic
from cfnade.errors import CheckpointError
from cfnade.rivals.means import Means
from cfnade.rivals.store import ARRAYS, FACTS, load, save


def means(seed: int = 1) -> Means:
    ratings = synthetic(20, 10, 80, seed=seed).ratings
    model = Means(item_shrinkage=2.0)
    model.fit(ratings, ratings.select(np.arange(0)))
    return model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save(means(), tmp_path / "model")
    return tmp_path / "model"


def test_the_folder_can_be_read_by_a_person(folder: Path) -> None:
    facts = json.loads((folder / FACTS).read_text())
    assert facts["model"] == "means"
    assert facts["options"] == {"of": "both", "item_shrinkage": 2.0, "user_shrinkage": 5.0}
    assert facts["arrays"]["users"] == "float64 [20]"
    assert sorted(path.name for path in folder.iterdir()) == [FACTS, ARRAYS]


def test_a_model_takes_the_place_of_another_and_other_files_stay(folder: Path) -> None:
    (folder / "notes.txt").write_text("mine")
    other = means(seed=2)
    save(other, folder)
    cells = np.arange(10), np.arange(10)
    assert load(folder).predict(*cells).tobytes() == other.predict(*cells).tobytes()
    assert (folder / "notes.txt").read_text() == "mine"


def test_a_save_that_fails_leaves_the_earlier_model(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def full(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("cfnade.rivals.store.save_file", full)
    with pytest.raises(CheckpointError, match=r"could not be saved \(no space left\)"):
        save(means(seed=2), folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def _edit(name: str, value: object) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        facts = json.loads((folder / FACTS).read_text())
        (folder / FACTS).write_text(json.dumps(facts | {name: value}))

    return edit


def _shorter(folder: Path) -> None:
    arrays = load_file(folder / ARRAYS)
    arrays["mean"] = np.zeros(2)
    save_file(arrays, folder / ARRAYS)


def _shorter_and_listed(folder: Path) -> None:
    _shorter(folder)
    listed = json.loads((folder / FACTS).read_text())["arrays"] | {"mean": "float64 [2]"}
    _edit("arrays", listed)(folder)


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "no facts": (lambda f: (f / FACTS).unlink(), "there is no such file"),
    "no arrays": (lambda f: (f / ARRAYS).unlink(), "is missing"),
    "not JSON": (lambda f: (f / FACTS).write_text("{"), "cannot be read"),
    "a list": (lambda f: (f / FACTS).write_text("[]"), "is not a saved model of the format"),
    "another format": (_edit("format", "other 9"), "is not a saved model of the format"),
    "an unknown model": (_edit("model", "oracle"), "unknown model 'oracle'"),
    "a wrong option": (_edit("options", {"of": "film"}), "must be one of global"),
    "an unknown option": (_edit("options", {"colour": 1}), "colour"),
    "options that are none": (_edit("options", [1]), r"options \(=\[1\]\) is damaged"),
    "an adapter": (_edit("model", "biasmf"), "cannot be|unexpected keyword"),
    "cut arrays": (lambda f: (f / ARRAYS).write_bytes(b"\x09" * 40), "is no safetensors file"),
    "other arrays": (_shorter, "but rival.json lists"),
    "arrays that do not fit": (_shorter_and_listed, r"'mean' is float64 of shape \(2,\)"),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_a_damaged_folder_is_one_clear_error(folder: Path, what: str) -> None:
    damage, message = DAMAGE[what]
    damage(folder)
    with pytest.raises(CheckpointError, match=message):
        load(folder)


def test_foreign_files_are_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / ARRAYS).write_bytes(b"mine")
    with pytest.raises(CheckpointError, match=r"no rival\.json, so it is not a saved model"):
        save(means(), tmp_path)
    (tmp_path / FACTS).write_text('{"format": "of something else"}')
    with pytest.raises(CheckpointError, match="is not a saved model of the format"):
        save(means(), tmp_path)
    assert (tmp_path / ARRAYS).read_bytes() == b"mine"
