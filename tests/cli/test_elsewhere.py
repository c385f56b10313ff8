"""Commands of another package: found by an entry point, and missed in one sentence."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint, EntryPoints, PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from cfnade import cli
from cfnade.exceptions import CfnadeError

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


def entry(value: str, group: str = cli.GROUP) -> EntryPoint:
    return EntryPoint("compare", value, group)


def run(monkeypatch: pytest.MonkeyPatch, entries: list[EntryPoint] | None, *arguments: str) -> Any:
    """A command of an app whose distribution has these entry points, or is not installed."""

    def distribution(_: str) -> Any:
        if entries is None:
            raise PackageNotFoundError("cfnade")
        return SimpleNamespace(entry_points=EntryPoints(entries))

    monkeypatch.setattr(cli, "distribution", distribution)
    app = typer.Typer()
    app.command("other")(lambda: print("the other command"))
    cli.add_commands(app)
    return CliRunner().invoke(app, arguments)


def test_the_entry_point_that_is_installed_is_the_comparison() -> None:
    groups = tomllib.loads(PYPROJECT.read_text())["project"]["entry-points"]
    (name,) = groups[cli.GROUP]
    command = entry(groups[cli.GROUP][name]).load()
    assert (name, command.__module__) == ("compare", "cfnade_rivals.command")


def test_a_command_of_the_group_is_one_of_the_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [entry("platform:node"), entry("time:sleep", "console_scripts")]
    assert run(monkeypatch, entries, "compare").exit_code == 0


@pytest.mark.parametrize(
    "entries",
    [None, [], [entry("no_such_package:compare")], [entry("platform:no_such_command")]],
    ids=["not installed", "older", "without the package", "without the command"],
)
def test_a_missing_command_is_one_sentence_and_not_the_end_of_others(
    entries: list[EntryPoint] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for arguments in (["ml-1m", "--models", "means"], ["--help"], []):
        refused = run(monkeypatch, entries, "compare", *arguments).exception
        assert isinstance(refused, CfnadeError)
        assert str(refused).startswith("compare: this installation of cfnade lacks the command")
        assert "pip install" in str(refused)
    assert "the other command" in run(monkeypatch, entries, "other").output


def test_help_imports_nothing_of_the_comparison_but_its_command() -> None:
    code = "import sys; from cfnade.cli import main; sys.argv = ['cfnade', '--help']\n"
    code += "try: main()\nexcept SystemExit: pass\n"
    code += "print(*sorted(m for m in sys.modules if m.startswith('cfnade_rivals')))"
    environment = {**os.environ, "COLUMNS": "100"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True
    )
    assert done.stdout.splitlines()[-1] == "cfnade_rivals cfnade_rivals.command"
    assert "compare" in done.stdout
