"""Validation ratings, asked as if less were known of their users.

Whoever asks a model from a few ratings meets it in another state than somebody with hundreds. So
that its distributions are honest for both, calibration is fitted on both: some people of the
validation part are asked about again as new ones, known by 1, 5, 20 and 80 of their ratings.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cfnade._typing import IntArray
from cfnade.calibration.per_user import LevelPreferences
from cfnade.components.base import Row, Who
from cfnade.components.row_states import as_ratings
from cfnade.data.dataset import Dataset
from cfnade.data.scale import LevelArray
from cfnade.fitted_model import FittedModel
from cfnade.inference.scorer import Scorer

FloatArray = npt.NDArray[np.float64]

SIZES = (1, 5, 20, 80)
PEOPLE, RATINGS = 300, 12_000
"""Replies about from few ratings, at most: more would only take longer."""

ALL = 3
"""Ratings asked from all that is known, for each that is asked from few, where both count at once.
Those who know a model best are many, and must not pay for the others."""


class Answered(NamedTuple):
    """What a model says of ratings, before calibration."""

    probabilities: FloatArray  # (n, K)
    levels: LevelArray  # (n,) the truth
    leanings: FloatArray  # (n, K)

    def some(self, count: int) -> Answered:
        """So many of them, taken evenly."""
        places = np.arange(count) * len(self.levels) // count
        return Answered(self.probabilities[places], self.levels[places], self.leanings[places])


class Replies(NamedTuple):
    """What a model says of the validation part."""

    everything: Answered  # given all that the context holds
    few: Answered | None  # given a few ratings of some people; None: it reads no histories


def asked(fitted: FittedModel, valid: Dataset, *, seed: int) -> Replies:
    """A model's answers; seed draws the few ratings."""
    reads = fitted.takes_histories and not fitted.needs_times
    few = asked_from_few(fitted, valid, seed=seed) if reads else None
    return Replies(asked_from_all(fitted, valid), few)


def mixed(answers: Sequence[Replies], shares: Sequence[tuple[float, float]]) -> Replies:
    """What members say together, by their shares for known and for new people."""
    known, new = zip(*shares, strict=True)
    few = [answer.few for answer in answers]
    counting = [(one, share) for one, share in zip(few, new, strict=True) if share > 0]
    read = [(one, share) for one, share in counting if one is not None]
    return Replies(
        _mixture(
            [(answer.everything, share) for answer, share in zip(answers, known, strict=True)]
        ),
        _mixture(read) if read and len(read) == len(counting) else None,
    )


def _mixture(answers: Sequence[tuple[Answered, float]]) -> Answered:
    if len(answers) == 1 and answers[0][1] == 1:
        return answers[0][0]
    total = sum(share * answered.probabilities for answered, share in answers)
    return answers[0][0]._replace(probabilities=np.asarray(total))


def asked_from_all(fitted: FittedModel, valid: Dataset) -> Answered:
    """The validation ratings, given all that the context holds."""
    users, items = valid.users.astype(np.int64), valid.items.astype(np.int64)
    chances = Scorer(fitted).probabilities(users, items, valid.times)
    return Answered(chances, valid.levels, LevelPreferences(fitted).for_pairs(users, items))


def pooled(everything: Answered, few: Answered) -> Answered:
    """Both together, ALL to one; only what is asked from all if there is too little of either."""
    count = min(len(few.levels), RATINGS, len(everything.levels) // ALL)
    if count == 0:
        return everything
    return _together([everything.some(ALL * count), few.some(count)])


def some_people(valid: Dataset, seed: int) -> IntArray:
    """Users of the validation part, PEOPLE at most, rising."""
    people = np.unique(valid.users).astype(np.int64)
    chosen = np.random.default_rng((seed, 0)).permutation(people)[:PEOPLE]
    return np.sort(chosen)


def contexts(rated: Row, user: int, seed: int) -> Iterator[Row]:
    """SIZES of a user's ratings, each among the next; only so many as are not all of them."""
    order = np.random.default_rng((seed, 1, user)).permutation(len(rated.levels))
    for size in SIZES:
        if size < len(order):
            yield Row(rated.columns[order[:size]], rated.levels[order[:size]])


def asked_from_few(fitted: FittedModel, valid: Dataset, *, seed: int) -> Answered:
    """The validation ratings of some users, given a few of their ratings in the context."""
    scorer, rows = Scorer(fitted), valid.rows("user")
    people, places = list[Who](), [np.empty(0, np.int64)]
    for user in some_people(valid, seed).tolist():
        own = np.arange(rows.offsets[user], rows.offsets[user + 1])
        for row in contexts(scorer.person(user).rated, user, seed):
            people.append(Who(-1, row))
            places.append(own)
    which = np.repeat(np.arange(len(people)), [len(own) for own in places[1:]])
    chosen = np.concatenate(places)
    items, levels = rows.columns[chosen].astype(np.int64), rows.levels[chosen]
    if not people:
        K = len(valid.scale)
        return Answered(np.empty((0, K)), levels, np.empty((0, K)))
    ratings = as_ratings([who.rated for who in people])
    leanings = LevelPreferences(fitted).for_rows(ratings, which, items)
    return Answered(scorer.of_people(people, which, items), levels, leanings)


def _together(parts: Sequence[Answered]) -> Answered:
    return Answered(
        np.concatenate([part.probabilities for part in parts]),
        np.concatenate([part.levels for part in parts]),
        np.concatenate([part.leanings for part in parts]),
    )
