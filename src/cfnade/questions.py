"""What a fitted estimator can be asked: Predictor and evaluation under one roof."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self, Unpack

import polars as pl

from cfnade.data.scale import Scale
from cfnade.evaluation.evaluate import (
    DEFAULT_K,
    RankingScores,
    RatingScores,
    evaluate,
    evaluate_ranking,
)
from cfnade.exceptions import PredictionError
from cfnade.fitted_model import FittedModel
from cfnade.inference.histories import History
from cfnade.inference.objectives import How
from cfnade.inference.predictor import Beside, Predictor
from cfnade.inference.results import probability_names
from cfnade.native import (
    KINDS,
    Kind,
    column_like,
    frame_as,
    histories_of,
    history_of,
    kind_of,
    read,
)
from cfnade.utils.validation import check_choice


class Questions:
    """Asks the predictor of a model that was fitted or loaded.

    Answers are NumPy arrays and polars frames; a question that holds columns or tables of pandas,
    polars or pyarrow is answered with those of the same library. A model that was fitted to a frame
    gives frames of its kind.
    """

    fitted_: FittedModel
    predictor_: Predictor
    scale_: Scale
    _output: Kind | None = None
    _fitted_to: Kind | None = None

    def set_output(self, kind: Kind | None) -> Self:
        """Frames are "pandas", "polars" or "pyarrow" from now on; None: by the question."""
        if kind is not None:
            check_choice("kind", kind, KINDS, error=PredictionError)
        self._output = kind
        return self

    def predict(self, users: Any, items: Any, **beside: Unpack[Beside]) -> Any:
        """The expected rating of each (user, item), in stars. Returns (n,).

        Raw ids, equally many of both, or one user for many items (or the reverse). histories
        gives new people by any name: {name: {item or title: stars}}, new_items new items with
        what known users said of them: {name: {user: stars}}. times, whole seconds since 1970,
        are for a model with time=True, and needed there.

        unknown says what happens to users and items that the model does not know: "mean" predicts
        means, "nan" NaN, "raise" raises PredictionError. Without it, means are predicted and one
        warning names how many ids are unknown.
        """
        values = self.predictor_.predict(users, items, **self._beside(beside))
        return column_like(values, "prediction", users, items)

    def predict_proba(self, users: Any, items: Any, **beside: Unpack[Beside]) -> Any:
        """The calibrated probability of each rating in `classes_`. Returns (n, K), or a frame with
        the columns p_1, p_2 … if users or items came as a column. Options as in predict."""
        chances = self.predictor_.predict_proba(users, items, **self._beside(beside))
        if kind_of(users, items) is None:
            return chances
        frame = pl.DataFrame(chances, schema=probability_names(self.scale_))
        return frame_as(frame, kind_of(users, items), users, items)

    def predict_frame(self, users: Any, items: Any, **beside: Unpack[Beside]) -> Any:
        """Both as a frame, with titles; known_of_user and known_of_item are 0 for unknown ids.
        Options as in predict."""
        frame = self.predictor_.predict_frame(users, items, **self._beside(beside))
        return frame_as(frame, self._kind(users, items), users, items)

    def recommend(
        self,
        users: Any = None,
        *,
        history: History | None = None,
        histories: Mapping[Any, History] | None = None,
        n: int = 10,
        exclude_seen: bool = True,
        **how: Unpack[How],
    ) -> Any:
        """The n best items for each user, for a new person's history, or for many new people's.

        Best by `rank` ("picked", weighed by `taste`; "expected", "at_least" a `threshold`, or a
        `quantile`), among `items`, `without` others, of `genres`, with `min_ratings` known ratings,
        more or less alike (`diversity`) or popular (`popularity_penalty`): all as in
        Predictor.recommend.
        """
        frame = self.predictor_.recommend(
            users,
            history=self._history(history),
            histories=histories_of(histories, rated=self._rated()),
            n=n,
            exclude_seen=exclude_seen,
            **how,
        )
        return frame_as(frame, self._kind(users, history, histories))

    def similar_items(self, item: Any, *, n: int = 10) -> Any:
        """The items most like one, by who picks them: as in Predictor.similar_items."""
        return frame_as(self.predictor_.similar_items(item, n=n), self._kind())

    def ask(
        self, user: Any = None, *, history: History | None = None, n: int = 10, without: Any = ()
    ) -> Any:
        """What to ask somebody next: the items whose ratings would tell most (Predictor.ask)."""
        rated = self._history(history)
        frame = self.predictor_.ask(user, history=rated, n=n, without=without)
        return frame_as(frame, self._kind(user, history))

    def explain(
        self,
        *,
        item: Any,
        user: Any = None,
        history: History | None = None,
        of: Literal["rating", "pick"] | None = None,
    ) -> Any:
        """How each known rating moved the prediction of one item, or with of="pick" its chance to
        be picked next; the strongest first."""
        rated = self._history(history)
        frame = self.predictor_.explain(item=item, user=user, history=rated, of=of)
        return frame_as(frame, self._kind(history))

    def evaluate(self, test: Any) -> RatingScores:
        """Score the predictions of held-out ratings: Ratings, or anything that load() takes."""
        return evaluate(self.fitted_, read(test, self.scale_))

    def evaluate_ranking(
        self,
        test: Any,
        *,
        k: int | Sequence[int] = DEFAULT_K,
        threshold: float | None = None,
        max_users: int | None = None,
        exclude_seen: bool = True,
    ) -> RankingScores:
        """Score the top-k lists that `recommend` returns, on held-out ratings or interactions.

        Args:
            test: Held-out data: Ratings, or anything that load() takes.
            k: How many ranks count, or several such numbers.
            threshold: Lowest rating of a relevant item; the upper quarter of the scale by default.
            max_users: Evaluate a sample of at most so many users.
            exclude_seen: False ranks known items as well, and the test may hold repeats.
        """
        return evaluate_ranking(
            self.predictor_,
            read(test, self.scale_),
            k=k,
            threshold=threshold,
            max_users=max_users,
            exclude_seen=exclude_seen,
        )

    # -- tables -------------------------------------------------------------------------------

    def _kind(self, *asked: Any) -> Kind | None:
        """Of which library a frame is."""
        return self._output or kind_of(*asked) or self._fitted_to

    def _rated(self) -> bool:
        return not self.fitted_.context.implicit

    def _history(self, history: Any) -> Any:
        return history_of(history, rated=self._rated())

    def _beside(self, beside: Beside) -> Beside:
        asked: Beside = {"unknown": None, **beside}
        if "histories" in asked:
            asked["histories"] = histories_of(asked["histories"], rated=self._rated())
        return asked
