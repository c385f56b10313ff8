"""What a member says of users and items that it has no trained weights for.

With known ratings they are folded in: on each side that lacks weights for them and has features for
that (`Folding`), weights are sought that make the known ratings probable together with what the
other sides say of these, each rating left out of its own prediction:

    z = argmin Σ_C −log softmax(others + F_0 + F z) + ½ Σ z² / ℓ,   then z · n / (n + ½)

over the n known ratings C, ℓ being the variances among the trained. Several such sides are solved
as one, their features side by side. Without any known rating z is 0, the mean of the trained, if no
side of another axis tells what the other one of the cell is like; else the rule of baseline.py is
better, which sides without features follow as well. Of a cell where the other one is new as well,
the sides that it lacks weights on follow that rule inside the sum above: else each would wait for
the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from cfnade._typing import IntArray
from cfnade.components import Axis
from cfnade.components.base import (
    NOTHING,
    Array,
    BoolArray,
    Folding,
    Reading,
    Row,
    What,
    Who,
    other_axis,
    row_of,
)
from cfnade.data.dataset import Dataset
from cfnade.inference.baseline import untrained_scores
from cfnade.kernels.newton import most_probable, most_probable_without_each
from cfnade.utils.caching import PicklableLock, locked_cached_property
from cfnade.utils.cancellation import check_cancelled

FloatArray = npt.NDArray[np.float64]

SHRINK = 0.5
"""Imagined ratings that say nothing: n known ones count n / (n + SHRINK)."""

FEW = 16
"""Each of so few ratings moves the others' weights far: then each is left out by itself."""

PIECE = 1 << 20
"""How many scores a temporary array may hold."""

MOST = 500
"""Weights are sought for so many ratings, or some of more: rows are read whole as ever."""


@dataclass(frozen=True, eq=False)
class Newcomer:
    """A user or an item without trained weights: by index, or -1, with what is known of it."""

    axis: Axis
    index: int
    known: Row
    whole: bool = False
    """Whether this is all that the model conditions on: then its answer is kept."""

    def without(self, other: int) -> Newcomer:
        """As if it had no rating by that user, or of that item."""
        if other < 0 or not (self.known.columns == other).any():
            return self
        return self.given(self.known.without(other))

    def given(self, known: Row) -> Newcomer:
        """As if these were all of its ratings."""
        return replace(self, known=known, whole=False)

    def ask(self, what: Reading | Folding, others: IntArray) -> Array:
        """Of cells with some of the other axis, its own rating of each left out. (n, …)."""
        if self.axis == "user":
            return what.person(Who(self.index, self.known), others)
        return what.item(What(self.index, self.known), others)


