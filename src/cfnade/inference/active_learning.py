"""Active learning: the items whose ratings would tell most about a user.

A ridge component has a Gaussian posterior of each user (docs/concepts/components.md). A rating adds
the same matrix to its precision whatever the level, so the uncertainty after a rating can be
computed before it is given. The expected reduction is weighted by the probability that a user can
rate the item at all: the fraction of training users who did.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl
from annotated_types import Ge

from cfnade._typing import IntArray
from cfnade.data.dataset import Dataset
from cfnade.exceptions import PredictionError
from cfnade.fitted_model import FittedModel
from cfnade.inference.query import BoolArray, Entities
from cfnade.inference.results import item_columns
from cfnade.inference.scorer import Scorer
from cfnade.kernels.posterior import Evidence
from cfnade.utils.cancellation import check_cancelled
from cfnade.utils.validation import check_scalar

FloatArray = npt.NDArray[np.float64]

_CHUNK = 256  # items that are evaluated at a time


@dataclass(frozen=True, eq=False)
class ItemsToRate:
    """Items that a user should rate, best first; each assumes ratings of those before it.

    Uncertainties are relative to that about a user without ratings. They are NaN if the model has
    no measure of uncertainty; then the items are those with most ratings.
    """

    context: Dataset
    items: IntArray  # (n,)
    reductions: FloatArray  # (n,) expected reductions of the uncertainty
    n_item_ratings: IntArray  # (n,)
    uncertainty: float

    def to_frame(self) -> pl.DataFrame:
        """Return the columns rank, item, title, uncertainty_reduction, n_item_ratings."""
        reductions = pl.Series(self.reductions, dtype=pl.Float64).fill_nan(None)
        return pl.DataFrame(
            {
                "rank": 1 + np.arange(len(self.items)),
                **item_columns(self.context, self.items),
                "uncertainty_reduction": reductions,
                "n_item_ratings": self.n_item_ratings,
            }
        )


def suggest_items_to_rate(
    scorer: Scorer, uncertainty: Uncertainty | None, user: Entities, n: int, exclude_items: IntArray
) -> ItemsToRate:
    """Return the items that a user should rate; rated and excluded items are left out."""
    n = check_scalar("n", n, int, Ge(1), error=PredictionError)
    context, counts = scorer.fitted.context, scorer.rating_counts("item")
    rated = user.ratings(0)[0].astype(np.int64)
    allowed = np.ones(len(counts), bool)
    allowed[rated] = allowed[exclude_items[exclude_items >= 0]] = False
    if uncertainty is None:
        order = np.argsort(-np.where(allowed, counts, -1), kind="stable")
        items = order[: allowed.sum()][:n]
        return ItemsToRate(context, items, np.full(len(items), np.nan), counts[items], np.nan)
    probabilities = counts / max(context.n_users, int(counts.max(initial=1)))
    items, reductions, initial = uncertainty.best_items(rated, probabilities, allowed, n)
    return ItemsToRate(context, items, reductions, counts[items], initial)


class Uncertainty:
    """Posterior variance of a user's scores, weighted by items and relative to the prior."""

    def __init__(self, evidence: Evidence) -> None:
        self._products, D = evidence.products, len(evidence.prior)
        self._prior = np.diag(evidence.prior.astype(np.float64))
        weights = evidence.importance.astype(np.float64)
        self._lower = np.tril_indices(D)
        self._weights = weights / (weights @ np.linalg.inv(self._prior).diagonal())

    @classmethod
    def of_model(cls, fitted: FittedModel) -> Uncertainty | None:
        """Return the uncertainty by the first component that has one of users."""
        for member in fitted.members:
            for component in member.components.values():
                if component.axis == "user" and (evidence := component.evidence()) is not None:
                    return cls(evidence)
        return None

    def best_items(
        self, rated: IntArray, probabilities: FloatArray, allowed: BoolArray, n: int
    ) -> tuple[IntArray, FloatArray, float]:
        """Select items one after the other.

        Args:
            rated: Items that the user has rated.
            probabilities: Probability that a user can rate each item, (M,).
            allowed: Items that may be selected, (M,).
            n: Maximum number of items.

        Returns:
            The items, their expected reductions, and the uncertainty before.
        """
        precision = self._prior + self._information(rated).sum(0)
        initial = uncertainty = float(self._uncertainties(precision[None])[0])
        remaining, items, reductions = allowed & (probabilities > 0), list[int](), list[float]()
        for _ in range(min(n, int(remaining.sum()))):
            check_cancelled()
            item, reduction = self._best_item(precision, uncertainty, probabilities, remaining)
            items.append(item)
            reductions.append(reduction)
            remaining[item] = False
            precision = precision + self._information(np.array([item]))[0]
            uncertainty = float(self._uncertainties(precision[None])[0])
        return np.array(items, np.int64), np.array(reductions), initial

    def _best_item(
        self,
        precision: FloatArray,
        uncertainty: float,
        probabilities: FloatArray,
        remaining: BoolArray,
    ) -> tuple[int, float]:
        """Return the item with the largest expected reduction, and this reduction."""
        order = np.flatnonzero(remaining)
        order = order[np.argsort(-probabilities[order], kind="stable")]
        largest, item = -1.0, int(order[0])
        for first in range(0, len(order), _CHUNK):
            items = order[first : first + _CHUNK]
            if probabilities[items[0]] * uncertainty <= largest:  # an upper limit
                break
            after = self._uncertainties(precision + self._information(items))
            expected = probabilities[items] * (uncertainty - after)
            place = int(expected.argmax())
            if expected[place] > largest:
                largest, item = float(expected[place]), int(items[place])
        return item, largest

    def _information(self, items: IntArray) -> FloatArray:
        """Return what a rating of each item adds to the precision, (n, D, D)."""
        out = np.zeros((len(items), *self._prior.shape))
        rows, columns = self._lower
        out[:, rows, columns] = out[:, columns, rows] = self._products[items]
        return out

    def _uncertainties(self, precisions: FloatArray) -> FloatArray:
        """Return the uncertainty for each precision (n, D, D), (n,)."""
        variances = np.linalg.inv(precisions).diagonal(axis1=1, axis2=2)
        return np.asarray(variances @ self._weights)
