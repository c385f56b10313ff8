"""The source archive builds the wheel and runs its own tests."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PARTS = ("src", "tests", "docs", "examples", "benchmarks", "experiments")


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *map(str, command)],
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


@pytest.mark.slow
def test_the_archive_builds_and_tests_itself(tmp_path: Path) -> None:
    run("hatchling", "build", "-t", "sdist", "-d", tmp_path, cwd=ROOT)
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        file.extractall(tmp_path / "unpacked", filter="data")
    (folder,) = (tmp_path / "unpacked").iterdir()
    for part in PARTS:
        ours = {path.relative_to(ROOT) for path in (ROOT / part).rglob("*.py")}
        assert {one for one in ours if not (folder / one).is_file()} == set()
    for name in ("Makefile", "constraints.txt", "LICENSE", "pyproject.toml", "README.md"):
        assert (folder / name).is_file()
    for source, place in ((ROOT, "here"), (folder, "there")):
        run("hatchling", "build", "-t", "wheel", "-d", tmp_path / place, cwd=source)
    wheels = [next((tmp_path / place).glob("*.whl")) for place in ("here", "there")]
    here, there = ({*zipfile.ZipFile(wheel).namelist()} for wheel in wheels)
    assert here == there
    assert "cfnade/integrations/static_site/model.js" in there
    some = (
        "tests/utils/test_validation.py",
        "tests/utils/test_files.py",
        "tests/data/test_scale.py",
    )
    said = run("pytest", "-q", "-p", "no:cacheprovider", *some, cwd=folder, PYTHONPATH="src")
    assert " passed" in said
