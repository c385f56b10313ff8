"""Validation of implicit components: questions to users, and the metric of the answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
from annotated_types import Ge

from cfnade._typing import IntArray
from cfnade.exceptions import TrainingError
from cfnade.implicit.base import ScoreArray
from cfnade.implicit.rows import InteractionRows
from cfnade.kernels.blending import relevance, top_items
from cfnade.utils.validation import options

FloatArray = npt.NDArray[np.float64]
MetricName = Literal["ndcg", "recall"]
_TITLES = {"ndcg": "NDCG", "recall": "recall"}


@dataclass(frozen=True)
class Question:
    """Known interactions of some users, and the interactions that followed them."""

    history: InteractionRows
    answers: InteractionRows


@options(TrainingError, "metric option")
class RankingMetric:
    """A metric of the first k unknown items: a sum over hits, divided by its largest value.

    For "ndcg", a hit at rank r counts 1 / log2(1 + r); for "recall", each hit counts 1, and the
    divisor is the number of answers.
    """

    metric: MetricName = "ndcg"
    k: Annotated[int, Ge(1)] = 20

    def __str__(self) -> str:
        return f"{_TITLES[self.metric]}@{self.k}"

    @property
    def gains(self) -> FloatArray:
        """The value of a hit at each of the first k ranks, (k,)."""
        if self.metric == "recall":
            return np.ones(self.k)
        return np.asarray(1 / np.log2(np.arange(2, self.k + 2)))

    def ideal(self, counts: IntArray) -> FloatArray:
        """Return what values are divided by, for each number of answers; 1 without answers."""
        if self.metric == "recall":
            return np.maximum(counts, 1).astype(np.float64)
        sums = np.concatenate([[1.0], np.cumsum(self.gains)])
        return np.asarray(sums[np.minimum(counts, self.k)])

    def evaluate(self, scores: ScoreArray, question: Question) -> FloatArray:
        """Return the metric of each user's list by scores (B, M). (B,)."""
        history, answers = question.history, question.answers
        lists = top_items(scores, history.indptr, history.columns, self.k)
        hits = relevance(lists, answers.indptr, answers.columns)
        total = hits @ self.gains[: lists.shape[1]]
        return np.asarray(total / self.ideal(answers.counts))
