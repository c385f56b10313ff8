"""What to ask next: the items whose ratings would tell most of a person.

What is known of a user is a Gaussian (docs/concepts/components.md), and how much a rating adds to
it does not depend on its level: the precision grows by the same matrix. So the uncertainty that an
answer would leave can be calculated exactly before it is given. That somebody can answer at all is
as likely as it was among the people of the training data.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
from annotated_types import Ge

from cfnade.exceptions import PredictionError
from cfnade.inference.query import Entities
from cfnade.inference.results import item_columns
from cfnade.inference.scorer import Scorer
from cfnade.kernels.posterior import Evidence
from cfnade.utils.caching import locked_cached_property
from cfnade.utils.cancellation import check_cancelled
from cfnade.utils.validation import check_scalar

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

_PIECE = 256
"""Items whose answers are imagined at once."""


class NextQuestions(NamedTuple):
    """Items to ask about, the best first, and by how much each is expected to reduce the unknown.

    Shares of what is unknown of somebody of whom nothing is known. Each item stands on the answers
    to those before it.
    """

    items: IntArray  # (n,)
    reductions: FloatArray  # (n,)
    unknown: float


class Uncertainty:
    """How much is unknown of a person, and what an answer would leave of it."""

    def __init__(self, evidence: Evidence) -> None:
        self._products, D = evidence.products, len(evidence.prior)
        self._prior = np.diag(evidence.prior.astype(np.float64))
        weights = evidence.importance.astype(np.float64)
        self._places = np.tril_indices(D)
        self._weights = weights / (weights @ np.linalg.inv(self._prior).diagonal())

    def _told(self, items: IntArray) -> FloatArray:
        """What a rating of each item adds to the precision. Returns (n, D, D)."""
        out = np.zeros((len(items), *self._prior.shape))
        rows, columns = self._places
        out[:, rows, columns] = out[:, columns, rows] = self._products[items]
        return out

    def _unknown(self, precisions: FloatArray) -> FloatArray:
        """The share that is unknown, of precisions (n, D, D). Returns (n,)."""
        unknown: FloatArray = np.linalg.inv(precisions).diagonal(axis1=1, axis2=2) @ self._weights
        return unknown

    def best(
        self, known: IntArray, chances: FloatArray, allowed: BoolArray, n: int
    ) -> NextQuestions:
        """The n items to ask about, one after the other, of somebody who rated `known`.

        chances (M,) say how likely an answer is, allowed (M,) which items may be asked about.
        """
        precision = self._prior + self._told(known).sum(0)
        begun = unknown = float(self._unknown(precision[None])[0])
        open_, items, reductions = allowed & (chances > 0), [], []
        for _ in range(min(n, int(open_.sum()))):
            check_cancelled()
            item, reduction = self._next(precision, unknown, chances, open_)
            items.append(item)
            reductions.append(reduction)
            open_[item] = False
            precision = precision + self._told(np.array([item]))[0]
            unknown = float(self._unknown(precision[None])[0])
        return NextQuestions(np.array(items, np.int64), np.array(reductions), begun)

    def _next(
        self, precision: FloatArray, unknown: float, chances: FloatArray, open_: BoolArray
    ) -> tuple[int, float]:
        """The open item whose answer is expected to reduce most, and by how much."""
        order = np.flatnonzero(open_)
        order = order[np.argsort(-chances[order], kind="stable")]
        best, item = -1.0, int(order[0])
        for first in range(0, len(order), _PIECE):
            some = order[first : first + _PIECE]
            if chances[some[0]] * unknown <= best:  # an answer cannot tell more than there is
                break
            left = self._unknown(precision + self._told(some))
            expected = chances[some] * (unknown - left)
            place = int(expected.argmax())
            if expected[place] > best:
                best, item = float(expected[place]), int(some[place])
        return item, best


class Interview:
    """What to ask somebody next, by a model."""

    def __init__(self, scorer: Scorer) -> None:
        self._scorer = scorer

    def questions(self, user: Entities, n: int, without: IntArray) -> NextQuestions:
        """Items to ask about; those in `without`, and what is known, are left out.

        Where no side says what it knows of people the best known come first, and the rest is NaN.
        """
        n = check_scalar("n", n, int, Ge(1), error=PredictionError)
        counts, rated = self._scorer.known("item"), user.ratings(0)[0].astype(np.int64)
        allowed = np.ones(len(counts), bool)
        allowed[rated] = allowed[without[without >= 0]] = False
        if self._uncertainty is None:
            best = np.argsort(-np.where(allowed, counts, -1), kind="stable")[: allowed.sum()][:n]
            return NextQuestions(best, np.full(len(best), np.nan), np.nan)
        people = len(self._scorer.fitted.context.user_ids)
        chances = counts / max(people, int(counts.max(initial=1)))
        return self._uncertainty.best(rated, chances, allowed, n)

    def frame(self, user: Entities, n: int, without: IntArray) -> pl.DataFrame:
        """The same by raw id."""
        asked = self.questions(user, n, without)
        return pl.DataFrame(
            {
                "rank": 1 + np.arange(len(asked.items)),
                **item_columns(self._scorer.fitted.context, asked.items),
                "uncertainty_reduction": pl.Series(asked.reductions, dtype=pl.Float64).fill_nan(
                    None
                ),
                "n_item_ratings": self._scorer.known_of("item", asked.items),
            }
        )

    @locked_cached_property
    def _uncertainty(self) -> Uncertainty | None:
        members = self._scorer.fitted.members
        sides = [side for member in members for side in member.components.values()]
        evidence = [side.evidence() for side in sides if side.axis == "user"]
        return next((Uncertainty(one) for one in evidence if one is not None), None)
