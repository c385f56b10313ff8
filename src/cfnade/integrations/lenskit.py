"""A scorer component for LensKit's pipelines."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from lenskit.data import Dataset, ItemList, QueryInput, RecQuery
from lenskit.pipeline import Component
from lenskit.training import Trainable, TrainingOptions

from cfnade.exceptions import DataError
from cfnade.inference.query import Entities
from cfnade.integrations.base import UNKNOWN_ID, Parameters, fit_model


class CFNADEScorer(Component[ItemList], Trainable):
    """Scores items by their expected ratings; unknown items have no score.

    The configuration are the arguments of CFNADE. New users are folded in from the history in the
    query. `model` is the fitted CFNADE; its ids are LensKit's numbers.
    """

    config: Parameters

    def is_trained(self) -> bool:
        """Return whether train() was called."""
        return hasattr(self, "model")

    def train(self, data: Dataset, options: TrainingOptions | None = None) -> None:
        """Fit the model to the ratings of a data set."""
        options = options or TrainingOptions()
        if self.is_trained() and not options.retrain:
            return
        arguments = self.config
        if options.rng is not None:
            arguments = replace(arguments, seed=int(options.random_generator().integers(2**31)))
        table = data.interactions().pandas(ids=False)
        if "rating" not in table.columns:
            raise DataError("these interactions have no ratings; CFNADEScorer predicts ratings")
        self.users, self.items = data.users, data.items
        users, items = (table[name].to_numpy(np.int64) for name in ("user_num", "item_num"))
        self.model = fit_model(arguments, users, items, table["rating"].to_numpy())

    def __call__(self, query: QueryInput, items: ItemList) -> ItemList:
        """Return the items with scores."""
        query = RecQuery.create(query)
        numbers = items.numbers(vocabulary=self.items, missing="negative")
        is_known = numbers >= 0
        scores = np.full(len(items), np.nan)
        user, history = self._resolve_user(query)
        if history is None:
            user_ids = np.full(np.count_nonzero(is_known), user)
            scores[is_known] = self.model.predict(user_ids, numbers[is_known], unknown="mean")
        else:
            histories = {"user": history}
            scores[is_known] = self.model.predict(
                "user", numbers[is_known].tolist(), histories=histories, unknown="mean"
            )
        return ItemList(items, scores=scores)

    def _resolve_user(self, query: RecQuery) -> tuple[int, dict[int, float] | None]:
        """Return the user's number, and the history if it differs from the training ratings."""
        user = None if query.user_id is None else self.users.number(query.user_id, missing=None)
        user = UNKNOWN_ID if user is None else int(user)
        history = query.history_items
        if history is None or not self.model.fitted_.takes_histories:
            return user, None
        ratings = history.field("rating")
        if ratings is None:
            return user, None
        numbers = history.numbers(vocabulary=self.items, missing="negative")
        is_trained = self.model.predictor_.items.indices(numbers) >= 0
        rated = dict(zip(numbers[is_trained].tolist(), ratings[is_trained].tolist(), strict=True))
        return user, None if rated == self._training_ratings(user) else rated

    def _training_ratings(self, user: int) -> dict[int, float]:
        """Return a user's ratings by item."""
        index = self.model.predictor_.users.index(user)
        if index < 0:
            return {}
        context = self.model.fitted_.context
        columns, levels = Entities.of_dataset(context, "user").ratings(index)
        items, stars = context.item_ids[columns], context.scale.array()[levels]
        return dict(zip(items.tolist(), stars.tolist(), strict=True))
