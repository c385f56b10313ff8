"""What the model expected of a rating before it came, noted in the background.

A rating is acknowledged first. Its prediction is made with the model that was served when it came,
from what was known of the person before, some at a time and by one thread; what is not yet noted
when a process is killed is missed in the figures and nowhere else.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from typing import NamedTuple

import numpy as np

from cfnade.errors import StoreAwayError
from cfnade.serve.loading import Loaded
from cfnade.serve.standing_people import asker_of, user_of
from cfnade.store.events import Standing, standing_before
from cfnade.store.opening import Store
from cfnade.store.prequential import note_predictions

_log = logging.getLogger("cfnade.serve")
_WAITING = 5_000
_AT_ONCE = 200
_RECENT = 10_000
_PAUSE = 0.2
"""Seconds in which more may come: to note many takes hardly longer than to note one."""


class Came(NamedTuple):
    """A rating of an item that the model knows."""

    loaded: Loaded
    event: int
    person: str
    item: int
    rating: float


class Foresight:
    """One thread that predicts what has just come."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._queue: queue.Queue[Came | None] = queue.Queue(_WAITING)
        self._errors: deque[float] = deque(maxlen=_RECENT)
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def note(self, came: Came) -> None:
        """If more come than can be predicted, some are not: figures are worth no delay."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="foresight", daemon=True)
                self._thread.start()
            try:
                self._queue.put_nowait(came)
            except queue.Full:
                _log.debug("a rating was not predicted: too many wait")

    def rmse(self) -> float | None:
        """Of the ratings that this process predicted most recently."""
        errors = list(self._errors)
        return float(np.sqrt(np.square(errors).mean())) if errors else None

    def close(self) -> None:
        """Predict what waits, then end; the next rating begins again."""
        with self._lock:
            if self._thread is not None:
                self._queue.put(None)
                self._thread.join()
                self._thread = None

    def _run(self) -> None:
        while (came := self._queue.get()) is not None:
            time.sleep(_PAUSE)
            batch, last = [came], False
            while len(batch) < _AT_ONCE and not self._queue.empty():
                more = self._queue.get()
                if more is None:
                    last = True
                    break
                batch.append(more)
            try:
                known = standing_before(self._store, [(one.person, one.event) for one in batch])
                noted = [self._predicted(*one) for one in zip(batch, known, strict=True)]
                note_predictions(self._store, [one for one in noted if one is not None])
            except StoreAwayError as error:
                _log.warning("predictions of %d ratings were not noted: %s", len(batch), error)
            except Exception:  # figures must not end because one of them could not be had
                _log.exception("predictions of %d ratings were not noted", len(batch))
            if last:
                return

    def _predicted(self, came: Came, before: list[Standing]) -> dict[str, object] | None:
        """What was expected; None of somebody of whom the model could say nothing."""
        predictor = came.loaded.predictor
        if not predictor.fitted.takes_histories and not before:
            return None
        who = asker_of(predictor, came.person, before)
        said = predictor.predicted(np.array([came.item]), who.user, history=who.history)
        expected = float(said.predictions[0])
        self._errors.append(expected - came.rating)
        known, model = int(user_of(predictor, came.person) >= 0), came.loaded.fingerprint
        return {"event": came.event, "expected": expected, "known": known, "model": model}
