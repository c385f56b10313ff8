"""Evaluation of top-n recommendation: test users, their held-out items, metrics.

    task = ranking_task(load_split("ml-1m", "liang:600"))
    model = EASE().fit(task.final_train)
    score_rankings(model.score, task.test).estimates()["ndcg@100"]

Interactions are csr_matrix of ones, users × items.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cfnade.data.dataset import Dataset
from cfnade.data.splits import Split
from cfnade.evaluation.ranking_metrics import (
    METRICS,
    BoolArray,
    Estimate,
    FloatArray,
    mean_estimate,
    ranked_hits,
)
from cfnade.exceptions import DataError, ModelError
from cfnade_baselines.base import IntArray, Scores, import_library

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

CUTOFFS = (10, 20, 50, 100)
_MAX_SCORES = 1 << 21
"""About how many scores are in memory at a time."""

ScoreFunction = Callable[["csr_matrix"], Any]
"""From the histories of some users, (B, M), to scores of all items, (B, M)."""


# -- interactions ----------------------------------------------------------------------------------


def interactions(ratings: Dataset, threshold: float | None = None) -> csr_matrix:
    """Return ratings of at least `threshold`: by default, of the upper quarter of the scale.

    On a scale of one level every rating is an interaction. Row u is user u of the ratings.
    """
    least = ratings.scale.default_threshold if threshold is None else threshold
    tolerance = 1e-9 * max(1.0, abs(least))  # 0.1 + 0.2 is 0.3 on the scale
    return rated_items(ratings.select(ratings.values >= least - tolerance))


def rated_items(ratings: Dataset) -> csr_matrix:
    """Return all ratings, high or low, as interactions."""
    sparse = import_library("scipy.sparse", "scipy", "top-n recommendation")
    pairs = ratings.users.astype(np.int32), ratings.items.astype(np.int32)
    shape = ratings.n_users, ratings.n_items
    matrix: csr_matrix = sparse.csr_matrix((np.ones(len(ratings), np.float32), pairs), shape)
    matrix.sort_indices()
    return matrix


def row_counts(matrix: csr_matrix) -> IntArray:
    """Return the number of interactions of each user, (N,)."""
    return np.asarray(np.diff(matrix.indptr))


def item_counts(matrix: csr_matrix) -> IntArray:
    """Return the number of interactions of each item, (M,)."""
    return np.bincount(matrix.indices, minlength=matrix.shape[1])


def drop_unused_items(matrix: csr_matrix) -> tuple[IntArray, csr_matrix]:
    """Return the indices of items with interactions, and the matrix of these items."""
    items = np.flatnonzero(item_counts(matrix))
    return items, matrix[:, items]


def score_all_items(score: ScoreFunction, items: IntArray) -> ScoreFunction:
    """Return a function that scores all items with a model of `items`; the others get -inf."""

    def score_all(histories: csr_matrix) -> Scores:
        out: Scores = np.full(histories.shape, -np.inf, np.float32)
        out[:, items] = score(histories[:, items])
        return out

    return score_all


# -- the task --------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class RankingQuery:
    """Users with their histories and held-out items; items are those of the whole data set."""

    users: IntArray  # (B,) index into the users of the ratings
    histories: csr_matrix  # (B, M) input of the model
    excluded: csr_matrix  # (B, M) known items, which are not recommended
    held_out: csr_matrix  # (B, M) relevant items, at least one per user
    candidates: BoolArray  # (M,) items that may be recommended

    def __len__(self) -> int:
        return len(self.users)

    def select(self, index: IntArray) -> RankingQuery:
        """Return the query of the users at this index."""
        histories, excluded = self.histories[index], self.excluded[index]
        held_out = self.held_out[index]
        return RankingQuery(self.users[index], histories, excluded, held_out, self.candidates)


@dataclass(frozen=True, eq=False)
class RankingTask:
    """A split as a task of top-n recommendation."""

    train: csr_matrix
    """Interactions to learn from during model selection."""
    valid: RankingQuery
    """Selects the model."""
    final_train: csr_matrix
    """Interactions to learn from with the selected options."""
    test: RankingQuery


def ranking_task(split: Split, threshold: float | None = None) -> RankingTask:
    """Return the task of a split; `threshold` as in `interactions`.

    Held-out users (splits liang:HELD, users:SEED) are represented by the interactions that the
    split gives of them, without their lower ratings; candidates are items with a training
    interaction (Liang et al. 2018). On other splits users are represented by their training
    interactions, for the test also by those of validation; items that they rated there are
    excluded, whatever the rating.
    """
    if len(split.test) == 0:
        raise DataError(f"split {split.name} has no test part; use another")
    # For the test, users of the training part may also contribute their validation ratings.
    is_trained = np.zeros(split.train.n_users, bool)
    is_trained[split.train.users] = True
    final = split.train.concat(split.valid.select(is_trained[split.valid.users]))
    task = RankingTask(
        _training_rows(split.train, threshold),
        _query(split.train, split.valid, split.fold_in, threshold),
        _training_rows(final, threshold),
        _query(final, split.test, split.fold_in, threshold),
    )
    if len(task.test) == 0:
        raise DataError(
            f"split {split.name}: no test rating is an interaction, so no list can be right; use "
            "another"
        )
    return task


def _training_rows(ratings: Dataset, threshold: float | None) -> csr_matrix:
    matrix = interactions(ratings, threshold)
    return matrix[np.flatnonzero(row_counts(matrix))]


def _query(
    train: Dataset, test: Dataset, fold_in: Dataset, threshold: float | None
) -> RankingQuery:
    seen = train.concat(fold_in)
    histories, held_out = interactions(seen, threshold), interactions(test, threshold)
    has_fold_in = len(fold_in) > 0
    trained_items = interactions(train, threshold) if has_fold_in else rated_items(train)
    excluded = histories if has_fold_in else rated_items(seen)
    users = np.flatnonzero(row_counts(held_out))
    return RankingQuery(
        users,
        histories[users],
        excluded[users],
        held_out[users],
        item_counts(trained_items) > 0,
    )


# -- metrics ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class UserScores:
    """Metrics of each user by name, such as "ndcg@100"; paired differences can be computed."""

    users: IntArray  # (B,)
    values: dict[str, FloatArray]  # each (B,)

    def estimates(self) -> dict[str, Estimate]:
        """Return means over users with standard errors."""
        return {name: mean_estimate(values) for name, values in self.values.items()}


def score_rankings(
    score: ScoreFunction, query: RankingQuery, *, cutoffs: Sequence[int] = CUTOFFS
) -> UserScores:
    """Rank all items by `score`, some users at a time, and evaluate the lists.

    Excluded items, items that are no candidates and items with the score -inf are not listed. For
    equal scores see `cfnade.evaluation.ranking_metrics`.
    """
    values = {f"{name}@{k}": np.empty(len(query)) for k in cutoffs for name in METRICS}
    chunk_size = max(1, _MAX_SCORES // max(1, query.held_out.shape[1]))
    for start in range(0, len(query), chunk_size):
        index = np.arange(start, min(start + chunk_size, len(query)))
        chunk = query.select(index)
        scores, n_relevant = _candidate_scores(score, chunk), row_counts(chunk.held_out)
        is_relevant = chunk.held_out.toarray() > 0
        for lists in _top_lists(scores, is_relevant, max(cutoffs)):
            hits, counts = ranked_hits(lists.scores, lists.is_relevant), n_relevant[lists.rows]
            for k in cutoffs:
                for name, metric in METRICS.items():
                    values[f"{name}@{k}"][index[lists.rows]] = metric(hits, counts, k)
    return UserScores(query.users, values)


def _candidate_scores(score: ScoreFunction, query: RankingQuery) -> Scores:
    """Return the scores of the query's users, -inf where an item is not listed. (b, M)."""
    scores: Scores = np.array(score(query.histories), np.float32)
    if scores.shape != query.histories.shape:
        raise ModelError(f"scores have shape {scores.shape}, not {query.histories.shape}")
    if np.isnan(scores).any() or np.isposinf(scores).any():
        raise ModelError("some scores are not finite, so items cannot be ranked")
    scores[:, ~query.candidates] = -np.inf
    scores[query.excluded.nonzero()] = -np.inf
    return scores


