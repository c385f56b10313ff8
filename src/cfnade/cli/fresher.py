"""`cfnade refresh`: a model that goes on learning from what comes into its store."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Annotated

import typer
from annotated_types import Ge

from cfnade.cli.arguments import Model
from cfnade.cli.at_work import compile_kernels, say
from cfnade.exceptions import CfnadeError, StoreUnavailableError, TrainingError
from cfnade.utils.validation import check_scalar

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def refresh(
    model: Model,
    *,
    store: Annotated[
        str | None,
        typer.Option("--store", help="The store with what people said.", metavar="STORE"),
    ] = None,
    every: Annotated[
        str | None,
        typer.Option("--every", help="Again and again, such as 30m or 6h.", metavar="TIME"),
    ] = None,
    bar: Annotated[
        float,
        typer.Option("--bar", help="How much worse on the newest tenth (RMSE) is good enough."),
    ] = 0.0,
    epochs: Annotated[
        int, typer.Option("--epochs", help="Passes over the data, from the last weights on.")
    ] = 1,
    threads: Annotated[int | None, typer.Option(help="CPU threads.")] = None,
    back: Annotated[
        bool, typer.Option("--roll-back", help="Go back to the model before, and do nothing else.")
    ] = False,
) -> None:
    """Train a model on with what has come into its store, and publish it if it is not worse.

    The newest tenth of ratings decides. The last three models are kept in MODEL/earlier. A service
    with --watch takes the new model over between two requests.

    \b
      cfnade refresh model --store ratings.db
      cfnade refresh model --store ratings.db --every 6h
      cfnade refresh model --roll-back
    """
    check_scalar("bar", bar, float, Ge(0), error=TrainingError)
    check_scalar("epochs", epochs, int, Ge(1), error=TrainingError)
    seconds = None if every is None else _seconds(every)
    if back:
        _roll_back(model)
        return
    if store is None:
        raise TrainingError("say where the store is with --store, such as --store ratings.db")
    if model.is_dir():
        compile_kernels("nade", "posterior", "inference")
    if seconds is None:
        _once(model, store, bar, epochs, threads)
        return
    worked = False
    while True:
        try:
            _once(model, store, bar, epochs, threads)
            worked = True
        except CfnadeError as error:
            # What fails at first is a mistake in the command, unless it may pass by itself.
            if not worked and not _may_pass(error):
                raise
            say(f"not refreshed, next try in {every}: {error}")
        time.sleep(seconds)


def _may_pass(error: CfnadeError) -> bool:
    from cfnade.online.refresh import FolderBusyError

    return isinstance(error, StoreUnavailableError | FolderBusyError)


def _once(model: Path, store: str, bar: float, epochs: int, threads: int | None) -> None:
    from cfnade.online.refresh import refresh as refresh_model

    done = refresh_model(model, store, bar=bar, epochs=epochs, threads=threads, say=say)
    how = "published" if done.published else "not published"
    beside = f"; {done.new_people:,} new people, {done.new_items:,} new items"
    took = f", {done.seconds:.1f} s" if done.seconds else ""
    print(f"{model}: {how}: {done.why}{beside if done.ratings else ''}{took}")


def _roll_back(model: Path) -> None:
    from cfnade.online.publish import fingerprint, rollback
    from cfnade.online.refresh import alone

    with alone(model):
        was = rollback(model)
        print(f"{model}: back to the model that was in {was}, {fingerprint(model)}")


def _seconds(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text.strip())
    if match is None or float(match[1]) <= 0:
        raise CfnadeError(f"--every {text!r} is no time; write it as 90s, 30m, 6h or 1d")
    return float(match[1]) * _UNITS[match[2]]
