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
    made = CFNADE(side="user", ridge=0, hidden=(4,), epochs=1, threads=1)
    made.fit(synthetic(30, 20, 300, seed=3).ratings).save(folder)
    return folder


def test_a_page_and_a_graph_are_written(shell: Shell, model: Path, tmp_path: Path) -> None:
    done = shell("export", model, "--web", tmp_path / "site")
    assert done.code == 0
    assert "a page with 20 items" in done.out
    files = [path for path in (tmp_path / "site").rglob("*") if path.is_file()]
    whole = sum(path.stat().st_size for path in files)
    assert f"{whole / 1e6:.2f} MB in all" in done.out
    done = shell("export", model, "--onnx", tmp_path / "model.onnx")
    assert done.code == 0
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    assert [one.name for one in session.get_outputs()] == ["chances", "expected"]


def test_what_to_write_must_be_said_once(shell: Shell, model: Path, tmp_path: Path) -> None:
    for given in ([], [tmp_path / "a.csv", "--web", tmp_path / "site"]):
        done = shell("export", model, *given)
        assert done.code == 1
        assert "say what to write: a .parquet or .csv FILE, or --onnx FILE, or --web" in done.said
    assert not list(tmp_path.iterdir())


def test_the_page_is_told_what_items_are(shell: Shell, model: Path, tmp_path: Path) -> None:
    assert shell("export", model, "--web", tmp_path / "site", "--item-name", "Book").code == 0
    assert json.loads((tmp_path / "site" / "model.json").read_text())["noun"] == "book"
    for wrong, said in ((["--web", tmp_path / "b", "--item-name", "b2"], "no word"), ([], "--web")):
        done = shell("export", model, *(wrong or [tmp_path / "a.csv", "--item-name", "book"]))
        assert done.code == 1
        assert said in done.said
    assert not (tmp_path / "b").exists()


def test_a_file_is_no_place_for_a_page(shell: Shell, model: Path, tmp_path: Path) -> None:
    (tmp_path / "site").write_text("mine")
    done = shell("export", model, "--web", tmp_path / "site")
    assert done.code == 1
    assert "is no folder" in done.said
    assert (tmp_path / "site").read_text() == "mine"


def test_a_refusal_names_the_option_once(shell: Shell, tmp_path: Path) -> None:
    made = CFNADE(side="item", hidden=(4,), epochs=1, threads=1)
    made.fit(synthetic(30, 20, 300, seed=3).ratings).save(tmp_path / "items")
    done = shell("export", tmp_path / "items", "--web", tmp_path / "site")
    assert done.code == 1
    assert done.said.count("--side user") == 1
    assert 'side="user"' not in done.said
