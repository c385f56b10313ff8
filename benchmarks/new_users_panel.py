"""Who is held out and asked what, and what a method answered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cfnade.data.ratings import Ratings
from cfnade.data.splits import Split, keys_of
from cfnade.metrics import nll, rmse

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

GIVEN = (1, 5, 10, 20)
MOST = max(GIVEN)
FEWEST = 25
"""Who has fewer ratings than this is not scored: little would be left to ask."""

_DRAWS = 1000
_ORDER_STREAM = 3  # beside the streams of data/splits.py


@dataclass(frozen=True)
class Panel:
    """People held out: what they gave, in the order of giving, and what they are asked."""

    known: Ratings
    """The ratings of everyone else."""
    items: IntArray  # (U, MOST) indices of the items given
    levels: IntArray  # (U, MOST)
    asked: Ratings  # (n,) by person
    rows: IntArray  # (n,) whose each asked rating is, in 0..U-1

    def values(self) -> FloatArray:
        """What was given, in stars. Returns (U, MOST)."""
        return self.asked.scale.array()[self.levels]

    def rmse(self, predictions: FloatArray) -> float:
        return rmse(self.asked.values, predictions)

    def clipped(self, predictions: FloatArray) -> FloatArray:
        """Nothing beyond the ends of the scale, which helps every rival."""
        scale = self.asked.scale.array()
        return np.clip(predictions, scale[0], scale[-1])


def panel(parts: Split, seed: int) -> Panel:
    """The people that a split "users:SEED:20" holds out, if they have enough ratings."""
    counts = np.bincount(parts.test.users, minlength=parts.test.n_users)
    enough = counts >= FEWEST - MOST
    given, asked = (part.select(enough[part.users]) for part in (parts.given, parts.test))
    given = given.select(np.lexsort((keys_of(len(given), (seed, _ORDER_STREAM)), given.users)))
    asked = asked.select(np.argsort(asked.users, kind="stable"))
    people = np.flatnonzero(enough)
    return Panel(
        known=parts.train.plus(parts.valid),
        items=given.items.reshape(len(people), MOST).astype(np.int64),
        levels=given.levels.reshape(len(people), MOST).astype(np.int64),
        asked=asked,
        rows=np.searchsorted(people, asked.users),
    )


@dataclass(frozen=True)
class Answers:
    """What a method says to the test people, for each of GIVEN, and how long it took."""

    name: str
    means: list[FloatArray]  # each (n,)
    probabilities: list[FloatArray]  # each (n, K)
    fit_seconds: float
    user_seconds: float
    """To answer one person, one of GIVEN."""
    notes: dict[str, Any]

    def scores(self, asked: Ratings) -> dict[str, Any]:
        return {
            "method": self.name,
            "rmse": [rmse(asked.values, means) for means in self.means],
            "nll": [nll(chances, asked.levels) for chances in self.probabilities],
            "fit_s": self.fit_seconds,
            "user_ms": 1000 * self.user_seconds,
            **self.notes,
        }


def gaps(ours: Answers, other: Answers, people: Panel, seed: int) -> list[dict[str, float]]:
    """RMSE of ours less the other's for each of GIVEN, with its standard error over people.

    People are drawn again with replacement, all of one person's ratings together.
    """
    rng = np.random.default_rng(seed)
    persons = len(people.items)
    times = rng.multinomial(persons, np.full(persons, 1 / persons), _DRAWS)  # (draws, U)
    counts = np.bincount(people.rows, minlength=persons)

    def errors(means: FloatArray) -> FloatArray:
        squares = np.bincount(people.rows, (means - people.asked.values) ** 2, minlength=persons)
        everyone = np.vstack([np.ones(persons), times])
        found: FloatArray = np.sqrt((everyone @ squares) / (everyone @ counts))  # (1 + draws,)
        return found

    pairs = zip(ours.means, other.means, strict=True)
    found = [errors(mine) - errors(theirs) for mine, theirs in pairs]
    return [{"rmse": float(gap[0]), "error": float(gap[1:].std())} for gap in found]
