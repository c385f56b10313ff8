"""What holds for every command: it can print anywhere, and says in a line what a machine lacks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

Shell = Any


def test_a_terminal_that_knows_ascii_only(user_model: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii:strict", "PYTHONUTF8": "0"}
    done = subprocess.run(
        [sys.executable, "-m", "cfnade", "recommend", user_model, "--user", "7"],
        capture_output=True, env=environment, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert b"user 7" in done.stdout
    assert b"?" in done.stdout  # in place of bars
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GB"), "out of memory; "),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 bytes"), "out of memory; "),
        (RuntimeError("CUDA error: no kernel image\nmore"), "failed: CUDA error: no kernel image"),
        (MemoryError(), "out of memory; "),
    ],
)
def test_what_the_machine_lacks_is_one_line(
    error: Exception,
    message: str,
    shell: Shell,
    user_model: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("cfnade.checkpoint.load", raising(error))
    done = shell("evaluate", user_model)
    assert done.code == 1
    assert message in done.said
    assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize("error", [RuntimeError("shapes differ"), RecursionError(), KeyError("x")])
def test_a_bug_is_not_hidden(
    error: Exception, user_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cfnade.cli import main

    monkeypatch.setattr("cfnade.checkpoint.load", raising(error))
    monkeypatch.setattr(sys, "argv", ["cfnade", "evaluate", str(user_model)])
    with pytest.raises(type(error)):
        main()


def test_a_real_lack_of_memory(shell: Shell, user_model: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("cfnade.checkpoint.load", lambda _: torch.empty(2**50))
    assert "out of memory" in shell("evaluate", user_model).said


def raising(error: Exception) -> Any:
    def fail(*_: Any) -> None:
        raise error

    return fail
