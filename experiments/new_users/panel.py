"""Who is held out and asked what, for each number of ratings given, and what a method answered."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cfnade.data.dataset import Dataset
from cfnade.data.scale import Scale
from cfnade.data.split_protocols import random_keys
from cfnade.data.splits import Split
from cfnade.evaluation.rating_metrics import nll, rmse

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

FEW = (0, 1, 2, 5, 10, 20)
MOST = max(FEW)
MANY, ALL = 50, "all"
GIVEN = (*map(str, FEW), str(MANY), ALL)
"""How many ratings are given. The same ones are asked from 0 to 20 given, not so from 50 and all:
there is no asking for what is given."""

FEWEST = 25
"""Who has fewer ratings than this is not scored: little would be left to ask."""
FEWEST_OF_MANY = 55
"""The same where 50 are given."""
ASKED_OF_ALL = 10
"""One rating in so many is asked where all others are given."""

_DRAWS = 1000
_ORDER_STREAM, _MORE_STREAM = 3, 77  # beside the streams of data/splits.py


@dataclass(frozen=True)
class Questions:
    """What U people gave, one after another in the order of giving, and what they are asked."""

    given: str
    """One of GIVEN."""
    offsets: IntArray  # (U + 1,) person p gave ratings offsets[p] to offsets[p + 1] - 1
    items: IntArray  # (C,) indices of the items given
    levels: IntArray  # (C,)
    asked: Dataset  # (n,) by person
    rows: IntArray  # (n,) whose each asked rating is, in 0..U-1

    @property
    def people(self) -> int:
        return len(self.offsets) - 1

    def givers(self) -> IntArray:
        """Whose each given rating is. Returns (C,)."""
        return np.repeat(np.arange(self.people), np.diff(self.offsets))

    def values(self) -> FloatArray:
        """What was given, in stars. Returns (C,)."""
        return self.asked.scale.array()[self.levels]

    def by_person(self) -> Iterator[tuple[slice, slice]]:
        """Of each person, which ratings are given and which asked."""
        ends = np.cumsum(np.bincount(self.rows, minlength=self.people)).tolist()
        places = zip(self.offsets[:-1].tolist(), self.offsets[1:].tolist(), strict=True)
        for (first, last), start, end in zip(places, [0, *ends], ends, strict=False):
            yield slice(first, last), slice(start, end)

    def rmse(self, predictions: FloatArray) -> float:
        return rmse(self.asked.values, predictions)

    def clipped(self, predictions: FloatArray) -> FloatArray:
        """Nothing beyond the ends of the scale, which helps every rival."""
        scale = self.asked.scale.array()
        return np.clip(predictions, scale[0], scale[-1])


@dataclass(frozen=True)
class Panel:
    """People held out, and everyone else."""

    known: Dataset
    """The ratings of everyone else."""
    questions: tuple[Questions, ...]
    """One for each of GIVEN."""

    @property
    def people(self) -> int:
        return self.questions[0].people

    @property
    def scale(self) -> Scale:
        return self.known.scale


def panel(parts: Split, seed: int) -> Panel:
    """The people that a split "users:SEED:20" holds out, if they have enough ratings."""
    counts = np.bincount(parts.test.users, minlength=parts.test.n_users)
    enough = counts >= FEWEST - MOST
    given, asked = (part.select(enough[part.users]) for part in (parts.fold_in, parts.test))
    given = given.select(np.lexsort((random_keys(len(given), (seed, _ORDER_STREAM)), given.users)))
    asked = asked.select(np.argsort(asked.users, kind="stable"))
    whole = given.concat(asked)
    first = np.arange(len(given)).reshape(-1, MOST)  # (U, MOST) places in whole
    later = _shuffled(asked, seed, len(given))
    few = [
        _questions(str(n), whole, [(told[:n], rest) for told, rest in _in_order(first, later)])
        for n in FEW
    ]
    many, everything = [], []
    for told, rest in zip(first, later, strict=True):
        if MOST + len(rest) >= FEWEST_OF_MANY:
            more = MANY - MOST
            many.append((np.concatenate([told, rest[:more]]), rest[more:]))
        held = max(1, (MOST + len(rest)) // ASKED_OF_ALL)
        everything.append((np.concatenate([told, rest[held:]]), rest[:held]))
    more_given = [_questions(str(MANY), whole, many), _questions(ALL, whole, everything)]
    return Panel(parts.train.concat(parts.valid), (*few, *more_given))


def _shuffled(asked: Dataset, seed: int, first: int) -> list[IntArray]:
    """The places of each person's asked ratings, counted from `first`, in a random order."""
    rng = np.random.default_rng((seed, _MORE_STREAM))
    ends = np.cumsum(np.bincount(asked.users, minlength=asked.n_users))
    places = np.split(np.arange(first, first + len(asked)), ends[:-1])
    return [own[rng.permutation(len(own))] for own in places if len(own)]


