"""Fold-in: scores of users and items that a member has no trained weights for.

For each component without weights of an entity, `FoldIn` finds the coefficients z along the
principal directions of the trained columns (column_basis.py) that maximize the posterior of the
entity's n known ratings C, each left out of its own prediction:

    z = argmin  Σ_C −log softmax(s_other + F_0 + F z)  +  ½ Σ_d z_d² / ℓ_d,    then z · n / (n + ½)

s_other are the scores of the other components, ℓ_d is the variance of direction d. Several such
components are solved as one, with their features side by side.

Without known ratings, z is 0 (the mean of the trained columns) if all components have weights of
this axis. Otherwise, and in components without a basis, the scores are smoothed frequencies
(`baseline.untrained_scores`). Inside the sum above, the other entity of a pair follows the same
rule if it is untrained, too: the fold-in is not recursive.
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

SHRINKAGE = 0.5
"""Solutions from n ratings are multiplied by n / (n + SHRINKAGE)."""

FEW_RATINGS = 16
"""With so few ratings, a rating matters to the features of the others: each solution without a
rating is then solved from features of its own."""

MAX_SCORES = 1 << 20
"""Scores that a temporary array may hold."""

MAX_RATINGS = 500
"""Ratings of an entity that are used to find z. The features of these use all ratings."""

Solution = FloatArray | None
"""Coefficients z of all components; None: no rating is known, or there is no basis."""


@dataclass(frozen=True, eq=False)
class UntrainedEntity:
    """A user or an item without trained weights, and its known ratings."""

    axis: Axis
    index: int
    ratings: KnownRatings
    is_stored: bool = False
    """Whether these are its ratings in the context: then its solution is cached."""

    def without(self, *places: int) -> UntrainedEntity:
        """Return it without its ratings at these places; -1 is none."""
        left_out = [place for place in places if place >= 0]
        if not left_out:
            return self
        columns, levels = self.ratings
        remaining = np.delete(columns, left_out), np.delete(levels, left_out)
        return UntrainedEntity(self.axis, self.index, remaining)

    def query(self, context: Dataset, columns: IntArray, left_out: IntArray | None = None) -> Query:
        """Return the query of its pairs with users or items of the data set, by index."""
        n_columns = context.n_items if self.axis == "user" else context.n_users
        entity = Entities.of_histories([self.index], [self.ratings], n_columns, len(context.scale))
        zeros = np.zeros(len(columns), np.int64)
        if self.axis == "user":
            return Query.of_users(context, entity, zeros, columns, left_out=left_out, serial=True)
        users = Entities.of_dataset(context, "user")
        return Query(context, users, entity, columns, zeros, serial=True)


class FoldIn:
    """Fold-in for one member, given the context of a model.

    Args:
        components: The components of the member, with their scores.
        context: The ratings that the model conditions on.
        training_counts: Training ratings of each column at each level, by axis.
        frequencies: Frequencies of the levels in training, (K,).
        enabled: If False, smoothed frequencies take the place of all solutions.
    """

    def __init__(
        self,
        components: Sequence[tuple[RatingComponent, ComponentScorer]],
        context: Dataset,
        training_counts: Mapping[Axis, IntArray],
        frequencies: FloatArray,
        *,
        enabled: bool,
    ) -> None:
        self._components, self._context = components, context
        self._training_counts, self._frequencies = training_counts, frequencies
        self._enabled = enabled
        self._solutions: dict[tuple[Axis, int], Solution] = {}
        self._bases: dict[tuple[Axis, bool], dict[int, ColumnBasis]] = {}
        self._lock = PicklableLock()

    def scores(self, query: Query) -> Iterator[tuple[int, IntArray, FloatArray]]:
        """Yield scores of pairs without trained weights: component, places of pairs, (n, K)."""
        for axis in self._training_counts:
            entities, pair_numbers = query.entities(axis)
            untrained = np.flatnonzero(self.untrained(axis, entities.index[pair_numbers]))
            if not len(untrained):
                continue
            # All entities without known ratings have the same scores.
            numbers = pair_numbers[untrained]
            numbers = np.where(entities.counts_of(numbers) > 0, numbers, -1)
            order = np.argsort(numbers, kind="stable")
            for group in np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1):
                check_cancelled()
                places = untrained[group]
                index = int(entities.index[pair_numbers[places[0]]])
                number = int(numbers[group[0]])
                ratings = np.empty(0, np.int32), np.empty(0, np.uint8)
                is_stored = entities.rows is Entities.of_dataset(self._context, axis).rows
                if number >= 0:
                    ratings = entities.ratings(number)
                entity = UntrainedEntity(axis, index, ratings, is_stored and number >= 0)
                for component, scores in self._entity_scores(entity, query.take(places)).items():
                    yield component, places, scores

    def untrained(self, axis: Axis, indices: IntArray) -> BoolArray:
        """Return which users or items lack weights that others have, (n,)."""
        if axis not in self._training_counts:
            return np.zeros(len(indices), bool)
        is_trained = self._is_trained[axis]
        if not len(is_trained):
            return np.ones(len(indices), bool)
        return np.asarray((indices < 0) | ~is_trained[indices])

    @locked_cached_property
    def _is_trained(self) -> dict[Axis, BoolArray]:
        return {axis: counts.sum(1) > 0 for axis, counts in self._training_counts.items()}

    # -- scores of one entity -----------------------------------------------------------------

    def _entity_scores(self, entity: UntrainedEntity, query: Query) -> dict[int, FloatArray]:
        """Return the scores of an entity's pairs, (n, K), by number of the component."""
        pair_places, further = self._left_out(entity, query)
        size = len(entity.ratings[0]) + 1
        codes, variant = np.unique((pair_places + 1) * size + further + 1, return_inverse=True)
        left_out = [(code // size - 1, code % size - 1) for code in codes.tolist()]
        variants = [entity.without(*places) for places in left_out]
        counts = self._level_counts(variants)
        folded = self._components_with_weights(entity.axis)
        if self._enabled and not counts.any() and self._all_have_weights(entity.axis):
            means, ones = self._basis(entity.axis, mean_only=True), np.ones((1, 1))
            return {
                n: _combine(self._features(means[n], n, query), ones, 0 * variant)
                if n in means
                else self._frequency_scores(n, counts)[variant]
                for n in folded
            }
        solutions: list[Solution] = [None] * len(variants)
        if self._enabled:
            further_places = np.array([place for _, place in left_out if place >= 0])
            if len(further_places) > FEW_RATINGS and not (pair_places >= 0).any():
                full = self._solve(entity)
                solutions = self._solve_without_each(entity, further_places, full)
                if len(further_places) < len(variants):  # the first variant leaves nothing out
                    solutions.insert(0, full)
            else:
                start = self._solve(entity) if len(variants) > 1 else None
                solutions = [
                    start if v is entity and len(variants) > 1 else self._solve(v, start)
                    for v in variants
                ]
        return {n: self._scores(n, query, solutions, counts, variant) for n in folded}

    def _left_out(self, entity: UntrainedEntity, query: Query) -> tuple[IntArray, IntArray]:
        """Return places of the ratings that each pair leaves out: its own, and another; or -1."""
        none = np.full(len(query), -1)
        columns = entity.ratings[0].astype(np.int64)
        pair_places = none
        pair_columns = query.item_index if entity.axis == "user" else query.user_index
        held = np.flatnonzero(query.levels(entity.axis) >= 0)
        if len(held) and len(columns):
            order = np.argsort(columns, kind="stable")
            pair_places = none.copy()
            pair_places[held] = order[np.searchsorted(columns[order], pair_columns[held])]
        if entity.axis == "item" or query.left_out is None:
            return pair_places, none
        starts = query.users.rows.offsets[query.user]
        return pair_places, np.where(query.left_out >= 0, query.left_out - starts, -1)

    def _scores(
        self,
        number: int,
        query: Query,
        solutions: Sequence[Solution],
        counts: IntArray,
        variant: IntArray,
    ) -> FloatArray:
        """Return a component's scores by the solution of each pair's variant, (n, K)."""
        axis = self._components[number][0].learns
        assert axis is not None
        is_solved = np.array([z is not None for z in solutions])
        basis = self._basis(axis).get(number) if is_solved.any() else None
        if basis is None:
            return self._frequency_scores(number, counts)[variant]
        sizes = {n: len(b.variances) for n, b in self._basis(axis).items()}
        start = sum(size for n, size in sizes.items() if n < number)
        weights = np.zeros((len(solutions), 1 + sizes[number]))
        weights[:, 0] = 1.0
        for row, z, n in zip(weights, solutions, counts.sum(1).tolist(), strict=True):
            if z is not None:
                row[1:] = z[start : start + sizes[number]] * (n / (n + SHRINKAGE))
        scores = _combine(self._features(basis, number, query), weights, variant)
        if not is_solved.all():
            places = np.flatnonzero(~is_solved[variant])
            scores[places] = self._frequency_scores(number, counts)[variant[places]]
        return scores

    def _features(self, basis: ColumnBasis, number: int, query: Query) -> Array:
        axis = self._components[number][0].axis
        assert axis is not None
        return score_distinct(query, axis, basis.features)

    # -- components ---------------------------------------------------------------------------

    def _components_with_weights(self, axis: Axis) -> list[int]:
        """Return the numbers of the components that have weights of users, or of items."""
        return [n for n, (component, _) in enumerate(self._components) if component.learns == axis]

    def _all_have_weights(self, axis: Axis) -> bool:
        """Return whether every component with weights has them for this axis."""
        return all(component.learns in (axis, None) for component, _ in self._components)

    def _frequency_scores(self, number: int, counts: IntArray) -> FloatArray:
        """Return scores without a solution, from ratings at each level (B, K)."""
        learns = self._components[number][0].learns
        if any(component.learns == learns for component, _ in self._components[:number]):
            return np.zeros(counts.shape)  # an earlier component has the frequencies
        return untrained_scores(counts.astype(np.float64), self._frequencies, prior=number == 0)

    def _level_counts(self, entities: Sequence[UntrainedEntity]) -> IntArray:
        """Return the known ratings of each entity at each level, (B, K)."""
        K = len(self._frequencies)
        return np.array([np.bincount(entity.ratings[1], minlength=K) for entity in entities])

    def _basis(self, axis: Axis, *, mean_only: bool = False) -> dict[int, ColumnBasis]:
        """Return the basis of each component that has weights for this axis, by number."""
        key = axis, mean_only
        if key not in self._bases:  # one thread computes it for all
            with self._lock:
                if key not in self._bases:
                    counts = self._training_counts[axis].sum(1)
                    bases = {
                        n: column_basis(self._components[n][1], counts, mean_only=mean_only)
                        for n in self._components_with_weights(axis)
                    }
                    self._bases[key] = {n: b for n, b in bases.items() if b is not None}
        return self._bases[key]

    def _variances(self, axis: Axis) -> FloatArray:
        return np.concatenate([basis.variances for basis in self._basis(axis).values()])

    # -- solutions ----------------------------------------------------------------------------

    def _solve(self, entity: UntrainedEntity, start: Solution = None) -> Solution:
        """Return the solution of an entity, from the cache if it is stored."""
        key = entity.axis, entity.index
        if not entity.is_stored:
            return self._solution(entity, start)
        if key not in self._solutions:  # two threads may compute the same one
            self._solutions[key] = self._solution(entity, None)
        return self._solutions[key]

    def _solution(self, entity: UntrainedEntity, start: Solution) -> Solution:
        check_cancelled()
        axis, (columns, levels) = entity.axis, entity.ratings
        if not self._basis(axis):
            return None
        if not len(levels):
            return np.zeros(len(self._variances(axis))) if self._all_have_weights(axis) else None
        if len(columns) > MAX_RATINGS:
            places = np.sort(_sampling_order(columns)[:MAX_RATINGS])
            columns, levels = columns[places], levels[places]
        query = entity.query(self._context, columns.astype(np.int64))
        base, slopes = self._rating_features(axis, query)
        base = base + self._other_scores(entity, query)
        return most_probable(base, slopes, levels, self._variances(axis), start)

    def _rating_features(self, axis: Axis, query: Query) -> tuple[FloatArray, FloatArray]:
        """Return features of known ratings, each without itself: (n, K) and (n, K, D)."""
        parts = [self._features(basis, n, query) for n, basis in self._basis(axis).items()]
        base = np.sum([part[..., 0] for part in parts], axis=0)
        return base, np.concatenate([part[..., 1:] for part in parts], axis=2)

    def _other_scores(self, entity: UntrainedEntity, query: Query) -> FloatArray:
        """Return scores of known ratings by components that are not solved for, (n, K)."""
        K = len(self._frequencies)
        total, one_hot = np.zeros((len(query), K)), np.eye(K, dtype=int)
        axis = other_axis(entity.axis)
        entities, numbers = query.entities(axis)
        for number, (component, scorer) in enumerate(self._components):
            if component.learns == entity.axis:
                if number not in self._basis(entity.axis):
                    counts = self._level_counts([entity]) - one_hot[query.levels(entity.axis)]
                    if query.left_out is not None:
                        counts -= one_hot[entity.ratings[1][query.left_out]]
                    total += self._frequency_scores(number, np.maximum(counts, 0))
                continue
            assert component.axis is not None
            scores = score_distinct(query, component.axis, scorer.score_pairs)
            if component.learns is not None:
                places = np.flatnonzero(self.untrained(axis, entities.index[numbers]))
                scores[places] = self._untrained_scores(number, axis, query.take(places))
            total += scores
        return total

    def _untrained_scores(self, number: int, axis: Axis, query: Query) -> FloatArray:
        """Return a component's scores of entities on this axis, without their pairs, (n, K)."""
        K, (entities, numbers) = len(self._frequencies), query.entities(axis)
        levels_of = [entities.ratings(n)[1] for n in numbers.tolist()]
        counts = np.array([np.bincount(levels, minlength=K) for levels in levels_of])
        counts = counts.reshape(len(query), K)
        levels = query.levels(axis)
        held = np.flatnonzero(levels >= 0)
        counts[held, levels[held]] -= 1
        return self._frequency_scores(number, counts)

    def _solve_without_each(
        self, entity: UntrainedEntity, left_out: IntArray, start: Solution
    ) -> list[Solution]:
        """Return the solutions of a user without each of more than FEW_RATINGS ratings.

        `start` is the solution with all of them. All problems use the same sample of ratings, of
        MAX_RATINGS + 1: each lacks the one that is left out, or the last one if the sample does
        not contain that.
        """
        if start is None:
            return [None] * len(left_out)
        columns, levels = (part.astype(np.int64) for part in entity.ratings)
        sample = _sampling_order(columns)[: MAX_RATINGS + 1]
        last, sample = sample[-1], np.sort(sample)
        lacking = np.full(len(columns), np.searchsorted(sample, last))
        lacking[sample] = np.arange(len(sample))
        columns, levels = columns[sample], levels[sample]
        fixed, slopes = self._rating_features(entity.axis, entity.query(self._context, columns))
        solutions: list[Solution] = []
        step = max(1, MAX_SCORES // fixed.size)
        for first in range(0, len(left_out), step):
            check_cancelled()
            places = left_out[first : first + step]
            repeated = np.repeat(places, len(sample))
            query = entity.query(self._context, np.tile(columns, len(places)), left_out=repeated)
            base = self._other_scores(entity, query).reshape(len(places), *fixed.shape) + fixed
            solutions.extend(
                most_probable_without_each(
                    np.ascontiguousarray(base.swapaxes(1, 2)),
                    slopes,
                    levels,
                    self._variances(entity.axis),
                    start,
                    lacking[places],
                )
            )
        return solutions


def score_distinct(query: Query, axis: Axis, score: Callable[[Pairs], Array]) -> Array:
    """Score pairs; where rows are items, pairs that differ only in `left_out` are scored once."""
    if axis == "user" or query.left_out is None:
        return score(query.pairs(axis))
    keys = query.user * len(query.items) + query.item
    if len(keys) and (keys == keys[0]).all():  # an explanation
        return np.repeat(score(query.take(np.arange(1)).pairs(axis)), len(keys), axis=0)
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    return np.asarray(score(query.take(first).pairs(axis))[inverse])


def _sampling_order(columns: Array) -> IntArray:
    """Return the order in which ratings enter a sample.

    It goes by a hash of the column, so that a sample hardly changes if a rating is left out.
    """
    keys = columns.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)  # well mixed, and wraps
    return np.argsort(keys, kind="stable")


def _combine(features: Array, weights: FloatArray, variant: IntArray) -> FloatArray:
    """Multiply features (n, K, 1 + D) by the weights (B, 1 + D) of each pair's variant. (n, K)."""
    weights = weights.astype(features.dtype)
    if len(weights) == 1:
        return np.asarray(np.einsum("nkd,d->nk", features, weights[0]), np.float64)
    return np.asarray(np.einsum("nkd,nd->nk", features, weights[variant]), np.float64)
