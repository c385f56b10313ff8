"""Commands that another package brings, found by their entry points: nothing here imports it.

Only the entry points of this distribution are read: to look through all that is installed takes
some fifty times as long, whatever the command.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from importlib.metadata import EntryPoint, PackageNotFoundError, distribution
from typing import Any

import typer

from cfnade.cli.arguments import Command
from cfnade.errors import CfnadeError

GROUP = "cfnade.commands"
_EXPECTED = "compare"
_ANYTHING = {"allow_extra_args": True, "ignore_unknown_options": True}


@cache  # once for an app, however often it runs in this process
def add_commands(app: typer.Typer) -> None:
    """Add them; the one that every installation should have says so where it is missing."""
    commands = {entry.name: _loaded(entry) for entry in _entry_points()}
    for name, command in commands.items():
        if command is not None:
            app.command(name, cls=Command)(command)
    if commands.get(_EXPECTED) is None:
        app.command(_EXPECTED, context_settings=_ANYTHING, add_help_option=False, hidden=True)(
            _missing
        )


def _entry_points() -> Iterable[EntryPoint]:
    try:
        return distribution("cfnade").entry_points.select(group=GROUP)
    except PackageNotFoundError:  # the code was put on the path, not installed
        return ()


def _loaded(entry: EntryPoint) -> Callable[..., Any] | None:
    try:
        command: Callable[..., Any] = entry.load()
    except (ImportError, AttributeError):
        return None
    return command


def _missing() -> None:
    raise CfnadeError(
        f"{_EXPECTED}: this installation of cfnade lacks the command, as it is older than its "
        "code or not whole; install it again (in a clone: pip install --editable .)"
    )
