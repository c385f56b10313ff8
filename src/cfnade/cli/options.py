"""Groups of options that a command takes and gets as one dictionary."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

Command = Callable[..., None]


def with_options(
    into: str, options: dict[str, Any], gather: Callable[[dict[str, Any]], dict[str, Any]] = dict
) -> Callable[[Command], Command]:
    """Give a command these options; it gets them as the keyword `into`, None where not given."""

    def decorate(command: Command) -> Command:
        @wraps(command)
        def wrapped(**arguments: Any) -> None:
            given = {name: arguments.pop(name, None) for name in options}
            command(**arguments, **{into: gather(given)})

        own = inspect.signature(command, eval_str=True)
        parameters = [p for p in own.parameters.values() if p.name != into]
        for name, annotation in options.items():
            parameters.append(
                inspect.Parameter(
                    name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
                )
            )
        wrapped.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        wrapped.__annotations__ = {p.name: p.annotation for p in parameters}
        return wrapped

    return decorate
