"""`cfnade refresh` and `cfnade rollback`: models that learn from an event store."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

from cfnade.cli.options import Model, Threads, option
from cfnade.cli.process import compile_kernels, print_status
from cfnade.cli.store import STORES
from cfnade.exceptions import CfnadeError, StoreUnavailableError
from cfnade.utils.text import count_of

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def refresh(
    model: Model,
    *,
    store: Annotated[str, option("STORE", STORES)],
    every: Annotated[str | None, option("TIME", "Repeat, such as 30m, 6h or 1d.")] = None,
    tolerance: Annotated[float, option("RMSE", "Accepted increase of the RMSE.", min=0)] = 0.0,
    epochs: Annotated[int, option("N", "Epochs of continued training.", min=1)] = 1,
    n_threads: Threads = None,
) -> None:
    """Train with the new ratings of a store, and publish the model.

    The model is published if it is not worse on the newest tenth of the ratings. The last three
    models are kept in MODEL/earlier. A service with --watch switches to the new model.

    \b
      cfnade refresh model --store ratings.db
      cfnade refresh model --store ratings.db --every 6h
    """
    interval = None if every is None else _seconds(every)
    if model.is_dir():
        compile_kernels("nade", "posterior", "inference")
    if interval is None:
        _refresh_once(model, store, tolerance, epochs, n_threads)
        return
    succeeded = False
    while True:
        try:
            _refresh_once(model, store, tolerance, epochs, n_threads)
            succeeded = True
        except CfnadeError as error:
            # An error of the first refresh is a wrong option, unless it is temporary.
            if not succeeded and not _is_temporary(error):
                raise
            print_status(f"not refreshed, next try in {every}: {error}")
        time.sleep(interval)


def rollback(model: Model) -> None:
    """Return to the model before the last refresh.

    \b
      cfnade rollback model
    """
    from cfnade.online import publish
    from cfnade.online.refresh import locked_model

    with locked_model(model):
        version = publish.rollback(model)
        print(f"{model}: back to the model that was in {version}, {publish.fingerprint(model)}")


def _refresh_once(
    model: Path, store: str, tolerance: float, epochs: int, n_threads: int | None
) -> None:
    from cfnade.online.refresh import refresh as refresh_model

    result = refresh_model(
        model, store, tolerance=tolerance, epochs=epochs, n_threads=n_threads, log=print_status
    )
    status = "published" if result.published else "not published"
    users = count_of(result.n_new_users, "new user")
    new = f"; {users}, {count_of(result.n_new_items, 'new item')}"
    took = f", {result.seconds:.1f} s" if result.seconds else ""
    print(f"{model}: {status}: {result.reason}{new if result.n_ratings else ''}{took}")


def _is_temporary(error: CfnadeError) -> bool:
    from cfnade.online.refresh import FolderBusyError

    return isinstance(error, StoreUnavailableError | FolderBusyError)


def _seconds(text: str) -> float:
    try:
        seconds = float(text[:-1]) * _UNITS[text[-1:]]
    except (ValueError, KeyError):
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise CfnadeError(f"--every {text}: is not a duration; write 90s, 30m, 6h or 1d")
    return seconds
