"""`cfnade export`: the model itself, and what cannot be written."""

from __future__ import annotations

import json
from pathlib import Path

import onnxruntime
import pytest
from tests.cli.conftest import Shell

from cfnade import CFNADE, synthetic


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    made = CFNADE(side="user", ridge=0, hidden=(4,), epochs=1, n_threads=1)
    made.fit(synthetic(30, 20, 300, seed=3).ratings).save(folder)
    return folder


def test_a_page_is_written(shell: Shell, model: Path, tmp_path: Path) -> None:
    done = shell("export", "site", model, tmp_path / "site")
    assert done.code == 0
    assert "a page with 20 items" in done.out
    files = [path for path in (tmp_path / "site").rglob("*") if path.is_file()]
    whole = sum(path.stat().st_size for path in files)
    assert f"{whole / 1e6:.2f} MB in total" in done.out


def test_a_graph_is_written(shell: Shell, model: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    done = shell("export", "onnx", model, tmp_path / "model.onnx")
    assert done.code == 0
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    assert [one.name for one in session.get_outputs()] == ["probabilities", "prediction"]


def test_the_page_is_told_what_items_are(shell: Shell, model: Path, tmp_path: Path) -> None:
    assert shell("export", "site", model, tmp_path / "site", "--item-name", "Book").code == 0
    assert json.loads((tmp_path / "site" / "model.json").read_text())["item_name"] == "book"
    done = shell("export", "site", model, tmp_path / "b", "--item-name", "b2")
    assert done.code == 1
    assert "no word" in done.said
    assert not (tmp_path / "b").exists()


def test_a_model_is_not_overwritten_by_a_page(shell: Shell, model: Path) -> None:
    before = {path: path.read_bytes() for path in model.iterdir()}
    done = shell("export", "site", model, model)
    assert (done.code, "is the folder of a saved model" in done.said) == (1, True)
    assert {path: path.read_bytes() for path in model.iterdir()} == before


def test_a_refusal_names_the_option_once(shell: Shell, tmp_path: Path) -> None:
    made = CFNADE(side="item", hidden=(4,), epochs=1, n_threads=1)
    made.fit(synthetic(30, 20, 300, seed=3).ratings).save(tmp_path / "items")
    done = shell("export", "site", tmp_path / "items", tmp_path / "site")
    assert done.code == 1
    assert done.said.count("--side user") == 1
    assert 'side="user"' not in done.said
