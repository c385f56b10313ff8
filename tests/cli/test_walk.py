"""Training a model passes few modules and functions, so that a reader can follow it."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from tests.cli.conftest import Shell

import cfnade

ROOT = str(Path(cfnade.__file__).parent)
MAX_MODULES, MAX_FUNCTIONS = 74, 583
"""Lower them when a change makes it possible; the aim is 60 and 350."""


def test_training_takes_a_short_walk(shell: Shell, ratings_file: Path, tmp_path: Path) -> None:
    arguments = ["--side", "user", "--ridge", "0", "--epochs", "2"]
    shell("train", ratings_file, "--out", tmp_path / "first", *arguments)  # compiles
    entered = set[CodeType]()

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(ROOT) and code.co_name[0] != "<":
            entered.add(code)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        done = shell("train", ratings_file, "--out", tmp_path / "model", *arguments)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    assert done.code == 0, done
    modules = sorted({code.co_filename.removeprefix(ROOT) for code in entered})
    assert len(modules) <= MAX_MODULES, modules
    assert len(entered) <= MAX_FUNCTIONS, len(entered)
    assert len(modules) > 40  # the walk was seen
