"""Errors of the library as errors of a command: they name its options."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from cfnade.data.column_roles import COLUMNS
from cfnade.exceptions import CfnadeError


def with_option_name(error: CfnadeError, ctx: Any) -> CfnadeError:
    """Return the error with the option in front if its field is an option on the command line."""
    if error.field == COLUMNS and not any("--user" in one.opts for one in ctx.command.params):
        return CfnadeError(
            f"{error}\n{ctx.command_path} does not have these options; give them to: "
            "cfnade data convert DATA ratings.parquet, and use its result"
        )
    option = _option(error.field, ctx)
    if option is None:
        return error
    if error.reason is None:
        return CfnadeError(f"{option}: {error}")
    return CfnadeError(f"{option} {_as_typed(error.value)}: {error.reason}")


def _option(field: str | None, ctx: Any) -> str | None:
    if field is None:
        return None
    for parameter in ctx.command.params:
        source = ctx.get_parameter_source(parameter.name)
        if parameter.name == field and source is not None and source.name == "COMMANDLINE":
            is_option = parameter.param_type_name == "option"
            return str(parameter.opts[0] if is_option else parameter.metavar or field.upper())
    return None


def _as_typed(value: object) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ",".join(map(str, value))
    return str(value)


_SINGULAR = {
    "candidate_items": "candidate_item",
    "exclude_items": "exclude_item",
    "genres": "genre",
}


def command_line_option(name: str, value: object) -> str:
    """Return an option as it is typed at a shell, for messages of the library."""
    option = f"--{_SINGULAR.get(name, name).replace('_', '-')}"
    if value is False:
        return "--include-seen" if name == "exclude_seen" else f"--no-{option[2:]}"
    return option if value is None or value is True else f"{option} {shlex.quote(str(value))}"
