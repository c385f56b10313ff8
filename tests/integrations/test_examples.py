"""Each example of another library runs and says what it promises."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def said_by(name: str, capsys: pytest.CaptureFixture[str]) -> str:
    path = EXAMPLES / f"{name}.py"
    assert f"python examples/{name}.py" in path.read_text().split('"""')[1]
    runpy.run_path(str(path), run_name="__main__")
    return capsys.readouterr().out


def test_scikit_learn(capsys: pytest.CaptureFixture[str]) -> None:
    said = said_by("with_scikit_learn", capsys)
    scores = [float(one) for one in re.findall(r"0\.\d+", said.splitlines()[0])]
    assert len(scores) == 2
    assert min(scores) > 0.3  # the best that there is explains a little more than half
    assert "best: {'epochs': 4}" in said


def test_surprise(capsys: pytest.CaptureFixture[str]) -> None:
    said = said_by("with_surprise", capsys)
    theirs, ours = (float(one) for one in re.findall(r"RMSE (0\.\d+)", said))
    assert ours < theirs


def test_cornac(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where Cornac writes its log
    said = said_by("with_cornac", capsys)
    theirs, ours = (float(one) for one in re.findall(r"(?:MF|NADE) +\| (0\.\d+)", said))
    assert ours < theirs


def test_implicit(capsys: pytest.CaptureFixture[str]) -> None:
    said = said_by("like_implicit", capsys)
    assert len(re.findall(r"\d+", said.split("log chances")[0].split("[")[1])) == 5
    assert "like item 3: [3, " in said
