"""A recommender for Cornac's experiments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from cornac.models import Recommender

from cfnade.integrations.base import UNKNOWN_ID, Parameters, fit_model

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(kw_only=True, eq=False, repr=False)
class CFNADERecommender(Recommender, Parameters):  # type: ignore[misc]
    """Takes the arguments of CFNADE. `model` is the fitted CFNADE; its ids are Cornac's indices."""

    name: str = "CF-NADE"
    trainable: bool = True

    def __post_init__(self) -> None:
        Recommender.__init__(self, self.name, self.trainable, self.verbose)
        self._cached: dict[tuple[int, int], np.float64] = {}

    def fit(self, train_set: Any, val_set: Any = None) -> Self:
        """Fit the model to a Dataset; the validation part is drawn from it."""
        Recommender.fit(self, train_set, val_set)
        self._cached = {}
        if self.trainable:
            users, items, values = train_set.uir_tuple
            self.model = fit_model(self, users.astype(np.int64), items.astype(np.int64), values)
        return self

    def transform(self, test_set: Any) -> None:
        """Predict all pairs at once that Cornac asks for one by one."""
        users, items, _ = test_set.uir_tuple
        cells = zip(users.tolist(), items.tolist(), strict=True)
        self._cached = dict(zip(cells, self._predict(users, items), strict=True))

    def score(self, user_idx: int, item_idx: int | None = None) -> Any:
        """Return the expected rating of an item, or of all items, (items,)."""
        if item_idx is None:
            all_items = np.arange(self.total_items)
            return self._predict(np.full(len(all_items), user_idx), all_items)
        score = self._cached.get((int(user_idx), int(item_idx)))
        return self._predict(*np.array([[user_idx], [item_idx]]))[0] if score is None else score

    def _predict(self, users: IntArray, items: IntArray) -> FloatArray:
        """Return the expected ratings of pairs, (n,); indices beyond those of training are new."""
        user_ids = np.where(users < self.num_users, users, UNKNOWN_ID)
        item_ids = np.where(items < self.num_items, items, UNKNOWN_ID)
        return self.model.predict(user_ids, item_ids, unknown="mean")
