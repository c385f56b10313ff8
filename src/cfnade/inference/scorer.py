"""Scorer: distributions of a fitted model, given the ratings that it conditions on.

A pair is never predicted from its own rating. Users and items without trained weights are folded
in (fold_in.py); for users without ratings the baseline predicts (baseline.py). The distributions of
members are averaged. Nothing is calibrated here.

Shapes: B users, M items, K levels, n pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
from cachetools import LRUCache

from cfnade._typing import IntArray
from cfnade.components import Axis, Member, RatingComponent
from cfnade.components.base import Array, ComponentScorer
from cfnade.fitted_model import FittedModel
from cfnade.implicit import InteractionRows
from cfnade.implicit.base import ScoreArray
from cfnade.inference.baseline import Baseline
from cfnade.inference.fold_in import FoldIn, score_distinct
from cfnade.inference.query import Entities, Query
from cfnade.kernels.top_k import mean_levels
from cfnade.utils.caching import PicklableLock, locked_cached_property
from cfnade.utils.cancellation import check_cancelled

FloatArray = npt.NDArray[np.float64]

CACHE_BYTES = 1 << 26
"""Size of the cache of item scores, which holds the most recent users."""

FEW_USERS, FEW_PAIRS = 16, 256
"""Queries of at most so many users and pairs are computed on the calling thread."""


class MemberScorer:
    """Scores of one member: the sum over its components."""

    def __init__(self, member: Member, fitted: FittedModel, baseline: Baseline) -> None:
        context = fitted.context
        self._components: list[tuple[RatingComponent, ComponentScorer]] = [
            (
                component,
                component.scorer(Entities.of_dataset(context, component.axis or "user").rows),
            )
            for component in member.components.values()
        ]
        self._context, self._baseline = context, baseline
        self._fold_in = FoldIn(
            self._components,
            context,
            fitted.training_counts,
            fitted.level_frequencies,
            enabled=not fitted.needs_times,  # the times of known ratings are not available here
        )

    def scores(self, query: Query) -> FloatArray:
        """Return the scores of pairs, (n, K)."""
        parts = []
        for component, scorer in self._components:
            parts.append(score_distinct(query, component.axis or "user", scorer.score_pairs))
            check_cancelled()
        for number, places, scores in self._fold_in.scores(query):
            parts[number][places] = scores
        total: FloatArray = parts[0].astype(np.float64)
        for part in parts[1:]:
            total += part
        self._baseline.replace_scores(query, total)
        return total

    def item_scores(self, users: Entities, candidates: IntArray, *, leave_one_out: bool) -> Array:
        """Return the scores of every item for each user, (B, M, K).

        Scores of items without trained weights are valid for candidates only.
        """
        parts = [
            self._score_rows(scorer, users)
            if component.axis == "item"
            else scorer.score_columns(users.rows)
            for component, scorer in self._components
        ]
        self._leave_out_ratings(parts, users, leave_one_out=leave_one_out)
        self._fold_in_scores(parts, users, candidates, leave_one_out=leave_one_out)
        total = parts[0].astype(np.result_type(*parts), copy=False)
        for part in parts[1:]:
            total += part
        for number in np.flatnonzero(users.counts() <= leave_one_out).tolist():
            all_items = np.arange(self._context.n_items)
            query = self._user_query(users, number, all_items, leave_one_out=leave_one_out)
            self._baseline.replace_scores(query, total[number])
        return total

    def _score_rows(self, scorer: ComponentScorer, users: Entities) -> Array:
        """Return scores of all items by a component whose rows are items; 0 for new users."""
        M, trained = self._context.n_items, np.flatnonzero(users.index >= 0)
        scores = scorer.score_rows(users.index[trained])[:, :M]
        if len(trained) == len(users):
            return scores
        out = np.zeros((len(users), scores.shape[2], M), scores.dtype).transpose(0, 2, 1)
        out[trained] = scores
        return out

    def _leave_out_ratings(
        self, parts: list[Array], users: Entities, *, leave_one_out: bool
    ) -> None:
        """Score rated items again, each without its own rating.

        The rows of items hold the ratings of the context. A history may lack some of these: they
        are left out, too.
        """
        stored_users = Entities.of_dataset(self._context, "user")
        for part, (component, scorer) in zip(parts, self._components, strict=True):
            if component.axis == "user" and not leave_one_out:
                continue
            for number, index in enumerate(users.index.tolist()):
                items = rated = users.ratings(number)[0]
                if component.axis == "item":
                    items = stored_users.ratings(index)[0] if index >= 0 else rated[:0]
                    if not leave_one_out:
                        same = np.array_equal(items, rated)
                        items = rated[:0] if same else np.setdiff1d(items, rated)
                if len(items):
                    query = self._user_query(users, number, items.astype(np.int64))
                    pairs = query.pairs(component.axis or "user")
                    part[number, items] = scorer.score_pairs(pairs)

    def _fold_in_scores(
        self, parts: list[Array], users: Entities, candidates: IntArray, *, leave_one_out: bool
    ) -> None:
        """Set the scores of new users and new items, for which there are no trained weights."""
        new_users = self._fold_in.untrained("user", users.index)
        new_items = candidates[self._fold_in.untrained("item", candidates)]
        for number, is_new in enumerate(new_users.tolist()):
            items = candidates if is_new else new_items
            if len(items):
                query = self._user_query(users, number, items, leave_one_out=leave_one_out)
                for n, places, scores in self._fold_in.scores(query):
                    parts[n][number, items[places]] = scores

    def _user_query(
        self, users: Entities, number: int, items: IntArray, *, leave_one_out: bool = True
    ) -> Query:
        user = users if len(users) == 1 else users.take(np.array([number]))
        zeros = np.zeros(len(items), np.int64)
        options = {"leave_one_out": leave_one_out, "serial": True}
        return Query.of_users(self._context, user, zeros, items, **options)


class ItemScores(NamedTuple):
    """Scores of all items for a batch of users."""

    users: Entities
    member_scores: Sequence[Array]
    """Scores of each member, (B, M, K)."""
    weights: FloatArray
    """Weight of each member for each user, (members, B)."""

    def probabilities(self, user: IntArray, items: IntArray) -> FloatArray:
        """Return the distributions of pairs, (n, K)."""
        distributions = [softmax(scores[user, items]) for scores in self.member_scores]
        return weighted_mean(distributions, self.weights[:, user])

    def means(self, unit: FloatArray) -> Array:
        """Return means over values (K,) in 0..1, up to an error of MEAN_SLACK: (B, M)."""
        means = [mean_levels(scores, unit) for scores in self.member_scores]
        if len(means) == 1:
            return means[0]
        weighted = (w[:, None] * mean for w, mean in zip(self.weights, means, strict=True))
        return np.asarray(sum(weighted))

    def scores(self) -> Array:
        """Return scores whose softmax are the distributions of all items, (B, M, K)."""
        if len(self.member_scores) == 1:
            return self.member_scores[0]
        shape = self.member_scores[0].shape
        user, items = np.divmod(np.arange(shape[0] * shape[1]), shape[1])
        with np.errstate(divide="ignore"):
            return np.log(self.probabilities(user, items)).reshape(shape)


def softmax(scores: Array) -> FloatArray:
    """Return distributions over levels in double precision, (n, K)."""
    exact = scores.astype(np.float64)
    exact -= exact.max(1, keepdims=True)
    weights: FloatArray = np.exp(exact, out=exact)
    weights /= weights.sum(1, keepdims=True)
    return weights


def weighted_mean(distributions: Sequence[FloatArray], weights: FloatArray) -> FloatArray:
    """Average the distributions of members, (n, K) each, by weights (members, n)."""
    if len(distributions) == 1:
        return distributions[0]
    parts = (w[:, None] * p for w, p in zip(weights, distributions, strict=True))
    return np.asarray(sum(parts))


def expected_ratings(probabilities: FloatArray, values: FloatArray) -> FloatArray:
    """Return the means (n,) of distributions (n, K); equal rows have equal bits."""
    return np.asarray((probabilities * values).sum(1))


class Scorer:
    """Scores of a fitted model. Any number of threads may use it."""

    def __init__(self, fitted: FittedModel) -> None:
        self.fitted = fitted
        baseline = Baseline(fitted)
        self._members = [MemberScorer(member, fitted, baseline) for member in fitted.members]
        self._cache: LRUCache[Any, list[Array]] = LRUCache(
            CACHE_BYTES, getsizeof=lambda arrays: sum(array.nbytes for array in arrays)
        )
        self._lock = PicklableLock()

    def with_members(self, *members: Member) -> Scorer:
        """Return a scorer with other weights of the same model."""
        return Scorer(replace(self.fitted, members=members))

    # -- ratings ------------------------------------------------------------------------------

    def rating_probabilities(self, query: Query) -> FloatArray:
        """Return the distribution of each pair, (n, K)."""
        is_small = len(query) <= FEW_USERS or (
            len(query) <= FEW_PAIRS and len(np.unique(query.user)) <= FEW_USERS
        )
        if is_small and query.times is None and not query.serial:
            query = replace(query, serial=True)
        members, weights = self._weighted_members(query.user_index)
        distributions = []
        for member in members:
            check_cancelled()
            distributions.append(softmax(member.scores(query)))
        return weighted_mean(distributions, weights)

    def probabilities(
        self, users: npt.ArrayLike, items: npt.ArrayLike, times: Any = None
    ) -> FloatArray:
        """Return the distribution of pairs by index, -1 for an unknown user or item: (n, K)."""
        user, item = np.asarray(users, np.int64), np.asarray(items, np.int64)
        return self.rating_probabilities(Query.of_pairs(self.fitted.context, user, item, times))

    def item_scores(
        self, users: Entities, candidates: IntArray, *, leave_one_out: bool
    ) -> ItemScores:
        """Return the scores of all items, for so few users that they fit into memory.

        Args:
            users: Known and new users.
            candidates: Items whose scores are needed; without trained weights, others are invalid.
            leave_one_out: Whether rated items are scored from the user's other ratings.
        """
        members, weights = self._weighted_members(users.index)

        def compute() -> list[Array]:
            options = {"leave_one_out": leave_one_out}
            return [member.item_scores(users, candidates, **options) for member in members]

        if len(users) != 1:
            return ItemScores(users, compute(), weights)
        is_candidate = np.zeros(self.fitted.context.n_items, bool)
        is_candidate[candidates] = True
        key = np.packbits(is_candidate), leave_one_out  # shorter than the indices
        return ItemScores(users, self._cached(users, compute, *key), weights)

    def _cached(
        self, user: Entities, compute: Callable[[], list[Array]], *details: Any
    ) -> list[Array]:
        """Return scores of all items for one user, from the cache if possible.

        The key is the user, the ratings and the details. The arrays must not be written to. Two
        threads may compute the same scores; one of the results is cached.
        """
        parts = (int(user.index[0]), *user.ratings(0), *details)
        key = tuple(p.tobytes() if isinstance(p, np.ndarray) else p for p in parts)
        with self._lock:
            if key in self._cache:
                return self._cache[key]
        scores = compute()
        with self._lock, suppress(ValueError):  # larger than the whole cache
            scores = self._cache.setdefault(key, scores)
        return scores

    def _weighted_members(self, users: IntArray) -> tuple[list[MemberScorer], FloatArray]:
        """Return the members with a weight for any of these users, and the weights (members, n)."""
        shares, members = self.fitted.member_weights, self._members
        if not shares:
            return members, np.full((len(members), len(users)), 1 / len(members))
        is_new = self.fitted.new(users)
        weights = np.array([np.where(is_new, new, trained) for trained, new in shares])
        used = [n for n, member_weights in enumerate(weights) if member_weights.any()] or [0]
        return [members[n] for n in used], weights[used]

    # -- interactions -------------------------------------------------------------------------

    def interaction_log_probabilities(self, users: Entities, *, exclude_known: bool) -> ScoreArray:
        """Return the log probability of each item to be a user's next interaction, (B, M).

        The caller may write to the array. The model must have learned interactions.
        """
        model = self.fitted.interaction_model
        assert model is not None

        def compute() -> list[ScoreArray]:
            rows = self.interactions_of(users)
            return [model.log_probabilities(rows, exclude_known=exclude_known)]

        if len(users) > 1:
            return compute()[0]
        return np.array(self._cached(users, compute, exclude_known)[0])

    def interactions_of(self, users: Entities) -> InteractionRows:
        """Return the interactions of known and new users."""
        rows = InteractionRows.from_rows(users.rows)
        if self.fitted.context.weights is None:
            return rows
        weights = rows.weights.copy()  # 1 for an interaction that the context does not hold
        for number, user in enumerate(users.index.tolist()):
            if user >= 0:
                row = slice(rows.indptr[number], rows.indptr[number + 1])
                weights[row] = self._interactions.weights_of(user, rows.columns[row])
        return rows.with_weights(weights)

    @locked_cached_property
    def _interactions(self) -> InteractionRows:
        """The interactions of all users of the data, with weights."""
        return InteractionRows.from_ratings(self.fitted.context)

    # -- known ratings ------------------------------------------------------------------------

    def stored_users(self, indices: IntArray) -> Entities:
        """Return users of the data by index, with their ratings; -1 is unknown."""
        return Entities.of_dataset(self.fitted.context, "user").take(indices)

    def rating_counts(self, axis: Axis, indices: IntArray | None = None) -> IntArray:
        """Return the number of known ratings of each user or item, or of some; 0 for -1."""
        counts = self._rating_counts[axis]
        if indices is None:
            return counts
        return np.where(indices >= 0, counts[indices], 0) if len(counts) else 0 * indices

    @locked_cached_property
    def _rating_counts(self) -> dict[Axis, IntArray]:
        fitted, axes = self.fitted, get_args(Axis)
        if fitted.has_context:
            return {axis: fitted.counted_levels(axis).sum(1) for axis in axes}
        sizes = {axis: len(fitted.context.ids(axis)) for axis in axes}
        counts: dict[Axis, IntArray] = {axis: np.zeros(n, np.int64) for axis, n in sizes.items()}
        return counts | {axis: levels.sum(1) for axis, levels in fitted.training_counts.items()}
