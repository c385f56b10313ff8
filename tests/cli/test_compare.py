"""`cfnade compare` at the shell."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from cfnade_baselines import compare as comparison
from cfnade_baselines.run_fit import run_fit

Shell = Any


@pytest.fixture(autouse=True)
def _fits_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """That each has one of its own is seen in tests/baselines; here it would only take time."""
    monkeypatch.setattr(comparison, "fit_in_process", run_fit)


def test_a_table_with_the_best_marked_and_figures_in_a_folder(
    shell: Shell, ratings_file: Path, tmp_path: Path
) -> None:
    arguments = ["compare", ratings_file, "--models", "global-mean,means", "--n-threads", "1"]
    arguments += ["--splits", "paper:0,paper:1", "--out", tmp_path / "out"]
    done = shell(*arguments)
    assert done.code == 0, done.err
    lines = [line.split() for line in done.out.splitlines()]
    assert " ".join(lines[0]) == "RMSE MAE of means NLL fit s fit CPU s predict s peak MB splits"
    figures = json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert [m["model"] for m in figures["models"]] == ["means", "global-mean"]
    rmse = figures["models"][0]["rmse"]
    assert lines[1][:4] == ["user", "and", "item", "means"]
    assert lines[1][4:7] == [f"{rmse['mean']:.4f}", "±", f"{rmse['std']:.4f}*"]
    assert "*" not in lines[2][2]
    assert figures["best"]["rmse"] == "means"
    assert "means on paper:1" in done.err
    again = shell(*arguments, "--json")
    assert json.loads(again.out)["models"] == figures["models"]  # seconds, too: nothing was done
    assert "means on paper:1" not in again.err


def test_a_picture_beside_the_figures(shell: Shell, ratings_file: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    done = shell("compare", ratings_file, "--models", "means", "--out", tmp_path, "--plot")
    assert done.code == 0, done.err
    assert "<svg" in (tmp_path / "comparison.svg").read_text()


def test_a_missing_library_is_a_line_and_not_the_end(
    shell: Shell, ratings_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "lenskit.als", None)
    done = shell("compare", ratings_file, "--models", "als,means")
    assert done.code == 0
    assert "als on paper:0: als needs lenskit" in done.said
    assert "user and item means" in done.out
    alone = shell("compare", ratings_file, "--models", "als")
    assert alone.code == 1
    assert "no model could be fitted" in alone.said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--models", "means,,"], "write names with commas between"),
        (["--models", "meens"], "unknown model 'meens'; did you mean 'means'?"),
        (["--splits", "paper:0,paper:0"], "each once"),
        (["--splits", ",paper:0"], "write names with commas"),
        (["--splits", "none:1"], "none"),
    ],
)
def test_wrong_arguments_are_one_line(
    shell: Shell, ratings_file: Path, arguments: list[str], message: str
) -> None:
    models = [] if "--models" in arguments else ["--models", "means"]
    done = shell("compare", ratings_file, *models, *arguments)
    assert done.code == 1
    assert message in done.said
    assert "Traceback" not in done.err


def test_a_picture_needs_matplotlib(
    shell: Shell, ratings_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    done = shell("compare", ratings_file, "--models", "means", "--plot")
    assert done.code == 1
    assert "pip install 'cfnade[plot]'" in done.said
