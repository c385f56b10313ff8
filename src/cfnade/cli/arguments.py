"""What commands take: arguments that several share, and errors that name options."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from cfnade.exceptions import CfnadeError, DataError

Model = Annotated[Path, typer.Argument(help="The folder of a saved model.", metavar="MODEL")]
RATINGS = (
    "Ratings: a file, a folder, a data set's name, an address, store:ADDRESS, or - for standard "
    "input."
)
Data = Annotated[str, typer.Argument(help=RATINGS)]
Json = Annotated[bool, typer.Option("--json", help="Print figures for a machine.")]


# -- errors --------------------------------------------------------------------------------------


class Command(TyperCommand):
    """A command whose errors name options where the library names arguments."""

    # Typer has its own click or the library of that name, by its version: nothing of it is named.
    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except CfnadeError as error:
            sources = {name: ctx.get_parameter_source(name) for name in ctx.params}
            typed = [name for name, of in sources.items() if of and of.name == "COMMANDLINE"]
            options = dict(_options(ctx.find_root().command)) | dict(_options(self))
            raise CfnadeError(in_options(str(error), options, typed)) from error


def in_options(message: str, options: Mapping[str, str], typed: Collection[str]) -> str:
    """`n (=0)` as `-n (=0)` if it was typed, for it may be a recipe's; `side="user"` as `--side
    user` in any case, for it says what to do.
    """

    def of_value(argument: re.Match[str]) -> str:
        return options[argument[1]] if argument[1] in typed else argument[1]

    def of_advice(argument: re.Match[str]) -> str:
        if argument["name"] not in options:
            return argument[0]
        if argument["flag"]:
            option = options[argument["name"]]
            return option if argument["flag"] == "True" else "--no-" + option.removeprefix("--")
        value = argument["text"] or argument["number"]
        return options[argument["name"]] + (f" {value}" if value else "")

    return _ADVICE.sub(of_advice, _VALUE.sub(of_value, message))


_OUTSIDE = r"(?<![\w'\"./-])"  # of paths and of what was typed, which stay as they are
_VALUE = re.compile(_OUTSIDE + r"([a-z_]+)(?= \(=)")
_ADVICE = re.compile(
    _OUTSIDE + r"(?P<name>[a-z_]+)="
    r"(?:(['\"])(?P<text>[^\s'\"]+)\2|(?P<flag>True|False)|(?P<number>\d+(?:\.\d+)?)"
    r"|(?=[\s,;.)]|$))"
)


def _options(command: Any) -> Iterator[tuple[str, str]]:
    """The parameters of a command and of those below it, and what they are called at a shell."""
    for parameter in command.params:
        if parameter.param_type_name == "option":
            yield parameter.name, parameter.opts[0]
        else:
            yield parameter.name, parameter.metavar or parameter.name.upper()
    for below in getattr(command, "commands", {}).values():
        yield from _options(below)


# -- groups of options ---------------------------------------------------------------------------

Function = Callable[..., None]


def panel(title: str) -> Callable[..., Any]:
    """Makes options that stand together in the help."""

    def option(help: str, *names: str) -> Any:
        return typer.Option(*names, help=help, rich_help_panel=title, show_default=False)

    return option


def with_options(
    into: str, options: dict[str, Any], gather: Callable[[dict[str, Any]], dict[str, Any]] = dict
) -> Callable[[Function], Function]:
    """Give a command these options in place of its keyword `into`, as which it gets their values.

    They are None where not given.
    """
    declared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in options.items()
    ]

    def decorate(command: Function) -> Function:
        @wraps(command)
        def wrapped(**arguments: Any) -> None:
            values = {name: arguments.pop(name, None) for name in options}
            command(**arguments, **{into: gather(values)})

        own = inspect.signature(command, eval_str=True)
        parameters: list[inspect.Parameter] = []
        for parameter in own.parameters.values():
            parameters += declared if parameter.name == into else [parameter]
        wrapped.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        wrapped.__annotations__ = {p.name: p.annotation for p in parameters}
        return wrapped

    return decorate


# -- what runs a large job ------------------------------------------------------------------------

_running = panel("Large jobs")
_RUNNING: dict[str, Any] = {
    "engine": Annotated[
        str | None,
        _running(r"What runs it: local, ray (cfnade\[ray]) or spark (cfnade\[spark])."),
    ],
    "workers": Annotated[
        int | None,
        _running("Tasks at a time; 1 if not given, with Ray and Spark all processors."),
    ],
    "force": Annotated[
        bool | None, _running("Replace what another job left in the folder.", "--force")
    ],
}
with_engine = with_options("running", _RUNNING)
"""Gives a command what says where its tasks run; it gets that as `running`."""


# -- how a rating file is read -------------------------------------------------------------------

_reading = panel("How the file is read (recognised where not given)")
_READING: dict[str, Any] = {
    "user": Annotated[str | None, _reading("Column of users: a name, or a position from 0.")],
    "item": Annotated[str | None, _reading("Column of items.")],
    "rating": Annotated[str | None, _reading("Column of ratings.")],
    "time": Annotated[str | None, _reading("Column of timestamps.")],
    "no_time": Annotated[bool | None, _reading("Ignore timestamps.", "--no-time")],
    "weight": Annotated[str | None, _reading("Column of counts, where there are no ratings.")],
    "no_weight": Annotated[bool | None, _reading("Ignore counts.", "--no-weight")],
    "implicit": Annotated[
        bool | None,
        _reading("Take every line as an interaction (click, play) without rating.", "--implicit"),
    ],
    "separator": Annotated[str | None, _reading('What separates columns, such as "," or "::".')],
    "header": Annotated[
        bool | None, _reading("Whether the first line names the columns.", "--header/--no-header")
    ],
    "encoding": Annotated[
        str | None, _reading("Text encoding, such as latin-1 or gbk; UTF-8 or cp1252 are found.")
    ],
    "skip_bad_lines": Annotated[
        bool | None,
        _reading("Leave out lines that cannot be read, and show them.", "--skip-bad-lines"),
    ],
    "item_features": Annotated[
        str | None, _reading("A file of items: a column of ids, one of titles, one of genres.")
    ],
    "query": Annotated[
        str | None, _reading("What to select where the data is a database's address.")
    ],
    "scale": Annotated[str | None, _reading('The rating scale, such as "1-5" or "0.5-5/0.5".')],
    "bins": Annotated[int | None, _reading("Cut continuous ratings into this many levels.")],
    "duplicates": Annotated[
        str | None,
        _reading("Which of different ratings of one item by one user counts: first, last or mean."),
    ],
    "min_rating": Annotated[
        float | None, _reading("Take ratings from here on as interactions, drop the others.")
    ],
    "weighting": Annotated[
        str | None,
        _reading("The weight of a count c: linear is c, log is 1 + ln c."),
    ],
    "no_cache": Annotated[
        bool | None, _reading("Parse the file even if it was parsed before.", "--no-cache")
    ],
}


def _arguments_of_load(values: dict[str, Any]) -> dict[str, Any]:
    """What was not given is left to load()."""
    arguments = {name: value for name, value in values.items() if value is not None}
    if arguments.pop("no_cache", False):
        arguments["cache"] = False
    for name in ("time", "weight"):
        if arguments.pop(f"no_{name}", False):
            if name in arguments:
                raise DataError(f"--{name} and --no-{name} exclude each other; leave one out")
            arguments[name] = False
    for name in ("user", "item", "rating", "time", "weight"):
        if str(arguments.get(name, "")).isdecimal():
            arguments[name] = int(arguments[name])
    return arguments


with_reading = with_options("reading", _READING, _arguments_of_load)
"""Gives a command these options; it gets them as `reading`, ready for load()."""

_IN_PIECES = (
    *("user", "item", "rating", "weight", "no_weight", "implicit", "separator", "header"),
    *("encoding", "skip_bad_lines", "scale", "bins", "duplicates", "min_rating"),
)
with_reading_in_pieces = with_options(
    "reading", {name: _READING[name] for name in _IN_PIECES}, _arguments_of_load
)
"""The same of those that files too large for memory can be read with."""

READING = frozenset(name for name in _READING if not name.startswith("no_")) | {"cache"}
"""The arguments of load() that they become."""
