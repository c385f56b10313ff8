"""Each example of another library runs and says what it promises."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("with_scikit_learn", r"(0\.\d+)"),
        ("with_surprise", r"RMSE (0\.\d+)"),
        ("with_cornac", r"(?:MF|NADE) +\| (0\.\d+)"),
        ("like_implicit", r"\d+"),
    ],
)
def test_an_example(
    name: str,
    pattern: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)  # where Cornac writes its log
    path = EXAMPLES / f"{name}.py"
    assert f"python examples/{name}.py" in path.read_text().split('"""')[1]
    runpy.run_path(str(path), run_name="__main__")
    printed = capsys.readouterr().out
    if name == "with_scikit_learn":
        scores = [float(number) for number in re.findall(pattern, printed.splitlines()[0])]
        assert len(scores) == 2
        assert min(scores) > 0.3  # a perfect model explains a little more than half
        assert "best: {'epochs': 4}" in printed
    elif name == "like_implicit":
        assert len(re.findall(pattern, printed.split("log chances")[0].split("[")[1])) == 5
        assert "like item 3: [3, " in printed
    else:  # the library's own model and ours
        baseline_rmse, rmse = map(float, re.findall(pattern, printed))
        assert rmse < baseline_rmse
