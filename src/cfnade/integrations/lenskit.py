"""A scorer for LensKit: trained in its pipelines, for predictions and for lists."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from lenskit.data import Dataset, ItemList, QueryInput, RecQuery
from lenskit.pipeline import Component
from lenskit.training import Trainable, TrainingOptions

from cfnade.exceptions import DataError
from cfnade.inference.query import Entities
from cfnade.integrations.base import NOBODY, Parameters, model_of


class CFNADEScorer(Component[ItemList], Trainable):  # type: ignore[misc]
    """Scores are expected ratings; of items that the data did not name there are none.

    Its configuration are the arguments of CFNADE. A person is known by the history in the query,
    so that somebody new needs no training; `model` answers what LensKit does not ask, by numbers.
    """

    config: Parameters

    def is_trained(self) -> bool:
        """Whether train() was called."""
        return hasattr(self, "model")

    def train(self, data: Dataset, options: TrainingOptions | None = None) -> None:
        """Learn from the ratings of a data set."""
        options = options or TrainingOptions()
        if self.is_trained() and not options.retrain:
            return
        told = self.config
        if options.rng is not None:
            told = replace(told, seed=int(options.random_generator().integers(2**31)))
        table = data.interactions().pandas(ids=False)
        if "rating" not in table.columns:
            raise DataError("these interactions have no ratings; CFNADEScorer predicts ratings")
        self.users, self.items = data.users, data.items
        users, items = (table[name].to_numpy(np.int64) for name in ("user_num", "item_num"))
        self.model = model_of(told, users, items, table["rating"].to_numpy())

    def __call__(self, query: QueryInput, items: ItemList) -> ItemList:
        """The same items with scores."""
        query = RecQuery.create(query)
        numbers = items.numbers(vocabulary=self.items, missing="negative")
        predictor, known = self.model.predictor_, numbers >= 0
        scores = np.full(len(items), np.nan)
        user, history = self._known(query)
        if history is None:
            asked = np.full(np.count_nonzero(known), user)
            scores[known] = predictor.predict(asked, numbers[known])
        else:
            histories = {"asked": history}
            scores[known] = predictor.predict("asked", numbers[known].tolist(), histories=histories)
        return ItemList(items, scores=scores)

    def _known(self, query: RecQuery) -> tuple[int, dict[int, float] | None]:
        """By number, if what the query says they rated is what was learnt from, else by that."""
        user = None if query.user_id is None else self.users.number(query.user_id, missing=None)
        user = NOBODY if user is None else int(user)
        history = query.history_items
        ratings = None if history is None else history.field("rating")
        if ratings is None or not self.model.fitted_.takes_histories:
            return user, None
        numbers = history.numbers(vocabulary=self.items, missing="negative")
        ours = self.model.predictor_.items.indices(numbers) >= 0
        rated = dict(zip(numbers[ours].tolist(), ratings[ours].tolist(), strict=True))
        return user, None if rated == self._learnt_of(user) else rated

    def _learnt_of(self, user: int) -> dict[int, float]:
        """The ratings of a user by item."""
        index = self.model.predictor_.users.index(user)
        if index < 0:
            return {}
        context = self.model.fitted_.context
        columns, levels = Entities.of_dataset(context, "user").ratings(index)
        items, stars = context.item_ids[columns], context.scale.array()[levels]
        return dict(zip(items.tolist(), stars.tolist(), strict=True))
