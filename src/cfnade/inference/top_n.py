"""Top-n recommendation: the best items for users, exactly.

Bounds of the scores of all items give candidates, which are then scored exactly. Users are ranked
in batches, so that memory does not grow with their number, and each thread takes whole batches.

Shapes: B users of a batch, M items, K levels, n pairs or list entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from cfnade._typing import IntArray
from cfnade.calibration.per_user import Calibrator
from cfnade.data.dataset import Dataset
from cfnade.implicit.base import ScoreArray
from cfnade.inference.query import BoolArray, Entities, Query
from cfnade.inference.ranking_options import FloatArray, Objective, RankingOptions
from cfnade.inference.results import TopN
from cfnade.inference.scorer import ItemScores, Scorer, expected_ratings
from cfnade.inference.similarity import diversify
from cfnade.kernels.threads import run_parallel, single_torch_thread, thread_count
from cfnade.kernels.top_k import (
    MEAN_SLACK,
    cells_between,
    criterion_bounds,
    keep_candidates,
    nth_largest,
)

MAX_SCORES = 1 << 21
"""Scores that each thread holds at a time, for each member."""

FEW_USERS = 4
"""Up to so many users are ranked one by one, so that bits do not depend on the other users."""

_EQUAL_BATCH = 256  # users of a batch if all batches have the same size
_EXTENSION = 5  # times as long are the lists from which diverse ones are selected


def top_n(
    scorer: Scorer,
    calibrator: Calibrator,
    users: Entities,
    options: RankingOptions,
    candidates: Candidates,
    *,
    averages: FloatArray | None = None,
    item_vectors: ScoreArray | None = None,
    equal_batches: bool = False,
) -> TopN:
    """Return the best items for users.

    Args:
        scorer: Scores of the model.
        calibrator: Its calibration.
        users: Known and new users.
        options: Resolved options.
        candidates: The items that they allow.
        averages: Average rating of each item, (M,), for personalization.
        item_vectors: Vector of each item, (M, D), for diversity.
        equal_batches: Rank all batches with the same number of users, the last one repeated.
            Matrix products of other sizes may have other last bits; with this, a list does not
            depend on the other users.
    """
    n = options.n * _EXTENSION if options.diversity else options.n
    ranker = _make_ranker(scorer, calibrator, options, candidates, n, averages)
    if equal_batches:
        batch_size = max(1, min(_EQUAL_BATCH, MAX_SCORES // ranker.scores_per_user))
        users = _fill_batches(users, batch_size)
        top = rank_users(ranker, users, batch_size)
    else:
        top = rank_users(ranker, users)
    if options.diversity:
        assert item_vectors is not None
        relevance = top.scores
        if options.rank_by != "prediction":  # probabilities
            relevance = np.log(np.maximum(top.scores, 1e-300))
        order = diversify(
            top.user, top.items, relevance, options.n, item_vectors, options.diversity
        )
        top = top.take(order)
    probabilities = None
    if options.rank_by == "interaction":
        probabilities = top.interaction_probabilities
        if np.isnan(probabilities).any():
            probabilities = _interaction_probabilities(scorer, users, top, options.exclude_seen)
    return TopN(
        scorer.fitted.context,
        *top[:5],
        probabilities,
        scorer.rating_counts("item")[top.items],
        users.counts(),
        candidates.count_hidden(users),
        candidates.min_ratings,
    )


class Candidates(NamedTuple):
    """Items that may be listed."""

    allowed: BoolArray
    """(M,) Items that candidates, exclusions and genres allow."""
    n_ratings: IntArray  # (M,)
    min_ratings: int
    exclude_seen: bool

    def items(self) -> BoolArray:
        """Return the items that may be listed for a user without ratings, (M,)."""
        return self.allowed & (self.n_ratings >= self.min_ratings)

    def mask(self, users: Entities) -> BoolArray:
        """Return the items that may be listed for each user, (B, M)."""
        mask = np.tile(self.items(), (len(users), 1))
        if self.exclude_seen:
            numbers = np.repeat(np.arange(len(users)), users.counts())
            mask[numbers, users.rows.columns] = False
        return mask

    def count_hidden(self, users: Entities) -> IntArray:
        """Return how many items `min_ratings` hides from each user, (B,)."""
        is_hidden = self.allowed & (self.n_ratings < self.min_ratings)
        counts = np.full(len(users), np.count_nonzero(is_hidden))
        if self.exclude_seen and counts.any():
            numbers = np.repeat(np.arange(len(users)), users.counts())
            counts -= np.bincount(numbers[is_hidden[users.rows.columns]], minlength=len(users))
        return counts


class RankedItems(NamedTuple):
    """Ranked items of a batch: user by user, best first."""

    user: IntArray  # (n,) the user's number
    items: IntArray
    scores: FloatArray
    predictions: FloatArray
    probabilities: FloatArray  # (n, K)
    interaction_probabilities: FloatArray  # NaN if not computed

    @classmethod
    def concat(cls, parts: Sequence[RankedItems]) -> RankedItems:
        """Return the entries of all parts."""
        columns: Any = zip(*parts, strict=True)
        return cls(*map(np.concatenate, columns))

    @classmethod
    def empty(cls, n_levels: int) -> RankedItems:
        index, value = np.empty(0, np.int64), np.empty(0)
        return cls(index, index, value, value, np.empty((0, n_levels)), value)

    def take(self, places: IntArray) -> RankedItems:
        """Return the entries at these places."""
        columns: tuple[Any, ...] = self
        return RankedItems(*(column[places] for column in columns))

    def best(self, n: int) -> RankedItems:
        """Return the n best entries of each user."""
        return self.take(_first_n(n, self.user, self.items, self.scores))


def _first_n(n: int, user: IntArray, items: IntArray, scores: FloatArray) -> IntArray:
    """Return the places of each user's n best entries; of equal scores the lower index is first."""
    order = np.lexsort((items, -scores, user))
    ordered = user[order]
    return order[np.arange(len(order)) - np.searchsorted(ordered, ordered) < n]


