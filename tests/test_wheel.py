"""The built wheel, in an environment that has nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def test_the_wheel_works_in_an_empty_environment(tmp_path: Path) -> None:
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path, cwd=ROOT)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "cfnade/py.typed" in names
    assert "cfnade/recipes/default.toml" in names
    assert "cfnade_baselines/presets/rating.toml" in names
    run(sys.executable, "-m", "venv", tmp_path / "env", cwd=tmp_path)
    python = tmp_path / "env" / "bin" / "python"
    constraints = ROOT / "constraints.txt"
    run(python, "-m", "pip", "install", "-q", "-c", constraints, wheel, cwd=tmp_path)
    assert "No broken requirements" in run(python, "-m", "pip", "check", cwd=tmp_path)
    rows = "".join(f"{u},{i},{1 + (u * i) % 5}\n" for u in range(30) for i in range(20))
    (tmp_path / "own.csv").write_text("user,item,rating\n" + rows)
    command = tmp_path / "env" / "bin" / "cfnade"
    options = ("--hidden", "8", "--epochs", "2", "--out", "model")
    run(command, "train", "own.csv", *options, cwd=tmp_path)
    scores = json.loads(run(command, "evaluate", "model", "--json", cwd=tmp_path))
    assert 0 < scores["rmse"] < 4
    assert len(json.loads(run(command, "recommend", "model", "3=5", "--json", cwd=tmp_path))) == 10
    figures = run(command, "compare", "own.csv", "--models", "means", "--json", cwd=tmp_path)
    assert "mae_of_means" in figures
