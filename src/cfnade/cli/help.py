"""Help pages in plain text: description, usage, grouped arguments and options, examples."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

from typer.core import TyperCommand, TyperGroup

from cfnade.cli.errors import with_option_name
from cfnade.exceptions import CfnadeError

_COLUMN = 30  # maximum width of the names of options


class Command(TyperCommand):
    """A command whose errors name its options."""

    # typer's own classes of contexts and formatters differ between its versions
    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except CfnadeError as error:
            raise with_option_name(error, ctx) from error

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        arguments: list[Any] = [
            argument for argument in self.get_params(ctx) if argument.param_type_name == "argument"
        ]
        names = [a.metavar + ("..." if a.nargs < 0 else "") for a in arguments]
        pairs = zip(arguments, names, strict=True)
        return ["[OPTIONS]", *(name if a.required else f"[{name}]" for a, name in pairs)]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        _write_page(self, ctx, formatter, self._sections(ctx))

    def _sections(self, ctx: Any) -> dict[str, list[tuple[str, str]]]:
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": []}
        parameters: list[Any] = self.get_params(ctx)
        for parameter in parameters:
            if parameter.name != "help" and not parameter.hidden:
                sections.setdefault(_title(parameter), []).append(_row(parameter, ctx))
        sections.setdefault("Options", []).append(("-h, --help", "Show this page."))
        return sections


class Group(TyperGroup):
    """A group of commands, which its help page shows by panel."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command: Any = self.get_command(ctx, name)
            if not command.hidden:
                title = getattr(command, "rich_help_panel", None) or "Commands"
                row = name, (command.help or "").strip().partition("\n")[0].rstrip(".")
                sections.setdefault(title, []).append(row)
        sections["Options"] = [
            _row(parameter, ctx) for parameter in self.get_params(ctx) if parameter.name != "help"
        ]
        sections["Options"].append(("-h, --help", "Show this page, or that of a command."))
        _write_page(self, ctx, formatter, sections)


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
                formatter.write_dl(rows, col_max=_COLUMN)
    if examples:
        with formatter.section("Examples"):
            for line in examples.rstrip().splitlines():
                formatter.write(f"  {line.strip()}\n")


def _title(parameter: Any) -> str:
    default = "Arguments" if parameter.param_type_name == "argument" else "Options"
    return getattr(parameter, "rich_help_panel", None) or default


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
    elif parameter.show_default and parameter.default not in (None, False):
        text += f"  [default: {_plain(parameter.default)}]"
    return name, text


def _plain(default: object) -> str:
    return f"{default:g}" if isinstance(default, float) else str(default)


def _flag_names(names: Iterable[str], negatives: Iterable[str]) -> str:
    """Return "--[no-]header" for a flag and its negation, otherwise all names."""
    names, negatives = sorted(names, key=len), list(negatives)
    if negatives == [f"--no-{name.removeprefix('--')}" for name in names]:
        return f"--[no-]{names[0].removeprefix('--')}"
    visible = names if not negatives or names == negatives else [*names, *negatives]
    return ("/" if names != negatives else ", ").join(name for name in visible if name.strip())
