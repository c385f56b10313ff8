"""Scorer: distributions of a fitted model, given the ratings that it conditions on.

A pair is never predicted from its own rating. Where training saw nothing, fold_in.py takes the
place of missing weights; where nothing is known of a user, baseline.py predicts. The distributions
of several members are averaged. Nothing is calibrated here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import replace
from typing import Any, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
from cachetools import LRUCache

from cfnade._typing import IntArray
from cfnade.components import Axis, Member, RatingComponent
from cfnade.components.base import Array, ComponentScorer
from cfnade.exceptions import PredictionError
from cfnade.fitted_model import FittedModel
from cfnade.implicit import InteractionRows
from cfnade.inference.baseline import Baseline
from cfnade.inference.fold_in import FoldIn, scored_once
from cfnade.inference.query import BoolArray, Entities, Query
from cfnade.kernels.top_k import mean_levels
from cfnade.utils.caching import PicklableLock, locked_cached_property
from cfnade.utils.cancellation import check_cancelled
from cfnade.utils.text import count_of

FloatArray = npt.NDArray[np.float64]

CACHE_BYTES = 1 << 26
"""Bytes of scores that are cached: those of the users asked about last."""

FEW_USERS, FEW_PAIRS = 16, 256
"""Questions about so few users and pairs are answered on the calling thread."""


class MemberScorer:
    """Scores of one member: those of its components, added."""

    def __init__(self, member: Member, fitted: FittedModel, baseline: Baseline) -> None:
        context = fitted.context
        self._components: list[tuple[RatingComponent, ComponentScorer]] = [
            (one, one.scorer(Entities.of_dataset(context, one.axis or "user").rows))
            for one in member.components.values()
        ]
        self._context, self._baseline = context, baseline
        self._fold_in = FoldIn(
            self._components,
            context,
            fitted.training_counts,
            fitted.level_frequencies,
            folds=not fitted.needs_times,  # when the known ratings were given is not known here
        )

    def scores(self, query: Query) -> FloatArray:
        """Return the scores of pairs, (n, K)."""
        parts = []
        for component, scorer in self._components:
            parts.append(scored_once(query, component.axis or "user", scorer.score_pairs))
            check_cancelled()
        for number, places, scores in self._fold_in.scores(query):
            parts[number][places] = scores
        total: FloatArray = parts[0].astype(np.float64)
        for part in parts[1:]:
            total += part
        self._baseline.put(query, total)
        return total

    def item_scores(self, users: Entities, wanted: IntArray, *, leave_one_out: bool) -> Array:
        """Return the scores of every item for each user, (B, items, K).

        Where training saw nothing only those of the wanted items hold.
        """
        parts = [
            self._score_rows(scorer, users)
            if one.axis == "item"
            else scorer.score_columns(users.rows)
            for one, scorer in self._components
        ]
        self._leave_out(parts, users, leave_one_out=leave_one_out)
        self._replace(parts, users, wanted, leave_one_out=leave_one_out)
        total = parts[0].astype(np.result_type(*parts), copy=False)
        for part in parts[1:]:
            total += part
        empty = np.flatnonzero(users.counts() <= (1 if leave_one_out else 0))
        for number in empty.tolist():
            every = np.arange(self._context.n_items)
            query = self._of_user(users, number, every, leave_one_out=leave_one_out)
            self._baseline.put(query, total[number])
        return total

    def _score_rows(self, scorer: ComponentScorer, users: Entities) -> Array:
        """Return scores of all items by a component whose rows are items; 0 for new users."""
        N, known = self._context.n_items, np.flatnonzero(users.index >= 0)
        scores = scorer.score_rows(users.index[known])[:, :N]
        if len(known) == len(users):
            return scores
        out = np.zeros((len(users), scores.shape[2], N), scores.dtype).transpose(0, 2, 1)
        out[known] = scores
        return out

    def _leave_out(self, parts: list[Array], users: Entities, *, leave_one_out: bool) -> None:
        """Score rated items again, each without its own rating.

        Items' rows hold the ratings of the context: what a history does not name is left out, too.
        """
        stored = Entities.of_dataset(self._context, "user")
        for part, (component, scorer) in zip(parts, self._components, strict=True):
            if component.axis == "user" and not leave_one_out:
                continue
            for number, index in enumerate(users.index.tolist()):
                items = own = users.ratings(number)[0]
                if component.axis == "item":
                    items = stored.ratings(index)[0] if index >= 0 else own[:0]
                    if not leave_one_out:
                        same = np.array_equal(items, own)
                        items = own[:0] if same else np.setdiff1d(items, own)
                if len(items):
                    query = self._of_user(users, number, items.astype(np.int64))
                    pairs = query.pairs(component.axis or "user")
                    part[number, items] = scorer.score_pairs(pairs)

    def _replace(
        self, parts: list[Array], users: Entities, wanted: IntArray, *, leave_one_out: bool
    ) -> None:
        """Put what takes the place of missing weights."""
        new_users = self._fold_in.untrained("user", users.index)
        new_items = wanted[self._fold_in.untrained("item", wanted)]
        for number, is_new in enumerate(new_users.tolist()):
            items = wanted if is_new else new_items
            if len(items):
                query = self._of_user(users, number, items, leave_one_out=leave_one_out)
                for component, places, scores in self._fold_in.scores(query):
                    parts[component][number, items[places]] = scores

    def _of_user(
        self, users: Entities, number: int, items: IntArray, *, leave_one_out: bool = True
    ) -> Query:
        some = users if len(users) == 1 else users.take(np.array([number]))
        zeros = np.zeros(len(items), np.int64)
        options = {"leave_one_out": leave_one_out, "serial": True}
        return Query.of_users(self._context, some, zeros, items, **options)


class ItemScores(NamedTuple):
    """Scores of every item for some users: few enough that all fit into memory at once."""

    users: Entities
    members: Sequence[Array]
    """Scores of each member, (B, items, K)."""
    shares: FloatArray
    """The weight of each member for each user, (members, B)."""

    def probabilities(self, user: IntArray, items: IntArray) -> FloatArray:
        """Return the exact distributions of pairs, (n, K)."""
        each = [softmax(scores[user, items]) for scores in self.members]
        return weighted_mean(each, self.shares[:, user])

    def means(self, unit: FloatArray) -> Array:
        """Return means over unit (K,), to kernels.top_k.MEAN_SLACK: (B, items)."""
        each = [mean_levels(scores, unit) for scores in self.members]
        if len(each) == 1:
            return each[0]
        weighed = zip(self.shares, each, strict=True)
        return np.asarray(sum(share[:, None] * means for share, means in weighed))

    def scores(self) -> Array:
        """Return scores whose softmax are the distributions of all items, (B, items, K)."""
        if len(self.members) == 1:
            return self.members[0]
        shape = self.members[0].shape
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


def weighted_mean(members: Sequence[FloatArray], shares: FloatArray) -> FloatArray:
    """Average distributions (n, K) by weights (members, n), or (members, 1)."""
    if len(members) == 1:
        return members[0]
    return np.asarray(sum(share[:, None] * one for share, one in zip(shares, members, strict=True)))


class Scorer:
    """Answers from one model and its context; any number of threads may use it."""

    def __init__(self, fitted: FittedModel) -> None:
        self._set(fitted)

    def _set(self, fitted: FittedModel) -> None:
        self.fitted = fitted
        baseline = Baseline(fitted)
        self._members = [MemberScorer(member, fitted, baseline) for member in fitted.members]
        self._cache: LRUCache[Any, list[Array]] = LRUCache(
            CACHE_BYTES, getsizeof=lambda arrays: sum(array.nbytes for array in arrays)
        )
        self._cache_lock = PicklableLock()

    def with_members(self, *members: Member) -> Scorer:
        """Return a scorer of other weights of the same model."""
        other = copy(self)
        other._set(replace(self.fitted, members=members))
        return other

    # -- distributions ------------------------------------------------------------------------

    def rating_probabilities(self, query: Query) -> FloatArray:
        """Return the distribution of each pair, (n, K)."""
        few = len(query) <= FEW_USERS
        few = few or (len(query) <= FEW_PAIRS and len(np.unique(query.user)) <= FEW_USERS)
        if few and query.times is None and not query.serial:
            query = replace(query, serial=True)
        members, shares = self._weighted_members(query.user_index)
        each = []
        for member in members:
            check_cancelled()
            each.append(softmax(member.scores(query)))
        return weighted_mean(each, shares)

    def probabilities(
        self, users: npt.ArrayLike, items: npt.ArrayLike, times: Any = None
    ) -> FloatArray:
        """Return the distribution of pairs by index, -1 for an unknown user or item: (n, K)."""
        checked = self._checked(users, items)
        return self.rating_probabilities(Query.of_pairs(self.fitted.context, *checked, times))

    def item_scores(self, users: Entities, wanted: IntArray, *, leave_one_out: bool) -> ItemScores:
        """Return the scores of all items, for so few users that they fit into memory.

        Where training saw nothing only those of the wanted items hold. If leave_one_out, rated
        items are scored from the other ratings.
        """
        members, shares = self._weighted_members(users.index)

        def compute() -> list[Array]:
            return [one.item_scores(users, wanted, leave_one_out=leave_one_out) for one in members]

        if len(users) != 1:
            return ItemScores(users, compute(), shares)
        asked = np.zeros(self.fitted.context.n_items, bool)
        asked[wanted] = True
        details = np.packbits(asked), leave_one_out  # which is shorter than their numbers
        return ItemScores(users, self.cached(users, compute, *details), shares)

    def cached(
        self, user: Entities, compute: Callable[[], list[Array]], *details: Any
    ) -> list[Array]:
        """Return scores of all items for one user, from the cache if possible.

        The key is the user, the ratings and the details. The arrays must not be written to. Two
        threads may compute the same scores; one of the results is cached.
        """
        parts = (int(user.index[0]), *user.ratings(0), *details)
        key = tuple(p.tobytes() if isinstance(p, np.ndarray) else p for p in parts)
        with self._cache_lock:
            if key in self._cache:
                return self._cache[key]
        scores = compute()
        with self._cache_lock, suppress(ValueError):  # larger than the whole cache
            scores = self._cache.setdefault(key, scores)
        return scores

    def _weighted_members(self, users: IntArray) -> tuple[list[MemberScorer], FloatArray]:
        """Return the members that count for any of these users, and their weights (members, n)."""
        shares, members = self.fitted.member_weights, self._members
        if not shares:
            return members, np.full((len(members), len(users)), 1 / len(members))
        new = self.fitted.new(users)
        each = np.array([np.where(new, fresh, trained) for trained, fresh in shares])
        counting = [n for n, share in enumerate(each) if share.any()] or [0]
        return [members[n] for n in counting], each[counting]

    # -- what is known ------------------------------------------------------------------------

    def stored_users(self, indices: IntArray) -> Entities:
        """Return users of the data by index, with their ratings; -1 is unknown."""
        return Entities.of_dataset(self.fitted.context, "user").take(indices)

    def known(self, axis: Axis) -> IntArray:
        """Return how many ratings of each user or item are known, (users or items,)."""
        return self._known[axis]

    @locked_cached_property
    def _known(self) -> dict[Axis, IntArray]:
        fitted = self.fitted
        if fitted.has_context:
            return {axis: fitted.counted_levels(axis).sum(1) for axis in get_args(Axis)}
        none = {"user": fitted.context.n_users, "item": fitted.context.n_items}
        counts: dict[Axis, IntArray] = {"user": np.zeros(none["user"], np.int64)}
        counts["item"] = np.zeros(none["item"], np.int64)
        return counts | {axis: levels.sum(1) for axis, levels in fitted.training_counts.items()}

    def known_of(self, axis: Axis, indices: IntArray) -> IntArray:
        """Return the same of some, 0 for an unknown one, (n,)."""
        counts = self._known[axis]
        return np.where(indices >= 0, counts[indices], 0) if len(counts) else 0 * indices

    def unknown(self, users: IntArray, items: IntArray) -> tuple[BoolArray, BoolArray]:
        """Return the pairs of whose user, and of whose item, no rating is known. Both (n,)."""
        return self.known_of("user", users) == 0, self.known_of("item", items) == 0

    def known_levels(self, users: IntArray, items: IntArray) -> IntArray:
        """Return the level of each pair's rating in the context, -1 where there is none, (n,)."""
        return Query.of_pairs(self.fitted.context, users, items).user_levels

    @locked_cached_property
    def interactions(self) -> InteractionRows:
        """The interactions of every user of the data, with weights."""
        return InteractionRows.from_ratings(self.fitted.context)

    # -- borders ------------------------------------------------------------------------------

    def _checked(self, users: npt.ArrayLike, items: npt.ArrayLike) -> tuple[IntArray, IntArray]:
        context = self.fitted.context
        user = _indices("users", np.asarray(users), context.n_users)
        item = _indices("items", np.asarray(items), context.n_items)
        if len(user) != len(item):
            raise PredictionError(
                f"{count_of(len(user), 'user')} and {count_of(len(item), 'item')} were given; a "
                "pair is one of each, so give equally many"
            )
        rows = {"user": user, "item": item}
        if not self.fitted.has_context:
            for axis in self.fitted.axes:
                if bool((rows[axis] >= 0).any()):
                    raise PredictionError(
                        "this model was saved without its context, so nothing is known of the "
                        f"{axis}s in its data; give histories, or the model with its context"
                    )
        return user, item


def _indices(name: str, indices: npt.NDArray[Any], limit: int) -> IntArray:
    if indices.ndim != 1 or (indices.size and indices.dtype.kind not in "iu"):
        raise PredictionError(
            f"{name} have dtype {indices.dtype} and shape {indices.shape}; give a one-dimensional "
            "array of whole numbers"
        )
    whole = indices.astype(np.int64)
    if whole.size and not (whole.min() >= -1 and whole.max() < limit):
        bad = whole[(whole < -1) | (whole >= limit)][0]
        raise PredictionError(
            f"{name} contains {bad}; it must lie in 0..{limit - 1}, or be -1 for an unknown one"
        )
    return whole
