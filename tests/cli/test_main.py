"""What holds for every command: it can print anywhere, and says in a line what a machine lacks."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import typer

from cfnade.cli import app, main
from cfnade.cli.arguments import in_options

Shell = Any


def test_a_terminal_that_knows_ascii_only(
    user_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(screen, "ascii", "strict"))
    monkeypatch.setattr(sys, "argv", ["cfnade", "recommend", str(user_model), "--user", "7"])
    with pytest.raises(SystemExit) as ended:
        main()
    sys.stdout.flush()
    assert not ended.value.code
    assert b"user 7" in screen.getvalue()
    assert b"?" in screen.getvalue()  # in place of bars


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


def test_output_that_is_not_read_to_the_end_is_no_error(ratings_file: Path) -> None:
    command = f"{sys.executable} -m cfnade data info {ratings_file} --json | head -n 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    assert "Broken" not in done.stderr


def test_version(shell: Shell) -> None:
    assert shell("--version").out == "cfnade 0.2.0\n"


def test_commands_are_found_without_importing_what_they_need() -> None:
    code = "import sys; from cfnade.cli import main; sys.argv = ['cfnade', '--help']\n"
    code += "try: main()\nexcept SystemExit: pass\n"
    code += "print(sorted({m.split('.')[0] for m in sys.modules} & {'torch', 'numba', 'polars'}))"
    environment = {**os.environ, "COLUMNS": "100"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"
    for command in ("train", "evaluate", "predict", "recommend", "explain", "tune", "export"):
        assert command in done.stdout


# -- errors name options -------------------------------------------------------------------------

OPTIONS = {"n": "-n", "epochs": "--epochs", "side": "--side", "scale": "--scale", "bins": "--bins"}


@pytest.mark.parametrize(
    ("python", "shell"),
    [
        ("n (=0) must be at least 1", "-n (=0) must be at least 1"),
        ("setting epochs (=0) is wrong", "setting --epochs (=0) is wrong"),
        ("recipe own: side (='x') is wrong", "recipe own: side (='x') is wrong"),  # not typed
        ("scale= and bins= exclude each other", "--scale and --bins exclude each other"),
        ('train one with side="user" for that', "train one with --side user for that"),
        ("side='x': choose one", "--side x: choose one"),
        ("bin them with bins=10, or give scale=", "bin them with --bins 10, or give --scale"),
        ("bins=[1, 2]: give more", "bins=[1, 2]: give more"),
        ("calibration (=3) and q= stay", "calibration (=3) and q= stay"),
        ("/data/n=3/side=1/x.csv: 'n=5' stays", "/data/n=3/side=1/x.csv: 'n=5' stays"),
    ],
)
def test_arguments_become_options(python: str, shell: str) -> None:
    assert in_options(python, OPTIONS, typed=["n", "epochs"]) == shell


def test_an_argument_is_the_same_option_in_every_command() -> None:
    """What an error of one command advises may be an option of another."""
    names: dict[str, set[str]] = {}

    def look(command: Any) -> None:
        for parameter in command.params:
            if parameter.param_type_name == "option":
                names.setdefault(parameter.name, set()).add(parameter.opts[0])
        for below in getattr(command, "commands", {}).values():
            look(below)

    look(typer.main.get_command(app))
    assert {name: options for name, options in names.items() if len(options) > 1} == {}
    assert names["ordinal_weight"] == {"--ordinal-weight"}
    assert names["n"] == {"-n"}
