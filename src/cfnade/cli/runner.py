"""Run the command line: streams, logging, and errors as one line on standard error."""

from __future__ import annotations

import io
import logging
import os
import sys
from typing import NoReturn

import typer

from cfnade.cli.errors import command_line_option
from cfnade.cli.terminal import printable_lines
from cfnade.exceptions import CfnadeError
from cfnade.utils.text import option_format

_OUT_OF_MEMORY = "out of memory; close other programs or use a machine with more"


def run(app: typer.Typer) -> NoReturn:
    """Run a command and exit; errors of the library are one message and exit code 1."""
    _replace_unprintable_characters()
    _log_to_stderr()
    try:
        with option_format(command_line_option):
            app(prog_name="cfnade")
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
    sys.exit(0)


def _device_error(error: RuntimeError) -> str:
    """Return the message for torch's errors of memory and devices; others are bugs and escape."""
    text = str(error).lower()
    if any(word in text for word in ("out of memory", "can't allocate", "cannot allocate")):
        return _OUT_OF_MEMORY
    if any(word in text for word in ("cuda", "mps backend", "hip error", "xpu", "accelerator")):
        return f"the device failed: {str(error).splitlines()[0]}"
    raise error


def _replace_unprintable_characters() -> None:
    """Print a question mark for what the encoding of the terminal lacks."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _fail(message: str) -> NoReturn:
    print(f"error: {printable_lines(message)}", file=sys.stderr)
    sys.exit(1)


class _StderrHandler(logging.Handler):
    """Prints log records of the library, such as a recognized format."""

    def emit(self, record: logging.LogRecord) -> None:
        print(printable_lines(record.getMessage()), file=sys.stderr)


def _log_to_stderr() -> None:
    log = logging.getLogger("cfnade")
    if not any(isinstance(handler, _StderrHandler) for handler in log.handlers):
        log.addHandler(_StderrHandler())
    log.setLevel(logging.INFO)
