"""What a fitted estimator can be asked: Predictor and evaluation under one roof."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Unpack

import numpy as np
import numpy.typing as npt
import polars as pl

from cfnade.data.scale import Scale
from cfnade.evaluation import Scores, evaluate
from cfnade.fitted import FittedModel
from cfnade.fitting import read
from cfnade.list_evaluation import KS, ListScores, evaluate_lists
from cfnade.predictor import Predictor
from cfnade.predictor.cells import Beside
from cfnade.predictor.histories import History
from cfnade.predictor.ranking import How

FloatArray = npt.NDArray[np.float64]


class Questions:
    """Asks the predictor of a model that was fitted or loaded."""

    fitted_: FittedModel
    predictor_: Predictor
    scale_: Scale

    def predict(self, users: Any, items: Any, **beside: Unpack[Beside]) -> FloatArray:
        """The expected rating of each (user, item), in stars. Returns (n,).

        Raw ids, equally many of both, or one user for many items (or the reverse). histories
        gives new people by any name: {name: {item or title: stars}}, new_items new items with
        what known users said of them: {name: {user: stars}}. times, whole seconds since 1970,
        are for a model with time=True, and needed there.
        """
        return self.predictor_.predict(users, items, **beside)

    def predict_proba(self, users: Any, items: Any, **beside: Unpack[Beside]) -> FloatArray:
        """The calibrated probability of each rating in `classes_`. Returns (n, K)."""
        return self.predictor_.predict_proba(users, items, **beside)

    def predict_frame(self, users: Any, items: Any, **beside: Unpack[Beside]) -> pl.DataFrame:
        """Both as a frame, with titles; known_of_user and known_of_item are 0 for unknown ids."""
        return self.predictor_.predict_frame(users, items, **beside)

    def recommend(
        self,
        users: Any = None,
        *,
        history: History | None = None,
        histories: Mapping[Any, History] | None = None,
        n: int = 10,
        exclude_seen: bool = True,
        **how: Unpack[How],
    ) -> pl.DataFrame:
        """The n best items for each user, for a new person's history, or for many new people's.

        Best by `rank` ("picked", weighed by `taste`; "expected", "at_least" a `threshold`, or a
        `quantile`), among `items`, `without` others, of `genres`, with `min_ratings` known ratings,
        more or less alike (`diversity`): all as in Predictor.recommend.
        """
        return self.predictor_.recommend(
            users, history=history, histories=histories, n=n, exclude_seen=exclude_seen, **how
        )

    def similar_items(self, item: Any, *, n: int = 10) -> pl.DataFrame:
        """The items most like one, by who picks them: as in Predictor.similar_items."""
        return self.predictor_.similar_items(item, n=n)

    def explain(
        self,
        *,
        item: Any,
        user: Any = None,
        history: History | None = None,
        of: Literal["rating", "pick"] | None = None,
    ) -> pl.DataFrame:
        """How each known rating moved the prediction of one item, or with of="pick" its chance to
        be picked next; the strongest first."""
        return self.predictor_.explain(item=item, user=user, history=history, of=of)

    def evaluate(self, test: Any) -> Scores:
        """Scores on ratings held out from fit(): Ratings, or anything that load() takes."""
        return evaluate(self.fitted_, read(test, self.scale_))

    def evaluate_lists(
        self,
        test: Any,
        *,
        k: int | Sequence[int] = KS,
        threshold: float | None = None,
        people: int | None = None,
    ) -> ListScores:
        """Scores of the first k places of what `recommend` lists, on ratings held out from fit().

        Right is what a person gave `threshold` stars or more; `people` asks so many of them only.
        """
        ratings = read(test, self.scale_)
        return evaluate_lists(self.predictor_, ratings, k=k, threshold=threshold, people=people)
