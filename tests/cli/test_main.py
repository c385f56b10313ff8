"""What holds for every command: it can print anywhere, and says in a line what a machine lacks."""

from __future__ import annotations

import io
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import typer

import cfnade
from cfnade.cli import app, main
from cfnade.cli.options import LoadArguments, RankingArguments, TrainingArguments
from cfnade.cli.runner import command_line_option
from cfnade.config import TrainingConfig
from cfnade.data.load import LoadOptions
from cfnade.inference.ranking_options import RankingOptions

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
    assert shell("--version").out == f"cfnade {cfnade.__version__}\n"


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


# -- options --------------------------------------------------------------------------------------


def parameters(command: Any, path: str = "cfnade") -> Iterator[tuple[str, Any]]:
    """Every parameter with the command that it belongs to."""
    for parameter in command.params:
        yield path, parameter
    for name, below in getattr(command, "commands", {}).items():
        yield from parameters(below, f"{path} {name}")


def test_an_option_is_the_python_parameter_with_hyphens() -> None:
    singular = {"candidate_items": "candidate_item", "exclude_items": "exclude_item"}
    singular |= {"genres": "genre", "as_json": "json", "n": "-n", "cache": "no_cache"}
    for command, parameter in parameters(typer.main.get_command(app)):
        if parameter.param_type_name == "option" and parameter.name != "help":
            name = singular.get(parameter.name, parameter.name).replace("_", "-")
            expected = name if name.startswith("-") else f"--{name}"
            assert expected in [*parameter.opts, *parameter.secondary_opts], command


def test_groups_of_options_are_the_fields_of_option_classes() -> None:
    load = {*LoadOptions.__dataclass_fields__, "item_features", "cache", "no_time", "no_weight"}
    assert set(LoadArguments.__annotations__) == load
    ranking = {*RankingOptions.__dataclass_fields__} - {"n"}
    assert set(RankingArguments.__annotations__) == ranking
    assert set(TrainingArguments.__annotations__) <= {*TrainingConfig.__dataclass_fields__}


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ("--separator", {"train", "data info", "data convert", "data shard"}),
        ("--metric", {"train"}),  # several processes search no interaction model
    ],
)
def test_options_are_only_where_they_have_an_effect(option: str, expected: set[str]) -> None:
    commands = {
        command
        for command, parameter in parameters(typer.main.get_command(app))
        if option in parameter.opts
    }
    assert commands == {f"cfnade {name}" for name in expected}


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("min_rating", 3, "--min-rating 3"),
        ("scale", None, "--scale"),
        ("implicit", True, "--implicit"),
        ("time", False, "--no-time"),
        ("candidate_items", None, "--candidate-item"),
        ("rating", "my rating", "--rating 'my rating'"),
    ],
)
def test_messages_of_the_library_name_options(name: str, value: object, shown: str) -> None:
    assert command_line_option(name, value) == shown


def test_an_error_about_a_value_names_the_option_that_was_given(
    shell: Shell, ratings_file: Path, tmp_path: Path
) -> None:
    (tmp_path / "own.toml").write_text("[training]\nlearning_rate = -1\n")
    arguments = ["train", ratings_file, "--out", tmp_path / "out"]
    done = shell(*arguments, "--learning-rate", "-1")
    assert done.err == "error: --learning-rate -1.0: must be a number above 0\n"
    done = shell(*arguments, "--recipe", tmp_path / "own.toml")
    assert "recipe own: training setting learning_rate (=-1) must be a number above 0" in done.err


# -- help -----------------------------------------------------------------------------------------


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for name, below in getattr(command, "commands", {}).items():
        yield from commands(below, (*path, name))


PATHS = [("compare",), *commands(typer.main.get_command(app))]


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("path", PATHS, ids=" ".join)
def test_every_help_page_has_one_line_for_each_option_and_examples(
    shell: Shell, path: tuple[str, ...], columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    page = shell(*path, "--help").out
    assert f"Usage: {' '.join(['cfnade', *path])}" in page
    assert page.splitlines()[0].endswith(".")
    assert max(map(len, page.splitlines())) < columns
    body, _, examples = page.partition("\nExamples:\n")
    rows = [line for line in body.splitlines() if line.startswith("  ")]
    assert rows
    assert not [row for row in rows if row.startswith("    ")]  # no description has a second line
    assert examples


@pytest.mark.parametrize("path", PATHS, ids=" ".join)
def test_every_example_is_a_valid_command(shell: Shell, path: tuple[str, ...]) -> None:
    examples = shell(*path, "--help").out.partition("\nExamples:\n")[2].strip().splitlines()
    for example in examples:
        words = shlex.split(example)
        words = words[words.index("cfnade") + 1 :]
        command: Any = typer.main.get_command(app)
        while hasattr(command, "commands"):
            command = command.commands[words.pop(0)]
        command.make_context(command.name, words)  # parses, and does not run
