"""A person of the store as the model reads them: what counts of them now, whatever it has seen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from cfnade.errors import PredictionError
from cfnade.predictor import Predictor
from cfnade.predictor.histories import Person
from cfnade.predictor.ids import Ids
from cfnade.serve.people import Asked
from cfnade.serve.problems import Problem
from cfnade.store.events import Standing


def index_of(ids: Ids, text: str) -> int:
    """The index of an id as the store writes it; -1 if the model does not know it."""
    try:
        raw = ids.typed(text)
    except PredictionError:
        return -1
    return ids.index(raw) if str(raw) == text else -1  # 007 is not 7


def user_of(predictor: Predictor, person: str) -> int:
    """The person's index if the model has met them, else -1."""
    return index_of(predictor.users, person) if predictor.fitted.has_context else -1


def asker_of(predictor: Predictor, person: str, standing: Sequence[Standing]) -> Asked:
    """Who asks: with all that counts of them, or as the model knows them if it reads no histories.

    Somebody of whom the store knows nothing is nobody whom the model knows: they may have been
    forgotten.
    """
    user = user_of(predictor, person) if standing else -1
    if predictor.fitted.takes_histories:
        return Asked(None, _read(predictor, standing, user), [])
    if user < 0:
        raise Problem(
            422,
            "this model reads items alone, so it knows nobody whom it was not trained on; serve a "
            "model of users or of both for that",
        )
    return Asked(predictor.users.raw(user), None, [])


def _read(predictor: Predictor, standing: Sequence[Standing], user: int) -> Person:
    """Ratings of items that the model knows, on its scale; of a model of picks, all that count."""
    rated = predictor.fitted.rates
    counting = [one for one in standing if not rated or one.rating is not None]
    indices = np.array([index_of(predictor.items, one.item) for one in counting], np.int64)
    if not rated:
        levels, fits = np.zeros(len(counting), np.uint8), np.ones(len(counting), bool)
    else:
        values = np.array([one.rating for one in counting], np.float64)
        levels, fits = predictor.scale.levels_of(values)
    good = np.flatnonzero((indices >= 0) & fits)
    unknown = tuple(one.item for one, index in zip(counting, indices, strict=True) if index < 0)
    return Person(indices[good].astype(np.int32), levels[good], unknown, user)


def names_of(predictor: Predictor, items: Iterable[str]) -> list[str | None]:
    """Titles, where the model has one."""
    titles = predictor.catalogue.titles
    places = [index_of(predictor.items, item) for item in items]
    return [(titles[at] or None) if titles is not None and at >= 0 else None for at in places]
