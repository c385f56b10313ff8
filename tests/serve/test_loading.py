"""A model takes another's place, or says why not."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest

from cfnade import checkpoint
from cfnade.errors import CheckpointError
from cfnade.serve.loading import Models
from cfnade.serve.problems import Problem


@pytest.fixture
def folder(user_model: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(user_model, tmp_path / "model"))


def test_before_it_is_loaded_there_is_nothing_to_ask(folder: Path) -> None:
    with pytest.raises(Problem) as refused:
        Models(folder).current()
    assert refused.value.status_code == 503
    assert refused.value.headers == {"Retry-After": "1"}


def test_a_change_of_the_folder_is_seen_once(folder: Path, other_model: Path) -> None:
    models = Models(folder)
    models.load()
    before = models.current()
    assert not models.changed()
    checkpoint.save(checkpoint.load(other_model), folder)
    assert models.changed()
    assert models.reload()
    assert not models.changed()
    assert models.current() is not before
    assert models.current().fingerprint != before.fingerprint
    assert before.predictor.recommend(history={}, n=1).height == 1  # it still answers


def test_a_broken_model_leaves_the_old_one_and_is_tried_again(
    folder: Path, other_model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    models = Models(folder)
    models.load()
    before = models.current()
    # As a copy that is under way: the description is there, the weights are the old ones.
    shutil.copy(other_model / "model.json", folder / "model.json")
    with caplog.at_level(logging.ERROR, "cfnade.serve"):
        assert models.changed()
        assert not models.reload()
        assert not models.reload()
    assert models.current() is before
    assert len(caplog.records) == 1  # said once, not at every look
    assert "the old model goes on" in caplog.text
    assert "another save" in caplog.text
    assert models.changed()
    shutil.copytree(other_model, folder, dirs_exist_ok=True)
    assert models.reload()
    assert models.current() is not before


def test_the_first_load_fails_loudly(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"holds no model\.json"):
        Models(tmp_path).load()
