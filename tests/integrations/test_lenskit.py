"""LensKit's own tests of components pass."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import cfnade

HERE = Path(__file__).parent


def run_python(folder: Path, *arguments: str) -> str:
    """Return what Python prints in a folder."""
    pytest.importorskip("lenskit")
    source = {"PYTHONPATH": str(Path(cfnade.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=os.environ | source,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow
@pytest.mark.realdata
@pytest.mark.timeout(1800)
def test_lenskits_own_kit(real_data: Path, tmp_path: Path) -> None:
    """Its fixtures read these two sets from a folder beside the tests."""
    (tmp_path / "data").mkdir()
    zipfile.ZipFile(real_data / "ml-latest-small.zip").extractall(tmp_path / "data")
    shutil.copy(real_data / "ml-100k.zip", tmp_path / "data")
    shutil.copy(HERE / "lenskit_kit.py", tmp_path)
    printed = run_python(tmp_path, "-m", "pytest", "lenskit_kit.py", "-q", "-rs", "-W", "ignore")
    print(printed)
    assert re.search(r"\d+ passed, 1 skipped", printed)
    assert "expected nDCG not defined" in printed  # it predicts ratings


@pytest.mark.slow
def test_the_example(tmp_path: Path) -> None:
    printed = run_python(tmp_path, str(HERE.parents[1] / "examples" / "with_lenskit.py"))
    assert "3 for somebody new" in printed
