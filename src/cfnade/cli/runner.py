"""Run the command line: streams, logging, and errors as one line on standard error."""

from __future__ import annotations

import io
import logging
import os
import shlex
import sys
from typing import Any, NoReturn

import typer

from cfnade.cli.process import printable_lines
from cfnade.exceptions import CfnadeError
from cfnade.utils.text import option_format

_USAGE_ERROR: Any = typer.BadParameter.__base__  # typer exports only classes derived from it
_OUT_OF_MEMORY = "out of memory; close other programs or use a machine with more"


def run(app: typer.Typer) -> NoReturn:
    """Run a command and exit: with 1 after an error of the library, with 2 after a usage error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # what the encoding of the terminal lacks
    _log_to_stderr()
    try:
        with option_format(command_line_option):
            sys.exit(app(prog_name="cfnade", standalone_mode=False) or 0)
    except _USAGE_ERROR as error:
        _fail(_usage_message(error), 2)
    except CfnadeError as error:
        _fail(str(error))
    except BrokenPipeError:  # the reader of `cfnade … | head` is gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except (FileExistsError, NotADirectoryError) as error:
        _fail(f"{error.filename}: is a file; give a folder")
    except OSError as error:
        _fail(f"{error.filename or 'input or output'}: {error.strerror or error}")
    except MemoryError:
        _fail(_OUT_OF_MEMORY)
    except RuntimeError as error:
        _fail(_device_error(error))


def command_line_option(name: str, value: object) -> str:
    """Return an option as it is typed at a shell, for messages of the library."""
    singular = {"candidate_items": "candidate_item", "exclude_items": "exclude_item"}
    singular["genres"] = "genre"
    option = f"--{singular.get(name, name).replace('_', '-')}"
    if value is False:
        return "--include-seen" if name == "exclude_seen" else f"--no-{option[2:]}"
    return option if value is None or value is True else f"{option} {shlex.quote(str(value))}"


def _usage_message(error: Any) -> str:
    """Return a line about what is wrong with the command, and where its help is."""
    parameter = getattr(error, "param", None)
    message = error.format_message().rstrip(".")
    if parameter is not None and error.message:
        name = parameter.opts[0] if parameter.param_type_name == "option" else parameter.metavar
        reason = error.message.removeprefix("Value error, ").partition(", unable to parse")[0]
        message = f"{name}: {reason.replace('Input should be', 'must be').rstrip('.')}"
    path = error.ctx.command_path if error.ctx else "cfnade"
    joint = " See" if message.endswith("?") else "; see"
    return f"{message[0].lower()}{message[1:]}{joint} {path} --help"


def _device_error(error: RuntimeError) -> str:
    """Return the message for torch's errors of memory and devices; others are bugs and escape."""
    text = str(error).lower()
    if any(word in text for word in ("out of memory", "can't allocate", "cannot allocate")):
        return _OUT_OF_MEMORY
    if any(word in text for word in ("cuda", "mps backend", "hip error", "xpu", "accelerator")):
        return f"the device failed: {str(error).splitlines()[0]}"
    raise error


def _fail(message: str, code: int = 1) -> NoReturn:
    print(f"error: {printable_lines(message)}", file=sys.stderr)
    sys.exit(code)


class _StderrHandler(logging.Handler):
    """Prints log records of the library, such as a recognized format."""

    def emit(self, record: logging.LogRecord) -> None:
        print(printable_lines(record.getMessage()), file=sys.stderr)


def _log_to_stderr() -> None:
    log = logging.getLogger("cfnade")
    if not any(isinstance(handler, _StderrHandler) for handler in log.handlers):
        log.addHandler(_StderrHandler())
    log.setLevel(logging.INFO)
