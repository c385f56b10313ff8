"""The wheel works in an environment of its own; the source archive builds the same wheel."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("src", "tests", "docs", "examples", "benchmarks", "experiments")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        [*map(str, command)],
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def build(kind: str, out: Path, source: Path = ROOT) -> Path:
    """Build the wheel or the source archive."""
    run(sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", out, cwd=source)
    (built,) = out.iterdir()
    return built


def test_the_wheel_works_in_an_empty_environment(tmp_path: Path) -> None:
    wheel = build("wheel", tmp_path / "dist")
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

    def cfnade(*arguments: str) -> str:
        return run(command, *arguments, cwd=tmp_path, PYTHONPATH="")

    cfnade("train", "own.csv", "--hidden", "8", "--epochs", "2", "--out", "model")
    assert 0 < json.loads(cfnade("evaluate", "model", "--json"))["rmse"] < 4
    assert len(json.loads(cfnade("recommend", "model", "3=5", "--json"))) == 10
    assert "mae_of_means" in cfnade("compare", "own.csv", "--models", "means", "--json")


def test_the_archive_builds_the_same_wheel_and_runs_its_tests(tmp_path: Path) -> None:
    archive = build("sdist", tmp_path / "dist")
    with tarfile.open(archive) as file:
        file.extractall(tmp_path / "unpacked", filter="data")
    (folder,) = (tmp_path / "unpacked").iterdir()
    tracked = {path.relative_to(ROOT) for name in FOLDERS for path in (ROOT / name).rglob("*.py")}
    assert {path for path in tracked if not (folder / path).is_file()} == set()
    for name in ("Makefile", "constraints.txt", "LICENSE", "pyproject.toml", "README.md"):
        assert (folder / name).is_file()
    ours, theirs = (
        {*zipfile.ZipFile(build("wheel", tmp_path / source.name, source)).namelist()}
        for source in (ROOT, folder)
    )
    assert ours == theirs
    assert "cfnade/integrations/static_site/model.js" in theirs
    tests = ("tests/utils", "tests/data/test_scale.py")
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests)
    assert " passed" in run(*command, cwd=folder, PYTHONPATH="src")
