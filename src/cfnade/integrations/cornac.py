"""A recommender for Cornac: its Experiment sets it beside its own models, on the same split."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from cornac.models import Recommender

from cfnade.integrations.base import NOBODY, Parameters, model_of

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(kw_only=True, eq=False, repr=False)
class CFNADERecommender(Recommender, Parameters):  # type: ignore[misc]
    """Takes the arguments of CFNADE. `model` answers what Cornac does not ask, by its indices."""

    name: str = "CF-NADE"
    trainable: bool = True

    def __post_init__(self) -> None:
        Recommender.__init__(self, self.name, self.trainable, self.verbose)
        self._asked: dict[tuple[int, int], np.float64] = {}

    def fit(self, train_set: Any, val_set: Any = None) -> Self:
        """Learn from a Dataset; what to validate on is drawn from it."""
        Recommender.fit(self, train_set, val_set)
        self._asked = {}
        if self.trainable:
            users, items, values = train_set.uir_tuple
            self.model = model_of(self, users.astype(np.int64), items.astype(np.int64), values)
        return self

    def transform(self, test_set: Any) -> None:
        """What will be asked one by one is answered at once."""
        users, items, _ = test_set.uir_tuple
        cells = zip(users.tolist(), items.tolist(), strict=True)
        self._asked = dict(zip(cells, self._said(users, items), strict=True))

    def score(self, user_idx: int, item_idx: int | None = None) -> Any:
        """The expected rating of an item, or of all of them (items,)."""
        if item_idx is None:
            every = np.arange(self.total_items)
            return self._said(np.full(len(every), user_idx), every)
        score = self._asked.get((int(user_idx), int(item_idx)))
        return self._said(*np.array([[user_idx], [item_idx]]))[0] if score is None else score

    def _said(self, users: IntArray, items: IntArray) -> FloatArray:
        """Of pairs (n,); an index beyond what was learnt from is of somebody or something new."""
        people = np.where(users < self.num_users, users, NOBODY)
        return self.model.predictor_.predict(
            people, np.where(items < self.num_items, items, NOBODY)
        )
