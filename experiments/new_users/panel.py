"""Held-out users with histories and targets of several sizes, and predictions for them."""

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
HISTORY_SIZES = (*map(str, FEW), str(MANY), ALL)
"""Numbers of ratings in a history. Sizes 0 to 20 have the same targets; 50 and all have fewer,
since ratings of the history are no targets."""

MIN_RATINGS = 25
"""Users with fewer ratings are not scored."""
MIN_RATINGS_MANY = 55
"""The same for histories of 50."""
TARGET_FRACTION = 10
"""One rating in so many is a target where all others are in the history."""

_RESAMPLES = 1000
_ORDER_STREAM, _MORE_STREAM = 3, 77  # other random streams than those of data/splits.py


@dataclass(frozen=True)
class Queries:
    """Histories of U users, one after another, and the ratings to predict."""

    size: str
    """One of HISTORY_SIZES."""
    offsets: IntArray  # (U + 1,) user u has the history from offsets[u] to offsets[u + 1] - 1
    items: IntArray  # (C,) item indices of the histories
    levels: IntArray  # (C,)
    targets: Dataset  # (n,) by user
    rows: IntArray  # (n,) user of each target, in 0..U-1

    @property
    def n_users(self) -> int:
        return len(self.offsets) - 1

    def history_rows(self) -> IntArray:
        """Return the user of each rating of the histories, (C,)."""
        return np.repeat(np.arange(self.n_users), np.diff(self.offsets))

    def history_values(self) -> FloatArray:
        """Return the ratings of the histories, (C,)."""
        return self.targets.scale.array()[self.levels]

    def by_user(self) -> Iterator[tuple[slice, slice]]:
        """Yield the places of each user's history and targets."""
        ends = np.cumsum(np.bincount(self.rows, minlength=self.n_users)).tolist()
        places = zip(self.offsets[:-1].tolist(), self.offsets[1:].tolist(), strict=True)
        for (first, last), start, end in zip(places, [0, *ends], ends, strict=False):
            yield slice(first, last), slice(start, end)

    def rmse(self, predictions: FloatArray) -> float:
        return rmse(self.targets.values, predictions)

    def clip(self, predictions: FloatArray) -> FloatArray:
        """Return predictions within the scale."""
        scale = self.targets.scale.array()
        return np.clip(predictions, scale[0], scale[-1])


@dataclass(frozen=True)
class Panel:
    """Held-out users, and the ratings of the others."""

    train: Dataset
    """Ratings of users who are not held out."""
    queries: tuple[Queries, ...]
    """One for each of HISTORY_SIZES."""

    @property
    def n_users(self) -> int:
        return self.queries[0].n_users

    @property
    def scale(self) -> Scale:
        return self.train.scale


