"""Weights of components, found on users whose next interactions are known.

Each component's scores are standardized per user (over all items), as `InteractionModel` does. A
coordinate search over non-negative weights maximizes the validation metric on the union of every
component's first items. It runs on several random halves of the users, and the weights are
averaged, which is more stable than one search. If the result is below the best component on all
users, only that component gets a weight.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cfnade.implicit.base import ScoreArray
from cfnade.implicit.validation import FloatArray, Question, RankingMetric
from cfnade.kernels.blending import (
    add_standardized,
    blended_gains,
    merge_lists,
    relevance,
    top_items,
)

DEPTH, WIDTH = 60, 400
"""First items of each component that are candidates, and the most candidates of a user."""
FIRST_STEPS = (0.05, 0.1, 0.2, 0.3, 0.45, 0.7, 1.0, 1.5)
"""Weights that are tried, times the largest one."""
LATER_STEPS = (0.0, 0.6, 0.8, 1.25, 1.6)
"""Factors of a weight that are tried from the second round on."""
ROUNDS, HALVES, LEAST = 6, 8, 0.03


@dataclass(frozen=True)
class Candidates:
    """Standardized scores of components on candidate items of some users."""

    scores: ScoreArray  # (J, B, C)
    hits: npt.NDArray[np.int8]  # (B, C) whether each is an answer, -1 behind the end
    ideal: FloatArray  # (B,)
    metric: RankingMetric

    def evaluate(self, weights: Sequence[float] | FloatArray) -> FloatArray:
        """Return the metric of each user's weighted sum. (B,)."""
        gain = blended_gains(self.scores, self.hits, np.asarray(weights), self.metric.gains)
        return np.asarray(gain / self.ideal)

    def select(self, users: npt.NDArray[np.int64]) -> Candidates:
        """Return some users."""
        scores = np.ascontiguousarray(self.scores[:, users])
        return Candidates(scores, self.hits[users], self.ideal[users], self.metric)


def collect_candidates(
    scores: Mapping[str, ScoreArray], question: Question, metric: RankingMetric
) -> Candidates:
    """Return candidates from the scores (B, M) of each component; the scores are kept."""
    history, answers = question.history, question.answers
    depth = max(metric.k, DEPTH)
    lists = [top_items(part, history.indptr, history.columns, depth) for part in scores.values()]
    width = min(depth * len(scores), max(WIDTH, metric.k))
    items = merge_lists(np.stack(lists), width, history.n_columns)
    hits = relevance(items, answers.indptr, answers.columns)
    hits[items < 0] = -1
    places = np.maximum(items, 0)
    standard = []
    for part in scores.values():
        total = np.zeros_like(part)
        add_standardized(part, 1.0, total)
        standard.append(np.take_along_axis(total, places, 1))
    return Candidates(np.stack(standard), hits, metric.ideal(answers.counts), metric)


def join_candidates(parts: Sequence[Candidates]) -> Candidates:
    """Return the users of several parts, one after the other."""
    width = max(part.hits.shape[1] for part in parts)

    def padded(part: Candidates) -> Candidates:
        more = width - part.hits.shape[1]
        scores = np.pad(part.scores, ((0, 0), (0, 0), (0, more)))
        hits = np.pad(part.hits, ((0, 0), (0, more)), constant_values=-1)
        return Candidates(scores, hits, part.ideal, part.metric)

    wide = [padded(part) for part in parts]
    return Candidates(
        np.concatenate([part.scores for part in wide], 1),
        np.concatenate([part.hits for part in wide]),
        np.concatenate([part.ideal for part in wide]),
        parts[0].metric,
    )


def search_weights(candidates: Candidates) -> FloatArray:
    """Return weights that sum to 1, by coordinate search from the best component. (J,)."""
    count = len(candidates.scores)
    singles = np.array([candidates.evaluate(unit).mean() for unit in np.eye(count)])
    weights = np.eye(count)[singles.argmax()]
    best = float(singles.max())
    for number in range(ROUNDS):
        before = best
        for j in np.argsort(-singles).tolist():
            largest = weights.max()
            steps = [step * largest for step in FIRST_STEPS]
            if number > 0 and weights[j] > 0:
                steps = [step * weights[j] for step in LATER_STEPS]
            for step in steps:
                trial = weights.copy()
                trial[j] = step
                if trial.any() and (value := float(candidates.evaluate(trial).mean())) > best:
                    best, weights = value, trial
        if best - before < 2e-5:
            break
    return np.asarray(weights / weights.sum())


def _without_idle(candidates: Candidates, weights: FloatArray) -> FloatArray:
    """Drop components whose gain is less than a tenth of its standard error, lightest first."""
    for j in np.argsort(weights).tolist():
        if weights[j] == 0 or np.count_nonzero(weights) == 1:
            continue
        fewer = weights.copy()
        fewer[j] = 0.0
        fewer /= fewer.sum()
        gain = candidates.evaluate(weights) - candidates.evaluate(fewer)
        if gain.mean() <= 0.1 * gain.std() / np.sqrt(len(gain)):
            weights = fewer
    return weights


@dataclass(frozen=True)
class Blend:
    """The weight of each component, and the validation scores of the components and the blend."""

    weights: dict[str, float]
    component_scores: dict[str, float]
    score: float


def fit_weights(names: Sequence[str], candidates: Candidates, *, seed: int) -> Blend:
    """Return averaged weights, or the best component alone where that is better."""
    rng, users = np.random.default_rng(seed), len(candidates.hits)
    count = len(names)
    halves = [np.sort(rng.permutation(users)[: max(1, users // 2)]) for _ in range(HALVES)]
    weights = np.mean([search_weights(candidates.select(half)) for half in halves], axis=0)
    weights[weights < LEAST] = 0.0
    weights = _without_idle(candidates, weights / weights.sum())
    singles = np.array([candidates.evaluate(unit).mean() for unit in np.eye(count)])
    blended = float(candidates.evaluate(weights).mean())
    if blended < singles.max():
        weights, blended = np.eye(count)[singles.argmax()], float(singles.max())
    return Blend(
        {name: float(weight) for name, weight in zip(names, weights, strict=True)},
        {name: float(value) for name, value in zip(names, singles, strict=True)},
        blended,
    )
