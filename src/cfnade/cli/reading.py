"""The options that say how a rating file is to be read, the same for every command."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from cfnade.cli.options import with_options

_PANEL = "How the file is read (recognised where not given)"


def _option(help: str, *names: str) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=_PANEL, show_default=False)


_OPTIONS: dict[str, Any] = {
    "user": Annotated[str | None, _option("Column of users: a name, or a position from 0.")],
    "item": Annotated[str | None, _option("Column of items.")],
    "rating": Annotated[str | None, _option("Column of ratings.")],
    "time": Annotated[str | None, _option("Column of timestamps.")],
    "separator": Annotated[str | None, _option('What separates columns, such as "," or "::".')],
    "header": Annotated[
        bool | None, _option("Whether the first line names the columns.", "--header/--no-header")
    ],
    "encoding": Annotated[
        str | None, _option("Text encoding, such as latin-1; UTF-8 if not given.")
    ],
    "scale": Annotated[str | None, _option('The rating scale, such as "1-5" or "0.5-5/0.5".')],
    "bins": Annotated[int | None, _option("Cut continuous ratings into this many levels.")],
    "repeats": Annotated[
        str | None, _option("Which counts of repeated ratings: first, last or mean.")
    ],
    "no_cache": Annotated[
        bool | None, _option("Parse the file even if it was parsed before.", "--no-cache")
    ],
}


def _arguments(given: dict[str, Any]) -> dict[str, Any]:
    """Arguments of load(): what was not given is left to it."""
    arguments = {name: value for name, value in given.items() if value is not None}
    if arguments.pop("no_cache", False):
        arguments["cache"] = False
    for name in ("user", "item", "rating", "time"):
        if str(arguments.get(name, "")).isdecimal():
            arguments[name] = int(arguments[name])
    return {"separator": "\t"} | arguments if given["separator"] == "\\t" else arguments


with_reading = with_options("reading", _OPTIONS, _arguments)
"""Gives a command these options; it gets them as `reading`, ready for load()."""

READING = frozenset(_OPTIONS) - {"no_cache"} | {"cache"}
"""The arguments of load() that they become."""
