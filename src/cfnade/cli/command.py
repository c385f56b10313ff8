"""Commands and groups of commands: shared options, errors that name options, help pages.

Help pages are plain text: description, usage, grouped arguments and options, examples.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Sequence
from inspect import Parameter
from typing import Any, get_args, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from cfnade.data.column_roles import COLUMNS
from cfnade.exceptions import CfnadeError

_NAME_WIDTH = 30  # maximum width of the names of options


def with_option_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Give Typer the options behind `**options: Unpack[Group]`, which become one parameter each.

    `Group` is a TypedDict of `options.py`. The command receives all of its keys as `options`; those
    that are not on the command line are None.
    """
    hints = get_type_hints(command, include_extras=True)
    parameters: list[Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        hint = hints[parameter.name]
        if parameter.kind is not Parameter.VAR_KEYWORD:
            parameters.append(parameter.replace(annotation=hint))
            continue
        [group] = get_args(hint)
        for name, option in get_type_hints(group, include_extras=True).items():
            parameters.append(
                Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=option)
            )
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return command


# typer's own classes of contexts and formatters differ between its versions: they are Any here
class Command(TyperCommand):
    """A command whose errors name its options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "" in args:  # as a path it would mean the current folder
            raise CfnadeError("an argument is empty; is a variable of the shell not set?")
        remaining: list[str] = super().parse_args(ctx, args)
        return remaining

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except CfnadeError as error:
            raise _with_option_name(error, ctx) from error

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        pieces = ["[OPTIONS]"]
        parameters: list[Any] = self.get_params(ctx)
        for parameter in parameters:
            if parameter.param_type_name == "argument":
                name = parameter.metavar + ("..." if parameter.nargs < 0 else "")
                pieces.append(name if parameter.required else f"[{name}]")
        return pieces

    def format_help(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": []}
        parameters: list[Any] = self.get_params(ctx)
        for parameter in parameters:
            is_argument = parameter.param_type_name == "argument"
            title = parameter.rich_help_panel or ("Arguments" if is_argument else "Options")
            if parameter.name != "help":
                sections.setdefault(title, []).append(_row(parameter, ctx))
        sections.setdefault("Options", []).append(("-h, --help", "Show this page."))
        _write_page(self, ctx, formatter, sections)


class Group(TyperGroup):
    """A group of commands, which its help page shows by panel."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args:
            print(ctx.get_help(), file=sys.stderr)
            raise typer.Exit(2)
        remaining: list[str] = super().parse_args(ctx, args)
        return remaining

    def format_help(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command: Any = self.get_command(ctx, name)
            title = getattr(command, "rich_help_panel", None) or "Commands"
            row = name, (command.help or "").strip().partition("\n")[0].rstrip(".")
            sections.setdefault(title, []).append(row)
        sections["Options"] = [
            *(
                _row(parameter, ctx)
                for parameter in self.get_params(ctx)
                if parameter.name != "help"
            ),
            ("-h, --help", "Show this page, or that of a command."),
        ]
        _write_page(self, ctx, formatter, sections)


def command_group(help_page: str) -> typer.Typer:
    """Return a group of commands without commands."""
    return typer.Typer(cls=Group, rich_markup_mode=None, help=help_page)


# -- errors ---------------------------------------------------------------------------------------


def _with_option_name(error: CfnadeError, ctx: Any) -> CfnadeError:
    """Return the error with the option in front if its field is an option on the command line."""
    if error.field == COLUMNS and not any("--user" in p.opts for p in ctx.command.params):
        return CfnadeError(
            f"{error}\n{ctx.command_path} does not have these options; give them to: "
            "cfnade data convert DATA ratings.parquet, and use its result"
        )
    option = _option_of_field(error.field, ctx)
    if option is None:
        return error
    if error.reason is None:
        return CfnadeError(f"{option}: {error}")
    value = error.value
    if isinstance(value, Sequence) and not isinstance(value, str):
        value = ",".join(map(str, value))
    reason = error.reason.removesuffix(", or None")  # Python's way to leave an option out
    return CfnadeError(f"{option} {value}: {reason}")


def _option_of_field(field: str | None, ctx: Any) -> str | None:
    for parameter in ctx.command.params:
        source = ctx.get_parameter_source(parameter.name)
        if parameter.name == field and source is not None and source.name == "COMMANDLINE":
            is_option = parameter.param_type_name == "option"
            return str(parameter.opts[0] if is_option else parameter.metavar)
    return None


# -- help pages -----------------------------------------------------------------------------------


def _write_page(
    command: Any, ctx: Any, formatter: Any, sections: dict[str, list[tuple[str, str]]]
) -> None:
    description, _, examples = inspect.cleandoc(command.help or "").partition("\b\n")
    formatter.write_text(description.strip())
    formatter.write_paragraph()
    command.format_usage(ctx, formatter)
    for title, rows in sections.items():
        if rows:
            with formatter.section(title):
                formatter.write_dl(rows, col_max=_NAME_WIDTH)
    if examples:
        with formatter.section("Examples"):
            for line in examples.rstrip().splitlines():
                formatter.write(f"  {line.strip()}\n")


def _row(parameter: Any, ctx: Any) -> tuple[str, str]:
    """Return the name of a parameter with its metavar, and what it means."""
    if parameter.param_type_name == "argument":
        return parameter.metavar, parameter.help
    if parameter.is_flag:
        return _flag_names(parameter.opts, parameter.secondary_opts), parameter.help
    name, _ = parameter.get_help_record(ctx)
    text = parameter.help
    if parameter.required:
        text += "  [required]"
    elif parameter.default is not None:
        default = parameter.default
        text += f"  [default: {f'{default:g}' if isinstance(default, float) else default}]"
    return name, text


def _flag_names(names: Iterable[str], negatives: Iterable[str]) -> str:
    """Return "--[no-]header" for a flag and its negation, otherwise all names."""
    names, negatives = sorted(names, key=len), list(negatives)
    if negatives == [f"--no-{name.removeprefix('--')}" for name in names]:
        return f"--[no-]{names[0].removeprefix('--')}"
    visible = names if not negatives or names == negatives else [*names, *negatives]
    return ("/" if names != negatives else ", ").join(name for name in visible if name.strip())