class _TopLists(NamedTuple):
    rows: IntArray  # (b,)
    scores: FloatArray  # (b, L) descending, NaN after the end
    is_relevant: BoolArray  # (b, L)


def _top_lists(scores: Scores, is_relevant: BoolArray, depth: int) -> Iterator[_TopLists]:
    """Yield lists of `depth` ranks, and longer ones where a tie would be cut."""
    depth = min(depth, scores.shape[1])
    last = -np.partition(-scores, depth - 1, axis=1)[:, depth - 1]
    length = np.where(np.isneginf(last), depth, (scores >= last[:, None]).sum(1))
    for rows, n_ranks in (
        (np.flatnonzero(length == depth), depth),
        (np.flatnonzero(length > depth), int(length.max(initial=0))),
    ):
        if len(rows):
            yield _TopLists(rows, *_top(scores[rows], is_relevant[rows], n_ranks))


def _top(scores: Scores, is_relevant: BoolArray, n_ranks: int) -> tuple[FloatArray, BoolArray]:
    """Return the top scores of each row, best first, and whether they are relevant. (b, L)."""
    top = np.argpartition(-scores, n_ranks - 1, axis=1)[:, :n_ranks]
    values = np.take_along_axis(scores, top, 1)
    order = np.argsort(-values, axis=1, kind="stable")
    top = np.take_along_axis(top, order, 1)
    descending = np.take_along_axis(scores, top, 1).astype(np.float64)
    listed = ~np.isneginf(descending)
    return np.where(listed, descending, np.nan), np.take_along_axis(is_relevant, top, 1) & listed
