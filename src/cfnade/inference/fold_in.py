"""Fold-in: scores of users and items that a member has no trained weights for.

An entity with known ratings is folded in: for each component that lacks weights for it and has a
basis for columns, weights are sought that make the known ratings probable together with the scores
of the other components, each rating left out of its own prediction:

    z = argmin Σ_C −log softmax(others + F_0 + F z) + ½ Σ z² / ℓ,   then z · n / (n + ½)

over the n known ratings C, ℓ being the variances among the trained. Several such components are
solved as one, their features side by side. Without any known rating z is 0, the mean of the
trained, if no component of the other axis tells what the other entity of the pair is like; else the
frequency rule of baseline.py is better, which components without a basis follow as well. Where the
other entity of a pair is untrained, too, its components follow that rule inside the sum above: else
each would wait for the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cfnade._typing import IntArray
from cfnade.components import Axis, RatingComponent
from cfnade.components.base import Array, ComponentScorer, Pairs, other_axis
from cfnade.data.dataset import Dataset
from cfnade.inference.baseline import untrained_scores
from cfnade.inference.column_basis import ColumnBasis, column_basis
from cfnade.inference.query import BoolArray, Entities, KnownRatings, Query
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

Solution = FloatArray | None
"""Coefficients z of all components together; None: nothing is known, or there is no basis."""


@dataclass(frozen=True, eq=False)
class Untrained:
    """A user or an item without trained weights, and what is known of it."""

    axis: Axis
    index: int
    known: KnownRatings
    is_cached: bool = False
    """Whether this is all that the model conditions on: then its solution is cached."""

    def without(self, *places: int) -> Untrained:
        """Return it without its ratings at these places; -1 is none."""
        some = [place for place in places if place >= 0]
        if not some:
            return self
        columns, levels = self.known
        rest = np.delete(columns, some), np.delete(levels, some)
        return Untrained(self.axis, self.index, rest)

    def query(self, context: Dataset, others: IntArray, left_out: IntArray | None = None) -> Query:
        """Return the query of its pairs with these users or items of the data set."""
        size = (context.n_items, context.n_users)
        n_columns = size[0] if self.axis == "user" else size[1]
        own = Entities.of_histories([self.index], [self.known], n_columns, len(context.scale))
        zeros = np.zeros(len(others), np.int64)
        if self.axis == "user":
            return Query.of_users(context, own, zeros, others, left_out=left_out, serial=True)
        users = Entities.of_dataset(context, "user")
        return Query(context, users, own, others, zeros, serial=True)


class FoldIn:
    """Fold-in of one member, given the ratings that it conditions on."""

    def __init__(
        self,
        components: Sequence[tuple[RatingComponent, ComponentScorer]],
        context: Dataset,
        training_counts: Mapping[Axis, IntArray],
        frequencies: FloatArray,
        *,
        folds: bool,
    ) -> None:
        """If not `folds`, the frequency rule takes the place of all solutions."""
        self._components, self._context = components, context
        self._training_counts = training_counts
        self._frequencies, self._folds = frequencies, folds
        self._solutions: dict[tuple[Axis, int], Solution] = {}
        self._bases: dict[tuple[Axis, bool], dict[int, ColumnBasis]] = {}
        self._lock = PicklableLock()

    def scores(self, query: Query) -> Iterator[tuple[int, IntArray, FloatArray]]:
        """Yield scores that replace those of a component: its number, places of pairs, (n, K)."""
        for axis in self._training_counts:
            entities, which = query.entities(axis)
            untrained = np.flatnonzero(self.untrained(axis, entities.index[which]))
            if not len(untrained):
                continue
            # All of which nothing is known are one.
            number = which[untrained]
            number = np.where(entities.counts_of(number) > 0, number, -1)
            order = np.argsort(number, kind="stable")
            for some in np.split(order, np.flatnonzero(np.diff(number[order])) + 1):
                check_cancelled()
                places = untrained[some]
                one = self._entity(axis, entities, int(number[some[0]]), int(which[places[0]]))
                for component, scores in self._entity_scores(one, query.take(places)).items():
                    yield component, places, scores

    def untrained(self, axis: Axis, indices: IntArray) -> BoolArray:
        """Return which of these have no trained weights, if any component has such, (n,)."""
        if axis not in self._training_counts:
            return np.zeros(len(indices), bool)
        trained = self._trained[axis]
        if not len(trained):
            return np.ones(len(indices), bool)
        return np.asarray((indices < 0) | ~trained[indices])

    @locked_cached_property
    def _trained(self) -> dict[Axis, BoolArray]:
        return {axis: counts.sum(1) > 0 for axis, counts in self._training_counts.items()}

    def _entity(self, axis: Axis, entities: Entities, number: int, place: int) -> Untrained:
        nothing = np.empty(0, np.int32), np.empty(0, np.uint8)
        if number < 0:
            return Untrained(axis, int(entities.index[place]), nothing)
        stored = entities.rows is Entities.of_dataset(self._context, axis).rows
        return Untrained(axis, int(entities.index[place]), entities.ratings(number), stored)

    # -- one user or item ---------------------------------------------------------------------

    def _entity_scores(self, one: Untrained, query: Query) -> dict[int, FloatArray]:
        """Return scores of its pairs, (n, K), by number of the component."""
        own, further = self._left_out(one, query)
        size = len(one.known[0]) + 1
        codes, which = np.unique((own + 1) * size + further + 1, return_inverse=True)
        places = [(code // size - 1, code % size - 1) for code in codes.tolist()]
        variants = [one.without(*both) for both in places]
        counts = self._level_counts(variants)
        learning = self._learning(one.axis)
        if self._folds and not counts.any() and self._all_learn(one.axis):
            means, ones = self._basis(one.axis, mean_only=True), np.ones((1, 1))
            return {
                n: _combined(self._features(means[n], n, query), ones, 0 * which)
                if n in means
                else self._rule(n, counts)[which]
                for n in learning
            }
        solutions: list[Solution] = [None] * len(variants)
        if self._folds:
            left_out = np.array([place for _, place in places if place >= 0])
            if len(left_out) > FEW and not (own >= 0).any():
                whole = self._solve(one)
                solutions = self._solutions_without_each(one, left_out, whole)
                if len(left_out) < len(variants):  # the first leaves nothing out
                    solutions.insert(0, whole)
            else:
                solutions = self._solve_all(one, variants)
        return {n: self._combine(n, query, solutions, counts, which) for n in learning}

    def _left_out(self, one: Untrained, query: Query) -> tuple[IntArray, IntArray]:
        """Return places of the ratings that each pair leaves out: its own, and another; or -1."""
        none = np.full(len(query), -1)
        columns = one.known[0].astype(np.int64)
        own, others = none, query.item_index if one.axis == "user" else query.user_index
        held = np.flatnonzero(query.levels(one.axis) >= 0)
        if len(held) and len(columns):
            order = np.argsort(columns, kind="stable")
            own = none.copy()
            own[held] = order[np.searchsorted(columns[order], others[held])]
        if one.axis == "item" or query.left_out is None:
            return own, none
        starts = query.users.rows.offsets[query.user]
        return own, np.where(query.left_out >= 0, query.left_out - starts, -1)

    def _combine(
        self,
        number: int,
        query: Query,
        solutions: Sequence[Solution],
        counts: IntArray,
        which: IntArray,
    ) -> FloatArray:
        """Return a component's scores by the solution of each pair, (n, K)."""
        axis = self._components[number][0].learns
        assert axis is not None
        solved = np.array([z is not None for z in solutions])
        basis = self._basis(axis).get(number) if solved.any() else None
        if basis is None:
            return self._rule(number, counts)[which]
        weights = self._weights(number, axis, solutions, counts)
        scores = _combined(self._features(basis, number, query), weights, which)
        if not solved.all():
            places = np.flatnonzero(~solved[which])
            scores[places] = self._rule(number, counts)[which[places]]
        return scores

    def _features(self, basis: ColumnBasis, number: int, query: Query) -> Array:
        axis = self._components[number][0].axis
        assert axis is not None
        return scored_once(query, axis, basis.features)

    def _weights(
        self, number: int, axis: Axis, solutions: Sequence[Solution], counts: IntArray
    ) -> FloatArray:
        """Return what multiplies the features of a component: 1, and its part of z. (B, 1 + D)."""
        sizes = {n: len(one.variances) for n, one in self._basis(axis).items()}
        begin = sum(size for n, size in sizes.items() if n < number)
        weights = np.zeros((len(solutions), 1 + sizes[number]))
        weights[:, 0] = 1.0
        for row, z, n in zip(weights, solutions, counts.sum(1).tolist(), strict=True):
            if z is not None:
                row[1:] = z[begin : begin + sizes[number]] * (n / (n + SHRINK))
        return weights

    # -- components ---------------------------------------------------------------------------

    def _learning(self, axis: Axis) -> list[int]:
        """Return the numbers of the components that have weights of users, or of items."""
        return [n for n, (one, _) in enumerate(self._components) if one.learns == axis]

    def _all_learn(self, axis: Axis) -> bool:
        """Return whether every component with weights has them for this axis."""
        return all(one.learns in (axis, None) for one, _ in self._components)

    def _rule(self, number: int, counts: IntArray) -> FloatArray:
        """Return the scores of the frequency rule, from ratings at each level (B, K)."""
        learns = self._components[number][0].learns
        if any(one.learns == learns for one, _ in self._components[:number]):
            return np.zeros(counts.shape)  # an earlier component has the frequencies
        return untrained_scores(counts.astype(np.float64), self._frequencies, prior=number == 0)

    def _level_counts(self, entities: Sequence[Untrained]) -> IntArray:
        """Return the known ratings of each at each level, (B, K)."""
        K = len(self._frequencies)
        return np.array([np.bincount(one.known[1], minlength=K) for one in entities])

    def _basis(self, axis: Axis, *, mean_only: bool = False) -> dict[int, ColumnBasis]:
        """Return the basis of each component that has weights for this axis, by number."""
        key = axis, mean_only
        if key not in self._bases:  # one thread computes it for all
            with self._lock:
                if key not in self._bases:
                    counts = self._training_counts[axis].sum(1)
                    found = {
                        n: column_basis(self._components[n][1], counts, mean_only=mean_only)
                        for n in self._learning(axis)
                    }
                    self._bases[key] = {n: one for n, one in found.items() if one is not None}
        return self._bases[key]

    def _variances(self, axis: Axis) -> FloatArray:
        return np.concatenate([basis.variances for basis in self._basis(axis).values()])

    # -- solutions ----------------------------------------------------------------------------

    def _solve_all(self, one: Untrained, variants: Sequence[Untrained]) -> list[Solution]:
        """Return the solution of each variant; the whole entity's is where others start."""
        start = self._solve(one) if len(variants) > 1 else None
        return [
            start if variant is one and len(variants) > 1 else self._solve(variant, start)
            for variant in variants
        ]

    def _solve(self, one: Untrained, start: Solution = None) -> Solution:
        key = one.axis, one.index
        if not one.is_cached:
            return self._solution(one, start)
        if key not in self._solutions:  # two threads that come at once find the same
            self._solutions[key] = self._solution(one, None)
        return self._solutions[key]

    def _solution(self, one: Untrained, start: Solution) -> Solution:
        check_cancelled()
        if not self._basis(one.axis):
            return None
        if not len(one.known[1]):
            alone = self._all_learn(one.axis)
            return np.zeros(len(self._variances(one.axis))) if alone else None
        columns, levels = _sample(one.known)
        query = one.query(self._context, columns.astype(np.int64))
        base, slopes = self._own_features(one.axis, query)
        base = base + self._other_scores(one, query)
        return most_probable(base, slopes, levels, self._variances(one.axis), start)

    def _own_features(self, axis: Axis, query: Query) -> tuple[FloatArray, FloatArray]:
        """Return features of known ratings, each without itself: (n, K) and (n, K, D)."""
        parts = [self._features(one, n, query) for n, one in self._basis(axis).items()]
        base = np.sum([part[..., 0] for part in parts], axis=0)
        return base, np.concatenate([part[..., 1:] for part in parts], axis=2)

    def _other_scores(self, one: Untrained, query: Query) -> FloatArray:
        """Return scores of known ratings by components that are not folded in, (n, K)."""
        total, K = np.zeros((len(query), len(self._frequencies))), len(self._frequencies)
        _, others = query.entities(other_axis(one.axis))
        for number, (component, scorer) in enumerate(self._components):
            if component.learns == one.axis:
                if number not in self._basis(one.axis):
                    own = np.eye(K, dtype=int)[query.levels(one.axis)]
                    counts = self._level_counts([one]) - own
                    if query.left_out is not None:
                        counts -= np.eye(K, dtype=int)[one.known[1][query.left_out]]
                    total += self._rule(number, np.maximum(counts, 0))
                continue
            axis = component.axis
            assert axis is not None
            scores = scored_once(query, axis, scorer.score_pairs)
            if component.learns is not None:
                untrained = np.flatnonzero(self.untrained(other_axis(one.axis), others))
                scores[untrained] = self._rule_of_others(number, one, query.take(untrained))
            total += scores
        return total

    def _rule_of_others(self, number: int, one: Untrained, query: Query) -> FloatArray:
        """Return the rule's scores for the other entity of each pair, without the pair. (n, K)."""
        axis, K = other_axis(one.axis), len(self._frequencies)
        entities, which = query.entities(axis)
        known = [(entities.ratings(n)[1], n) for n in which.tolist()]
        counts = np.array([np.bincount(levels, minlength=K) for levels, _ in known])
        counts = counts.reshape(len(query), K)
        levels = query.levels(axis)
        held = np.flatnonzero(levels >= 0)
        counts[held, levels[held]] -= 1
        return self._rule(number, counts)

    def _solutions_without_each(
        self, one: Untrained, left_out: IntArray, start: Solution
    ) -> list[Solution]:
        """Return the solutions of a user without each of more than FEW ratings.

        `start` is the solution with all of them.
        All problems choose from the same ratings, the first MOST + 1 by hash: each lacks the one
        that is left out, or the last one if that is not among them.
        """
        if start is None:
            return [None] * len(left_out)
        columns, levels = (part.astype(np.int64) for part in one.known)
        chosen = _order(one.known)[: MOST + 1]
        last, chosen = chosen[-1], np.sort(chosen)
        lacking = np.full(len(columns), np.searchsorted(chosen, last))
        lacking[chosen] = np.arange(len(chosen))
        others = columns[chosen]
        fixed, slopes = self._own_features(one.axis, one.query(self._context, others))
        solutions: list[Solution] = []
        step = max(1, PIECE // fixed.size)
        for first in range(0, len(left_out), step):
            check_cancelled()
            places = left_out[first : first + step]
            repeated = np.repeat(places, len(chosen))
            query = one.query(self._context, np.tile(others, len(places)), left_out=repeated)
            base = self._other_scores(one, query).reshape(len(places), *fixed.shape) + fixed
            solutions.extend(
                most_probable_without_each(
                    np.ascontiguousarray(base.swapaxes(1, 2)),
                    slopes,
                    levels[chosen],
                    self._variances(one.axis),
                    start,
                    lacking[places],
                )
            )
        return solutions


def scored_once(query: Query, axis: Axis, score: Callable[[Pairs], Array]) -> Array:
    """Score pairs; where rows are items, pairs that differ only in `left_out` are scored once."""
    if axis == "user" or query.left_out is None:
        return score(query.pairs(axis))
    keys = query.user * len(query.items) + query.item
    if len(keys) and (keys == keys[0]).all():  # of an explanation
        return np.repeat(score(query.take(np.arange(1)).pairs(axis)), len(keys), axis=0)
    _, first, which = np.unique(keys, return_index=True, return_inverse=True)
    return np.asarray(score(query.take(first).pairs(axis))[which])


def _sample(known: KnownRatings) -> KnownRatings:
    """At most MOST of the ratings: the same in any order, and but for one without one of them."""
    if len(known[0]) <= MOST:
        return known
    chosen = np.sort(_order(known)[:MOST])
    return known[0][chosen], known[1][chosen]


def _order(known: KnownRatings) -> IntArray:
    """The order by hash in which ratings are chosen."""
    keys = known[0].astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)  # well mixed, and wraps
    return np.argsort(keys, kind="stable")


def _combined(features: Array, weights: FloatArray, which: IntArray) -> FloatArray:
    """Features (n, K, 1 + D) times the weights (B, 1 + D) that belong to each. Returns (n, K)."""
    weights = weights.astype(features.dtype)
    if len(weights) == 1:
        return np.asarray(np.einsum("nkd,d->nk", features, weights[0]), np.float64)
    return np.asarray(np.einsum("nkd,nd->nk", features, weights[which]), np.float64)
