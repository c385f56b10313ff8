"""An algorithm for Surprise's cross_validate, GridSearchCV and dump."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from surprise import AlgoBase
from surprise.prediction_algorithms.predictions import Prediction

from cfnade.integrations.base import UNKNOWN_ID, Parameters, fit_model


@dataclass(kw_only=True, eq=False, repr=False)
class CFNADEAlgo(AlgoBase, Parameters):  # type: ignore[misc]
    """Takes the arguments of CFNADE. `model` is the fitted CFNADE; its ids are inner ids."""

    def __post_init__(self) -> None:
        AlgoBase.__init__(self)

    def fit(self, trainset: Any) -> Self:
        """Fit the model to a Trainset."""
        AlgoBase.fit(self, trainset)
        users, items, values = zip(*trainset.all_ratings(), strict=True)
        self.model = fit_model(self, np.array(users), np.array(items), values)
        return self

    def estimate(self, u: int | str, i: int | str) -> tuple[float, dict[str, Any]]:
        """Return the expected rating and the probability of each value; ids may be unknown."""
        cell = [_id_of(u)], [_id_of(i)]
        probabilities = self.model.predict_proba(*cell, unknown="mean")[0]
        values = map(float, self.model.classes_)
        details = {"probabilities": dict(zip(values, probabilities.tolist(), strict=True))}
        return float(self.model.predict(*cell, unknown="mean")[0]), details

    def test(self, testset: Any, verbose: bool = False) -> list[Prediction]:
        """Return the estimates of all pairs of a test set."""
        users = [self._inner(self.trainset.to_inner_uid, uid) for uid, _, _ in testset]
        items = [self._inner(self.trainset.to_inner_iid, iid) for _, iid, _ in testset]
        estimates = self.model.predict(users, items, unknown="mean")
        estimates = estimates.clip(*self.trainset.rating_scale)
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
            return UNKNOWN_ID


def _id_of(inner: int | str) -> int:
    """Return an inner id as the model has it; Surprise marks unknown ones by a string."""
    return UNKNOWN_ID if isinstance(inner, str) else int(inner)
