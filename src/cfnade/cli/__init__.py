"""The command line: one module per command, which parses options, calls the library and prints.

Modules of commands import the library inside functions, so that help pages are fast.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, NoReturn

import typer

from cfnade import __version__
from cfnade.cli import (
    batch,
    data,
    doctor,
    evaluate,
    explain,
    export,
    predict,
    recommend,
    refresh,
    serve,
    similar,
    store,
    train,
    train_distributed,
    tune,
)
from cfnade.cli.command import Command, Group
from cfnade.cli.runner import run


class _Root(Group):
    def list_commands(self, ctx: Any) -> list[str]:
        order = [name for commands in _GROUPS.values() for name, _ in commands]
        return sorted(super().list_commands(ctx), key=[*order, "compare"].index)


app = typer.Typer(
    cls=_Root,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    help="""Predict ratings with their probabilities, and recommend items.

    \b
      cfnade train ratings.csv --out model
      cfnade recommend model --user 42
      cfnade serve model
    """,
)
_GROUPS: dict[str, list[tuple[str, Any]]] = {
    "Train": [
        ("data", data.app),
        ("train", train.train),
        ("train-distributed", train_distributed.train_distributed),
        ("tune", tune.tune),
        ("evaluate", evaluate.evaluate),
    ],
    "Use a model": [
        ("predict", predict.predict),
        ("recommend", recommend.recommend),
        ("explain", explain.explain),
        ("similar", similar.similar),
        ("batch", batch.app),
        ("export", export.app),
    ],
    "Operate a service": [
        ("serve", serve.serve),
        ("store", store.app),
        ("refresh", refresh.refresh),
        ("rollback", refresh.rollback),
    ],
    "Other": [("doctor", doctor.doctor)],
}


def _register(title: str, name: str, command: Any) -> None:
    if isinstance(command, typer.Typer):
        app.add_typer(command, name=name, rich_help_panel=title)
    else:
        app.command(name, cls=Command, rich_help_panel=title)(command)


for _title, _commands in _GROUPS.items():
    for _name, _command in _commands:
        _register(_title, _name, _command)


def _print_version(value: bool) -> None:
    if value:
        print(f"cfnade {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    pass


def main() -> NoReturn:
    """Run the command in sys.argv."""
    _register_compare()
    run(app)


@cache
def _register_compare() -> None:
    """Add the command of the package of baselines, which imports this package."""
    from cfnade_baselines.cli import compare

    _register("Other", "compare", compare)