class FoldIn:
    """Of one member, given the ratings that its readings read."""

    def __init__(
        self,
        readings: Sequence[Reading],
        context: Dataset,
        trained_on: Mapping[Axis, IntArray],
        frequencies: FloatArray,
        *,
        folds: bool,
    ) -> None:
        self._readings, self._context, self._trained_on = readings, context, trained_on
        self._frequencies, self._folds = frequencies, folds
        self._kept: dict[tuple[Axis, int], FloatArray | None] = {}
        self._folded: dict[tuple[Axis, bool], dict[int, Folding]] = {}
        self._guard = PicklableLock()

    # -- who is one ---------------------------------------------------------------------------

    def untrained(self, axis: Axis, indices: IntArray) -> BoolArray:
        """Which of these users or items have no trained weights, if any side has such. (n,)."""
        if axis not in self._trained_on:
            return np.zeros(len(indices), bool)
        trained = self._trained[axis]
        if not len(trained):
            return np.ones(len(indices), bool)
        return np.asarray((indices < 0) | ~trained[indices])

    @locked_cached_property
    def _trained(self) -> dict[Axis, BoolArray]:
        return {axis: counts.sum(1) > 0 for axis, counts in self._trained_on.items()}

    def known(self, axis: Axis, index: int) -> Newcomer:
        """One of the data, by index, or one of which nothing is known (-1)."""
        if index < 0:
            return Newcomer(axis, index, NOTHING)
        return Newcomer(axis, index, row_of(self._context.rows(axis), index), whole=True)

    def all_known(
        self, axis: Axis, indices: IntArray, left_out: int
    ) -> tuple[list[Newcomer], IntArray]:
        """Some of the data without their ratings by, or of, one; and which each index is. (n,)."""
        some = self._ratings[axis][indices] > 0
        numbers = np.unique(indices[some])
        news = [self.known(axis, int(number)).without(left_out) for number in numbers]
        which = np.where(some, 1 + np.searchsorted(numbers, indices), 0)
        return [self.known(axis, -1), *news], which

    @locked_cached_property
    def _ratings(self) -> dict[Axis, IntArray]:
        """How many ratings of each are known, and last of an unknown one: to sort takes longer."""
        users, items = self._context.counts("user"), self._context.counts("item")
        return {"user": np.append(users, 0), "item": np.append(items, 0)}

    # -- what is said of them -----------------------------------------------------------------

    def said(
        self, news: Sequence[Newcomer], which: IntArray, features: Callable[[Folding], Array]
    ) -> dict[int, FloatArray]:
        """Scores by number of the sides without weights for some of one axis. (n, K) each.

        Cell t is of news[which[t]]; features are those of the cells, (n, K, 1 + D).
        """
        counts = self._level_counts(news)
        return self._said(news[0].axis, counts, lambda: self._solutions(news), which, features)

    def said_without_each(
        self, new: Newcomer, features: Callable[[Folding], Array]
    ) -> dict[int, FloatArray]:
        """Return the same of one cell of a user, without each of the user's ratings."""
        columns, levels = new.known
        which = np.arange(len(columns))
        if len(columns) <= FEW:
            return self.said([new.without(int(other)) for other in columns], which, features)
        counts = self._level_counts([new]) - np.eye(len(self._frequencies), dtype=int)[levels]
        solve = partial(self._solutions_without_each, new)
        return self._said(new.axis, counts, solve, which, features)

    def _level_counts(self, news: Sequence[Newcomer]) -> IntArray:
        """Known ratings at each level. Returns (B, K)."""
        K = len(self._frequencies)
        return np.array([np.bincount(new.known.levels, minlength=K) for new in news])

    def _said(
        self,
        axis: Axis,
        counts: IntArray,
        solve: Callable[[], Sequence[FloatArray | None]],
        which: IntArray,
        features: Callable[[Folding], Array],
    ) -> dict[int, FloatArray]:
        learning = [n for n, reading in enumerate(self._readings) if reading.learns == axis]
        if self._folds and not counts.any() and self._all_learn(axis):
            means = self._foldings(axis, mean_only=True)
            return {
                number: _scores(features(means[number]), np.ones((1, 1)), 0 * which)
                if number in means
                else self._rule(number, counts)[which]
                for number in learning
            }
        solutions = solve() if self._folds else [None] * len(counts)
        ruled = np.array([z is None for z in solutions])
        answers: dict[int, FloatArray] = {}
        for number in learning:
            scores = np.empty((len(which), len(self._frequencies)))
            folding = self._foldings(axis).get(number) if not ruled.all() else None
            if folding is None:
                scores[:] = self._rule(number, counts)[which]
            else:
                weights = self._weights(number, axis, solutions, counts)
                scores[:] = _scores(features(folding), weights, which)
                if ruled.any():
                    places = np.flatnonzero(ruled[which])
                    scores[places] = self._rule(number, counts)[which[places]]
            answers[number] = scores
        return answers

    def _all_learn(self, axis: Axis) -> bool:
        """Whether every side with weights has them for this axis."""
        return all(reading.learns in (axis, None) for reading in self._readings)

    def _rule(self, number: int, counts: IntArray) -> FloatArray:
        own = self._readings[number].learns
        if any(reading.learns == own for reading in self._readings[:number]):
            return np.zeros(counts.shape)  # an earlier side has said it
        return untrained_scores(counts.astype(np.float64), self._frequencies, prior=number == 0)

    # -- folding ------------------------------------------------------------------------------

    def _foldings(self, axis: Axis, *, mean_only: bool = False) -> dict[int, Folding]:
        """What newcomers are folded into, by number of the side; those of whom nothing is known
        into the mean of the trained alone."""
        key = axis, mean_only
        if key not in self._folded:  # one thread makes it for all
            with self._guard:
                if key not in self._folded:
                    self._folded[key] = self._made(axis, mean_only)
        return self._folded[key]

    def _made(self, axis: Axis, mean_only: bool) -> dict[int, Folding]:
        sides = [n for n, reading in enumerate(self._readings) if reading.learns == axis]
        counts = self._trained_on[axis].sum(1) if sides else np.empty(0, np.int64)
        foldings = {
            number: self._readings[number].folding(counts, mean_only=mean_only) for number in sides
        }
        return {number: folding for number, folding in foldings.items() if folding is not None}

    def _solutions(self, news: Sequence[Newcomer]) -> list[FloatArray | None]:
        """Coefficients z of each, all sides' together; None: nothing is known, or can be done."""
        solutions: list[FloatArray | None] = []
        for place, new in enumerate(news):
            check_cancelled()
            same = place > 0 and new.index == news[0].index
            start = solutions[0] if same else None  # one rating less: not far
            solutions.append(self._kept_solution(new) if new.whole else self._solution(new, start))
        return solutions

    def _kept_solution(self, new: Newcomer) -> FloatArray | None:
        key = new.axis, new.index
        if key not in self._kept:  # two threads that come at once find the same
            self._kept[key] = self._solution(new, None)
        return self._kept[key]

    def _solution(self, new: Newcomer, start: FloatArray | None) -> FloatArray | None:
        if not self._foldings(new.axis):
            return None
        if not len(new.known.levels):
            alone = self._all_learn(new.axis)
            return np.zeros(len(self._variances(new.axis))) if alone else None
        some = _some_of(new.known)
        others = some.columns.astype(np.int64)
        parts = [new.ask(folding, others) for folding in self._foldings(new.axis).values()]
        base = self._other_sides(new, others) + np.sum([part[..., 0] for part in parts], axis=0)
        slopes = np.concatenate([part[..., 1:] for part in parts], axis=2)
        return most_probable(base, slopes, some.levels, self._variances(new.axis), start)

    def _other_sides(self, new: Newcomer, others: IntArray) -> FloatArray:
        """What sides that are not folded say of the known ratings, each without itself. (n, K)."""
        total = np.zeros((len(others), len(self._frequencies)))
        for number, reading in enumerate(self._readings):
            if reading.learns == new.axis:
                if number not in self._foldings(new.axis):
                    rest = self._level_counts([new.without(int(other)) for other in others])
                    total += self._rule(number, rest)
                continue
            scores = new.ask(reading, others)
            self._put_rule(number, new, others, scores)
            total += scores
        return total

    def _put_rule(self, number: int, new: Newcomer, others: IntArray, scores: Array) -> None:
        """Of cells of one with others (…, n, K): replace those of others without weights."""
        blank = np.flatnonzero(self.untrained(other_axis(new.axis), others))
        if len(blank) and self._readings[number].learns is not None:
            both = [self.known(other_axis(new.axis), int(other)) for other in others[blank]]
            rest = self._level_counts([one.without(new.index) for one in both])
            scores[..., blank, :] = self._rule(number, rest)

    # -- folding without each rating ------------------------------------------------------------

    def _solutions_without_each(self, new: Newcomer) -> list[FloatArray | None]:
        """The same of a user without each of more than FEW ratings.

        All problems choose from the same ratings, the first MOST + 1 by hash: each lacks the one
        that is left out, or the last one if that is not among them.
        """
        columns, levels = (part.astype(np.int64) for part in new.known)
        foldings = self._foldings(new.axis)
        start = self._solution(new, None)
        if start is None:
            return [None] * len(columns)
        chosen = _order(new.known)[: MOST + 1]
        last, chosen = chosen[-1], np.sort(chosen)
        lacking = np.full(len(columns), np.searchsorted(chosen, last))
        lacking[chosen] = np.arange(len(chosen))
        others = columns[chosen]
        parts = [new.ask(folding, others) for folding in foldings.values()]
        fixed = np.sum([part[..., 0] for part in parts], axis=0)
        slopes = np.concatenate([part[..., 1:] for part in parts], axis=2)
        solutions: list[FloatArray | None] = []
        step = max(1, PIECE // fixed.size)
        for first in range(0, len(columns), step):
            check_cancelled()
            places = np.arange(first, min(first + step, len(columns)))
            base = self._other_sides_without_each(new, places, chosen) + fixed  # (B, n, K)
            solutions.extend(
                most_probable_without_each(
                    np.ascontiguousarray(base.swapaxes(1, 2)),
                    slopes,
                    levels[chosen],
                    self._variances(new.axis),
                    start,
                    lacking[places],
                )
            )
        return solutions

    def _other_sides_without_each(
        self, new: Newcomer, left_out: IntArray, chosen: IntArray
    ) -> FloatArray:
        """As `_other_sides` of the chosen ratings, without each of some more: (B, n, K).

        Both are places among the user's ratings.
        """
        columns, levels = (part.astype(np.int64) for part in new.known)
        K = len(self._frequencies)
        total = np.zeros((len(left_out), len(chosen), K))
        for number, reading in enumerate(self._readings):
            if reading.learns == new.axis:
                if number not in self._foldings(new.axis):
                    own = np.eye(K, dtype=int)[levels]
                    rest = own.sum(0) - own[left_out][:, None] - own[chosen]
                    total += self._rule(number, np.maximum(rest, 0))
                continue
            who = Who(new.index, new.known)
            scores = reading.person_without(who, columns[left_out], columns[chosen])
            self._put_rule(number, new, columns[chosen], scores)
            total += scores
        return total

    def _variances(self, axis: Axis) -> FloatArray:
        return np.concatenate([folding.variances for folding in self._foldings(axis).values()])

    def _weights(
        self, number: int, axis: Axis, found: Sequence[FloatArray | None], counts: IntArray
    ) -> FloatArray:
        """What multiplies the features of one side: 1, and its part of each z. (B, 1 + D)."""
        sizes = {n: len(one.variances) for n, one in self._foldings(axis).items()}
        begin = sum(size for n, size in sizes.items() if n < number)
        weights = np.zeros((len(found), 1 + sizes[number]))
        weights[:, 0] = 1.0
        for row, z, n in zip(weights, found, counts.sum(1).tolist(), strict=True):
            if z is not None:
                row[1:] = z[begin : begin + sizes[number]] * (n / (n + SHRINK))
        return weights


def _some_of(known: Row) -> Row:
    """At most MOST of the ratings: the same in any order, and but for one without one of them."""
    if len(known.columns) <= MOST:
        return known
    chosen = np.sort(_order(known)[:MOST])
    return Row(known.columns[chosen], known.levels[chosen])


def _order(known: Row) -> IntArray:
    """The order by hash in which ratings are chosen."""
    keys = known.columns.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)  # well mixed, and wraps
    return np.argsort(keys, kind="stable")


def _scores(features: Array, weights: FloatArray, which: IntArray) -> FloatArray:
    """Features (n, K, 1 + D) times the weights (B, 1 + D) that belong to each. Returns (n, K)."""
    weights = weights.astype(features.dtype)
    if len(weights) == 1:
        return np.asarray(np.einsum("nkd,d->nk", features, weights[0]))
    return np.asarray(np.einsum("nkd,nd->nk", features, weights[which]))