# -- batches of users ------------------------------------------------------------------------------


class Ranker(Protocol):
    """Ranks items for a batch of users, whose scores fit into memory."""

    @property
    def scorer(self) -> Scorer: ...

    @property
    def scores_per_user(self) -> int: ...

    def rank(self, users: Entities) -> RankedItems: ...


def _make_ranker(
    scorer: Scorer,
    calibrator: Calibrator,
    options: RankingOptions,
    candidates: Candidates,
    n: int,
    averages: FloatArray | None,
) -> Ranker:
    scale = scorer.fitted.context.scale
    assert options.threshold is not None
    assert options.balance is not None
    by_prediction = options.rank_by == "prediction"
    objective = Objective("prediction" if by_prediction else "threshold", scale, options.threshold)
    if options.personalization is not None:
        objective = replace(objective, personalization=options.personalization, averages=averages)
    only_liked = options.balance == 1 and scorer.fitted.predicts_ratings
    if options.rank_by != "interaction" or only_liked:
        return RatingRanker(scorer, calibrator, objective, candidates, n)
    return InteractionRanker(
        scorer, calibrator, objective, candidates, n, options.balance, options.popularity_penalty
    )


def rank_users(ranker: Ranker, users: Entities, batch_size: int | None = None) -> RankedItems:
    """Rank items for any number of users; None chooses the size of batches."""
    if len(users) == 1:
        return ranker.rank(users)
    empty = RankedItems.empty(len(ranker.scorer.fitted.context.scale))
    if len(users) <= FEW_USERS:
        parts = [ranker.rank(_batch(users, start, 1)) for start in range(len(users))]
        moved = [top._replace(user=start + top.user) for start, top in enumerate(parts)]
        return RankedItems.concat([empty, *moved])
    n_threads = thread_count(None)
    if batch_size is None:  # such that all threads have the same number of batches
        rounds = -(-len(users) // (n_threads * max(1, MAX_SCORES // ranker.scores_per_user)))
        batch_size = -(-len(users) // (n_threads * rounds))
    starts = range(0, len(users), batch_size)
    per_thread = [starts[thread::n_threads] for thread in range(min(n_threads, len(starts)))]
    batches = {0: empty}
    jobs = [(ranker, users, own_starts, batch_size) for own_starts in per_thread]
    for own_starts, ranked in zip(per_thread, run_parallel(_rank_batches, jobs), strict=True):
        batches |= dict(zip(own_starts, ranked, strict=True))
    return RankedItems.concat([batches[start] for start in sorted(batches)])


def _rank_batches(
    ranker: Ranker, users: Entities, starts: Sequence[int], batch_size: int
) -> list[RankedItems]:
    """Rank the batches that begin at some users."""
    ranked = []
    with single_torch_thread():
        for start in starts:
            top = ranker.rank(_batch(users, start, batch_size))
            ranked.append(top._replace(user=start + top.user))
    return ranked


def _batch(users: Entities, start: int, size: int) -> Entities:
    return users.take(np.arange(start, min(start + size, len(users))))


def _fill_batches(users: Entities, size: int) -> Entities:
    """Repeat the last user until all batches are full, and more than FEW_USERS in all."""
    if not len(users):
        return users
    count = -(-max(len(users), FEW_USERS + 1) // size) * size
    return users.take(np.minimum(np.arange(count), len(users) - 1))


# -- by ratings ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RatingRanker:
    """Ranks by an objective of the predicted distribution."""

    scorer: Scorer
    calibrator: Calibrator
    objective: Objective
    candidates: Candidates
    n: int

    @property
    def scores_per_user(self) -> int:
        return len(self.candidates.allowed) * len(self.objective.scale)

    def rank(self, users: Entities) -> RankedItems:
        items = np.flatnonzero(self.candidates.items())
        leave_one_out = not self.candidates.exclude_seen
        scores = self.scorer.item_scores(users, items, leave_one_out=leave_one_out)
        context, mask = self.scorer.fitted.context, self.candidates.mask(users)
        return rank_by_ratings(scores, context, mask, self.n, self.objective, self.calibrator)


def rank_by_ratings(
    scores: ItemScores,
    context: Dataset,
    mask: BoolArray,
    n: int,
    objective: Objective,
    calibrator: Calibrator,
) -> RankedItems:
    """Return the n best items of each user among those in a mask (B, M), which is overwritten."""
    keep_candidates(*_bounds(scores, objective, calibrator), n, mask)
    user, items = np.nonzero(mask)
    probabilities = scores.probabilities(user, items)
    means = expected_ratings(probabilities, objective.scale.array())
    no_interactions = np.full(len(items), np.nan)
    if objective.rank_by == "prediction":  # calibration keeps the mean, so only the best need it
        values = objective.scores(items, means, probabilities)
        best = RankedItems(user, items, values, means, probabilities, no_interactions).best(n)
        query = Query.of_users(context, scores.users, best.user, best.items)
        return best._replace(probabilities=calibrator.apply(best.probabilities, query))
    query = Query.of_users(context, scores.users, user, items)
    calibrated = calibrator.apply(probabilities, query)
    values = objective.scores(items, means, calibrated)
    return RankedItems(user, items, values, means, calibrated, no_interactions).best(n)


def _bounds(
    scores: ItemScores, objective: Objective, calibrator: Calibrator
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return bounds of the objective for all items, both (B, M)."""
    if objective.rank_by == "prediction":
        lower = objective.unit_scores(scores.means(objective.unit))
        return lower, lower + 2 * MEAN_SLACK * max(1.0, objective.personalization)
    all_scores, calibrations = scores.scores(), calibrator.calibrations(scores.users)
    temperatures = np.array([calibration.temperature for calibration in calibrations])
    lower, upper = np.empty(all_scores.shape[:2]), np.empty(all_scores.shape[:2])
    for temperature in np.unique(temperatures):  # new users may have another one
        numbers = np.flatnonzero(temperatures == temperature)
        part = all_scores if len(numbers) == len(temperatures) else all_scores[numbers]
        criterion = objective.criterion([calibrations[number] for number in numbers])
        lower[numbers], upper[numbers] = criterion_bounds(part, criterion)
    # Ratings that are known have a calibration of their own.
    numbers = np.repeat(np.arange(len(scores.users)), scores.users.counts())
    rated = numbers, scores.users.rows.columns
    lower[rated], upper[rated] = -np.inf, np.inf
    return lower, upper


# -- by interactions -------------------------------------------------------------------------------

_MIN_CANDIDATES = 48  # most likely items whose ratings are predicted first
_MAX_PAIRS = 1 << 19  # whose ratings are predicted at a time
_MIN_SCORES_PER_USER = 1 << 10  # to limit the number of users of a batch
_USERS_AT_A_TIME = 256  # whose interaction probabilities are held
_SLACK = 1 + 1e-6  # probabilities may add up to a little more than 1


@dataclass(frozen=True)
class InteractionRanker:
    """Ranks by P(next interaction)^a · P(liked)^b, with a and b from `balance`."""

    scorer: Scorer
    calibrator: Calibrator
    objective: Objective
    candidates: Candidates
    n: int
    balance: float
    popularity_penalty: float = 0.0
    """Power of the probability for a user without interactions, by which scores are divided."""

    @property
    def scores_per_user(self) -> int:
        # About two thousand users share a pass over the tables, if there are not too many items.
        return max(_MIN_SCORES_PER_USER, len(self.candidates.allowed) // 16)

    def rank(self, users: Entities) -> RankedItems:
        # The probability of known items, if they are excluded, is 0 already.
        logs = self.scorer.interaction_log_probabilities(
            users, exclude_known=self.candidates.exclude_seen
        )
        logs[:, ~self.candidates.items()] = -np.inf
        logs -= self._penalties
        if not self.scorer.fitted.predicts_ratings or self.balance == 0:
            return self._rank_by_interaction(logs, users)
        return self._rank_by_both(logs, users)

    def _rank_by_interaction(self, logs: ScoreArray, users: Entities) -> RankedItems:
        """Rank by the probability of an interaction alone."""
        user, items = _pairs_between(logs, nth_largest(logs, self.n))
        scores = np.exp(logs[user, items].astype(np.float64))
        best = _first_n(self.n, user, items, scores)
        user, items, scores = user[best], items[best], scores[best]
        probabilities = self._rating_probabilities(users, user, items)
        interactions = scores * np.exp(self._penalties[items])
        means = self._means(probabilities)
        return RankedItems(user, items, scores, means, probabilities, interactions)

    def _rank_by_both(self, logs: ScoreArray, users: Entities) -> RankedItems:
        """Predict ratings of the most likely items, then of all that may still be listed."""
        lowest = nth_largest(logs, max(_MIN_CANDIDATES, 2 * self.n))
        first = self._rank_pairs(logs, users, *_pairs_between(logs, lowest))
        needed = self._needed_log_probability(first, len(users)).astype(np.float32)
        further = _pairs_between(logs, np.nextafter(needed, -np.inf), lowest)
        return RankedItems.concat([first, self._rank_pairs(logs, users, *further)]).best(self.n)

    def _rank_pairs(
        self, logs: ScoreArray, users: Entities, user: IntArray, items: IntArray
    ) -> RankedItems:
        """Rank items among some pairs."""
        parts = [RankedItems.empty(len(self.objective.scale))]
        for first in range(0, len(user), _MAX_PAIRS):
            part = slice(first, first + _MAX_PAIRS)
            parts.append(self._score_pairs(logs, users, user[part], items[part]))
        return RankedItems.concat(parts).best(self.n)

    def _score_pairs(
        self, logs: ScoreArray, users: Entities, user: IntArray, items: IntArray
    ) -> RankedItems:
        local_users, local = users, user
        if len(users) > 1:
            numbers, local = np.unique(user, return_inverse=True)
            local_users = users.take(numbers)
        probabilities = self._rating_probabilities(local_users, local, items)
        pair_logs = logs[user, items].astype(np.float64)
        with np.errstate(divide="ignore"):
            liked = np.log(self.objective.like_probabilities(probabilities))
        scores = np.exp(self._interaction_power * pair_logs + self._like_power * liked)
        interactions = np.exp(pair_logs + self._penalties[items])
        means = self._means(probabilities)
        return RankedItems(user, items, scores, means, probabilities, interactions)

    def _needed_log_probability(self, ranked: RankedItems, n_users: int) -> FloatArray:
        """Return the log probability of an interaction that a further item needs, (B,)."""
        counts = np.bincount(ranked.user, minlength=n_users)
        is_full = counts == self.n
        worst = np.zeros(n_users)
        worst[is_full] = ranked.scores[np.cumsum(counts)[is_full] - 1]
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(worst / _SLACK) / self._interaction_power)

    @cached_property
    def _penalties(self) -> ScoreArray:
        """Penalty of each item's log probability, (M,)."""
        model = self.scorer.fitted.interaction_model
        assert model is not None
        return np.float32(self.popularity_penalty) * model.base_log_probabilities

    @property
    def _interaction_power(self) -> float:
        return min(1.0, 2 - 2 * self.balance)

    @property
    def _like_power(self) -> float:
        return min(1.0, 2 * self.balance)

    def _rating_probabilities(self, users: Entities, user: IntArray, items: IntArray) -> FloatArray:
        """Return calibrated distributions of pairs, (n, K)."""
        if not self.scorer.fitted.predicts_ratings:
            return np.ones((len(user), 1))
        query = Query.of_users(self.scorer.fitted.context, users, user, items)
        if len(users) == 1 and self.scorer.fitted.axes == ("user",):
            # All items at once, for both rounds and for the user's next request.
            candidates = np.flatnonzero(self.candidates.items())
            leave_one_out = not self.candidates.exclude_seen
            scores = self.scorer.item_scores(users, candidates, leave_one_out=leave_one_out)
            return self.calibrator.apply(scores.probabilities(user, items), query)
        return self.calibrator.apply(self.scorer.rating_probabilities(query), query)

    def _means(self, probabilities: FloatArray) -> FloatArray:
        return expected_ratings(probabilities, self.objective.scale.array())


def _interaction_probabilities(
    scorer: Scorer, users: Entities, top: RankedItems, exclude_seen: bool
) -> FloatArray:
    """Return the probability of an interaction of each listed item, (n,)."""
    out = np.empty(len(top.items))
    for start in range(0, len(users), _USERS_AT_A_TIME):
        entries = slice(*np.searchsorted(top.user, [start, start + _USERS_AT_A_TIME]))
        batch = _batch(users, start, _USERS_AT_A_TIME)
        logs = scorer.interaction_log_probabilities(batch, exclude_known=exclude_seen)
        pairs = top.user[entries] - start, top.items[entries]
        out[entries] = np.exp(logs[pairs].astype(np.float64))
    return out


def _pairs_between(
    logs: ScoreArray, low: ScoreArray, high: ScoreArray | None = None
) -> tuple[IntArray, IntArray]:
    """Return users and items of scores from low (B,) up to, and without, high (B,)."""
    low = np.maximum(low, np.finfo(np.float32).min)  # -∞ is a probability of 0
    high = np.full(len(logs), np.inf, np.float32) if high is None else high
    return cells_between(logs, low, high, expected=len(logs) * _MIN_CANDIDATES)