def make_panel(parts: Split, seed: int) -> Panel:
    """Return the users that a split "users:SEED:20" holds out, if they have enough ratings."""
    counts = np.bincount(parts.test.users, minlength=parts.test.n_users)
    enough = counts >= MIN_RATINGS - MOST
    fold_in, test = (part.select(enough[part.users]) for part in (parts.fold_in, parts.test))
    keys = random_keys(len(fold_in), (seed, _ORDER_STREAM))
    fold_in = fold_in.select(np.lexsort((keys, fold_in.users)))
    test = test.select(np.argsort(test.users, kind="stable"))
    ratings = fold_in.concat(test)
    histories = np.arange(len(fold_in)).reshape(-1, MOST)  # (U, MOST) places in ratings
    targets = _shuffled(test, seed, len(fold_in))
    users = list(zip(histories, targets, strict=True))
    queries = [
        _queries(str(n), ratings, [(history[:n], np.sort(target)) for history, target in users])
        for n in FEW
    ]
    many, most = [], []
    for history, target in users:
        if MOST + len(target) >= MIN_RATINGS_MANY:
            more = MANY - MOST
            many.append((np.concatenate([history, target[:more]]), target[more:]))
        n_targets = max(1, (MOST + len(target)) // TARGET_FRACTION)
        most.append((np.concatenate([history, target[n_targets:]]), target[:n_targets]))
    queries += [_queries(str(MANY), ratings, many), _queries(ALL, ratings, most)]
    return Panel(parts.train.concat(parts.valid), tuple(queries))


def _shuffled(test: Dataset, seed: int, first: int) -> list[IntArray]:
    """Return the places of each user's ratings, counted from `first`, in a random order."""
    rng = np.random.default_rng((seed, _MORE_STREAM))
    ends = np.cumsum(np.bincount(test.users, minlength=test.n_users))
    places = np.split(np.arange(first, first + len(test)), ends[:-1])
    return [user[rng.permutation(len(user))] for user in places if len(user)]


def _queries(size: str, ratings: Dataset, users: list[tuple[IntArray, IntArray]]) -> Queries:
    """Return the queries of users given by the places of their histories and targets."""
    empty = np.empty(0, np.int64)
    history = np.concatenate([empty, *(places for places, _ in users)])
    targets = np.concatenate([empty, *(places for _, places in users)])
    return Queries(
        size,
        offsets=np.cumsum([0, *(len(places) for places, _ in users)]),
        items=ratings.items[history].astype(np.int64),
        levels=ratings.levels[history].astype(np.int64),
        targets=ratings.select(targets),
        rows=np.repeat(np.arange(len(users)), [len(places) for _, places in users]),
    )


class Seconds(NamedTuple):
    """Wall-clock and CPU seconds; other load makes only the former longer."""

    wall: float
    cpu: float

    @classmethod
    def now(cls) -> Seconds:
        return cls(time.perf_counter(), time.process_time())

    def since(self, start: Seconds, times: int = 1) -> Seconds:
        """Return the seconds from start to this, divided by `times`."""
        return Seconds((self.wall - start.wall) / times, (self.cpu - start.cpu) / times)


@dataclass(frozen=True)
class Predictions:
    """Predictions of a method for each of HISTORY_SIZES, and how long they took."""

    name: str
    means: list[FloatArray]  # each (n,)
    probabilities: list[FloatArray]  # each (n, K)
    fit: Seconds
    per_user: Seconds
    """For one user and one of HISTORY_SIZES."""
    notes: dict[str, Any]

    def scores(self, test: Panel) -> dict[str, Any]:
        """Return the errors by history size and the seconds, for JSON."""
        pairs = zip(self.probabilities, test.queries, strict=True)
        return {
            "method": self.name,
            "rmse": [q.rmse(mean) for mean, q in zip(self.means, test.queries, strict=True)],
            "nll": [nll(probabilities, q.targets.levels) for probabilities, q in pairs],
            "fit_s": self.fit.wall,
            "fit_cpu_s": self.fit.cpu,
            "user_ms": 1000 * self.per_user.wall,
            "user_cpu_ms": 1000 * self.per_user.cpu,
            **self.notes,
        }


def gaps(first: Predictions, second: Predictions, test: Panel, seed: int) -> list[dict[str, float]]:
    """Return the difference of RMSE for each history size, with its standard error over users."""
    sizes = zip(first.means, second.means, test.queries, strict=True)
    return [_gap(means, baseline, queries, seed) for means, baseline, queries in sizes]


def _gap(means: FloatArray, baseline: FloatArray, queries: Queries, seed: int) -> dict[str, float]:
    """Bootstrap over users: all ratings of a user are resampled together."""
    rng, n_users = np.random.default_rng(seed), queries.n_users
    resamples = rng.multinomial(n_users, np.full(n_users, 1 / n_users), _RESAMPLES)  # (R, U)
    weights = np.vstack([np.ones(n_users), resamples])
    counts = weights @ np.bincount(queries.rows, minlength=n_users)

    def rmse_of(predictions: FloatArray) -> FloatArray:
        squares = (predictions - queries.targets.values) ** 2
        sums = np.bincount(queries.rows, squares, minlength=n_users)
        values: FloatArray = np.sqrt((weights @ sums) / counts)  # (1 + R,)
        return values

    gap = rmse_of(means) - rmse_of(baseline)
    return {"rmse": float(gap[0]), "error": float(gap[1:].std())}
