"""The command line. Commands parse, call the library and print; heavy imports happen in them."""

from __future__ import annotations

import io
import logging
import os
import sys
from functools import cache
from typing import Annotated, NoReturn

import typer

from cfnade import __version__
from cfnade.cli import (
    dataset,
    doctor,
    export,
    fresher,
    keeping,
    score,
    service,
    sharding,
    train,
    tune,
    use,
)
from cfnade.cli.arguments import Command
from cfnade.cli.terminal import printable_lines
from cfnade.exceptions import CfnadeError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Predict what rating a person would give an item, as a whole probability distribution.",
)
app.add_typer(dataset.app, name="data")
app.add_typer(keeping.app, name="store")
for command in (
    train.train,
    score.evaluate,
    use.predict,
    use.recommend,
    use.similar,
    use.explain,
    tune.tune,
    export.export,
    sharding.shard,
    service.serve,
    fresher.refresh,
    doctor.doctor,
):
    app.command(cls=Command)(command)


@cache  # once for an app, however often it runs in this process
def add_commands(app: typer.Typer) -> None:
    """Add the comparison, whose package imports this one."""
    from cfnade_baselines.cli import compare

    app.command("compare", cls=Command)(compare)


def _show_version(asked: bool) -> None:
    if asked:
        print(f"cfnade {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    del version  # its callback has answered


def main() -> NoReturn:
    """Run a command; anything wrong with its input is one message and a non-zero exit."""
    _never_fail_to_print()
    _log_to_stderr()
    add_commands(app)
    try:
        app(prog_name="cfnade")
    except CfnadeError as error:
        _fail(str(error))
    except BrokenPipeError:  # `cfnade … | head` has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        _fail(f"{error.filename or 'input or output'}: {error.strerror or error}")
    except MemoryError:
        _fail(_OUT_OF_MEMORY)
    except RuntimeError as error:
        _fail(_of_the_machine(error))
    sys.exit(0)


_OUT_OF_MEMORY = "out of memory; close other programs or use a machine with more"


def _of_the_machine(error: RuntimeError) -> str:
    """What torch says of memory and devices; any other RuntimeError is a bug, and stays one."""
    text = str(error).lower()
    if any(word in text for word in ("out of memory", "can't allocate", "cannot allocate")):
        return _OUT_OF_MEMORY
    if any(word in text for word in ("cuda", "mps backend", "hip error", "xpu", "accelerator")):
        return f"the device failed: {str(error).splitlines()[0]}"
    raise error


def _never_fail_to_print() -> None:
    """On a terminal that knows ASCII only, a bar becomes a question mark."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _fail(message: str) -> NoReturn:
    print(f"error: {printable_lines(message)}", file=sys.stderr)
    sys.exit(1)


class _ToStderr(logging.Handler):
    """What the library notes (a recognised format, a download) is for the person at the shell."""

    def emit(self, record: logging.LogRecord) -> None:
        print(printable_lines(record.getMessage()), file=sys.stderr)


def _log_to_stderr() -> None:
    log = logging.getLogger("cfnade")
    if not any(isinstance(handler, _ToStderr) for handler in log.handlers):
        log.addHandler(_ToStderr())
    log.setLevel(logging.INFO)