def _in_order(first: IntArray, later: list[IntArray]) -> Iterator[tuple[IntArray, IntArray]]:
    return ((told, np.sort(rest)) for told, rest in zip(first, later, strict=True))


def _questions(given: str, whole: Dataset, people: list[tuple[IntArray, IntArray]]) -> Questions:
    """From the places of what each person gave and is asked."""
    nothing = np.empty(0, np.int64)
    told = np.concatenate([nothing, *(told for told, _ in people)])
    rest = np.concatenate([nothing, *(rest for _, rest in people)])
    return Questions(
        given,
        offsets=np.cumsum([0, *(len(told) for told, _ in people)]),
        items=whole.items[told].astype(np.int64),
        levels=whole.levels[told].astype(np.int64),
        asked=whole.select(rest),
        rows=np.repeat(np.arange(len(people)), [len(rest) for _, rest in people]),
    )


class Seconds(NamedTuple):
    """On the clock, and of the processor: a shared machine makes only the first longer."""

    wall: float
    cpu: float

    @classmethod
    def now(cls) -> Seconds:
        return cls(time.perf_counter(), time.process_time())

    def since(self, start: Seconds, times: int = 1) -> Seconds:
        """From start to this, a `times`-th of it."""
        return Seconds((self.wall - start.wall) / times, (self.cpu - start.cpu) / times)


@dataclass(frozen=True)
class Answers:
    """What a method says to the test people, for each of GIVEN, and how long it took."""

    name: str
    means: list[FloatArray]  # each (n,)
    probabilities: list[FloatArray]  # each (n, K)
    fit: Seconds
    answer: Seconds
    """One person, one of GIVEN."""
    notes: dict[str, Any]

    def scores(self, test: Panel) -> dict[str, Any]:
        pairs = zip(self.probabilities, test.questions, strict=True)
        return {
            "method": self.name,
            "rmse": [q.rmse(mean) for mean, q in zip(self.means, test.questions, strict=True)],
            "nll": [nll(chances, q.asked.levels) for chances, q in pairs],
            "fit_s": self.fit.wall,
            "fit_cpu_s": self.fit.cpu,
            "user_ms": 1000 * self.answer.wall,
            "user_cpu_ms": 1000 * self.answer.cpu,
            **self.notes,
        }


def gaps(ours: Answers, other: Answers, people: Panel, seed: int) -> list[dict[str, float]]:
    """RMSE of ours less the other's for each of GIVEN, with its standard error over people."""
    told = zip(ours.means, other.means, people.questions, strict=True)
    return [_gap(mine, theirs, questions, seed) for mine, theirs, questions in told]


def _gap(mine: FloatArray, theirs: FloatArray, asked: Questions, seed: int) -> dict[str, float]:
    """People are drawn again with replacement, all of one person's ratings together."""
    rng, persons = np.random.default_rng(seed), asked.people
    times = rng.multinomial(persons, np.full(persons, 1 / persons), _DRAWS)  # (draws, U)
    everyone = np.vstack([np.ones(persons), times])
    counts = everyone @ np.bincount(asked.rows, minlength=persons)

    def errors(means: FloatArray) -> FloatArray:
        squares = np.bincount(asked.rows, (means - asked.asked.values) ** 2, minlength=persons)
        found: FloatArray = np.sqrt((everyone @ squares) / counts)  # (1 + draws,)
        return found

    gap = errors(mine) - errors(theirs)
    return {"rmse": float(gap[0]), "error": float(gap[1:].std())}
