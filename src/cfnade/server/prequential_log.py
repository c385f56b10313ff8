"""What the model expected of a rating before it came, noted in the background.

A rating is acknowledged first. Its prediction is made with the model that was served when it came,
from what was known of the person before, some at a time and by one thread; what is not yet noted
when a process is killed is missed in the figures and nowhere else.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

import numpy as np

from cfnade.exceptions import StoreUnavailableError
from cfnade.online.background import BatchWorker
from cfnade.online.engine import Store
from cfnade.online.event_store import StoredRating, standing_before
from cfnade.online.prequential import note_predictions
from cfnade.server.model_registry import LoadedModel
from cfnade.server.queries import resolve_stored_user, user_index

_log = logging.getLogger("cfnade.server")
_WAITING = 5_000
_PAUSE = 0.2
"""Seconds in which more may come: to note many takes hardly longer than to note one."""


class PendingPrediction(NamedTuple):
    """A rating of an item that the model knows."""

    loaded: LoadedModel
    event: int
    person: str
    item: int


class PrequentialLog:
    """One thread that predicts what has just come."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._ratings: BatchWorker[PendingPrediction] = BatchWorker(
            "foresight", self._predict, waiting=_WAITING, pause=_PAUSE
        )

    def note(self, came: PendingPrediction) -> None:
        """If more come than can be predicted, some are not: figures are worth no delay."""
        if not self._ratings.leave(came):
            _log.debug("a rating was not predicted: too many wait")

    def close(self) -> None:
        """Predict what waits, then end; the next rating begins again."""
        self._ratings.close()

    def _predict(self, batch: list[PendingPrediction]) -> None:
        try:
            before = standing_before(self._store, [(one.person, one.event) for one in batch])
            noted = [self._predicted(*one) for one in zip(batch, before, strict=True)]
            note_predictions(self._store, [one for one in noted if one is not None])
        except StoreUnavailableError as error:
            _log.warning("predictions of %d ratings were not noted: %s", len(batch), error)
        except Exception:  # figures must not end because one of them could not be had
            _log.exception("predictions of %d ratings were not noted", len(batch))

    def _predicted(
        self, came: PendingPrediction, before: list[StoredRating]
    ) -> dict[str, object] | None:
        """What was expected; None of somebody of whom the model could say nothing."""
        predictor = came.loaded.predictor
        if not predictor.fitted.takes_histories and not before:
            return None
        who = resolve_stored_user(predictor, came.person, before)
        said = predictor.predicted(np.array([came.item]), who.user, history=who.history)
        expected = float(said.predictions[0])
        known, model = int(user_index(predictor, came.person) >= 0), came.loaded.fingerprint
        return {"event": came.event, "expected": expected, "known": known, "model": model}
