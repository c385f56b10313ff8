"""What is said of given cells: who, which item, and the distribution before calibration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cfnade.errors import PredictionError
from cfnade.predictor.histories import Person
from cfnade.predictor.ids import Ids
from cfnade.predictor.scoring import Row
from cfnade.predictor.together import Knows

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


class Answers(NamedTuple):
    """Of each cell asked for."""

    probabilities: FloatArray  # (n, K), before calibration
    known_of_user: IntArray  # (n,)
    known_of_item: IntArray  # (n,)


def answers(
    known: Knows, ids: Ids, users: Any, items: IntArray, people: Mapping[Any, Person]
) -> Answers:
    """For users by raw id, or by a name in people, and items by index."""
    places = {name: place for place, name in enumerate(people)}
    given = np.full(len(users), -1)  # place among the people with a history
    if places:
        given[:] = [places.get(_plain(user), -1) for user in users]
    found = np.empty((len(items), len(known.frequencies)))
    of_user = np.empty(len(items), np.int64)
    for place, person in enumerate(people.values()):
        at = np.flatnonzero(given == place)
        if len(at):
            found[at] = known.of_person(Row(person.items, person.levels), items[at])
            of_user[at] = len(person)
    old = np.flatnonzero(given < 0)
    if len(old):
        raws = users[old] if isinstance(users, np.ndarray) else [users[i] for i in old]
        indices = ids.indices(raws)
        found[old] = known.of_cells(indices, items[old])
        of_user[old] = known.of_users(indices)
    return Answers(found, of_user, known.of_items(items))


def timed_answers(
    known: Knows, ids: Ids, users: Any, items: IntArray, histories: Any, times: Any
) -> Answers:
    """For users by raw id and items by index, of a model that knows time."""
    if not known.bundle.knows_time:
        raise PredictionError("this model does not know time; leave times out")
    if histories:
        raise PredictionError(
            "this model knows time and takes no histories: when their ratings were given is not "
            "known; train one without time features for that"
        )
    if times is not None and np.ndim(times) == 0:
        times = np.full(len(users), times)
    indices = ids.indices(users)
    found = known.cells.probabilities(indices, items, times)
    return Answers(found, known.of_users(indices), known.of_items(items))


def _plain(raw: Any) -> Any:
    """A key as a dictionary knows it."""
    return raw.item() if isinstance(raw, np.generic) else raw
