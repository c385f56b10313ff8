"""An algorithm for Surprise: its cross_validate, GridSearchCV and dump take it as one of theirs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from surprise import AlgoBase
from surprise.prediction_algorithms.predictions import Prediction

from cfnade.integrations.base import NOBODY, Parameters, model_of


@dataclass(kw_only=True, eq=False, repr=False)
class CFNADEAlgo(AlgoBase, Parameters):  # type: ignore[misc]
    """Takes the arguments of CFNADE. `model` answers what Surprise does not ask, by inner ids."""

    def __post_init__(self) -> None:
        AlgoBase.__init__(self)

    def fit(self, trainset: Any) -> Self:
        """Learn from a Trainset."""
        AlgoBase.fit(self, trainset)
        users, items, values = zip(*trainset.all_ratings(), strict=True)
        self.model = model_of(self, np.array(users), np.array(items), values)
        return self

    def estimate(self, u: int | str, i: int | str) -> tuple[float, dict[str, Any]]:
        """The expected rating, and the chance of each; an unknown user or item is no obstacle."""
        cell = [_known(u)], [_known(i)]
        chances = self.model.predictor_.predict_proba(*cell)[0]
        stars = map(float, self.model.classes_)
        details = {"probabilities": dict(zip(stars, chances.tolist(), strict=True))}
        return float(self.model.predictor_.predict(*cell)[0]), details

    def test(self, testset: Any, verbose: bool = False) -> list[Prediction]:
        """Estimates of many, at once."""
        users = [self._inner(self.trainset.to_inner_uid, uid) for uid, _, _ in testset]
        items = [self._inner(self.trainset.to_inner_iid, iid) for _, iid, _ in testset]
        estimates = self.model.predictor_.predict(users, items).clip(*self.trainset.rating_scale)
        predictions = [
            Prediction(*cell, estimate, {"was_impossible": False})
            for cell, estimate in zip(testset, estimates.tolist(), strict=True)
        ]
        if verbose:
            print(*predictions, sep="\n")
        return predictions

    @staticmethod
    def _inner(numbers: Any, raw: Any) -> int:
        try:
            return int(numbers(raw))
        except ValueError:
            return NOBODY


def _known(inner: int | str) -> int:
    """Surprise marks what it does not know by a text."""
    return NOBODY if isinstance(inner, str) else int(inner)
