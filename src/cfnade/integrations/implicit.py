"""For people who come from implicit: the same calls with sparse matrices, answered by our model.

Rows are users, columns items, values how much each pick counts. implicit itself is not needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix

from cfnade.data.load import LoadOptions
from cfnade.data.raw_table import RawTable
from cfnade.data.validate import build
from cfnade.estimator import CFNADE
from cfnade.exceptions import DataError, PredictionError
from cfnade.implicit import InteractionModel, InteractionRows
from cfnade.inference.similarity import POPULAR

ScoreArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]
IndexArray = npt.NDArray[np.int32]
_LAST = -float(np.finfo(np.float32).max)  # implicit's score of what should not be listed


@dataclass(kw_only=True, eq=False)
class PickRecommender:
    """`recommend` and `similar_items` give (ids, scores): (N,) of one, (B, N) of many.

    What was left out (already picked, filtered, never picked by anybody) stands at the end, with
    the lowest number that there is, as implicit does it. `model` is the CFNADE.
    """

    seed: int = 0
    n_threads: int | None = None

    def fit(self, user_items: Any, show_progress: bool = False, callback: Any = None) -> Self:
        """Learn from a CSR matrix (users, items)."""
        if callback is not None:
            raise NotImplementedError("nothing is called back: most of the model is made in one go")
        self._picked = _csr(user_items, "user_items")
        cells = self._picked.tocoo()
        cells.eliminate_zeros()
        if not cells.nnz:
            raise DataError("user_items holds no picks; values other than 0 are what was picked")
        users, items = cells.row.astype(np.int64), cells.col.astype(np.int64)
        weights = cells.data.astype(np.float64)
        table = RawTable.from_arrays(users, items, weights=weights)
        self.model = CFNADE(seed=self.seed, n_threads=self.n_threads, verbose=show_progress)
        self.model.fit(build(table, LoadOptions()))
        return self

    def recommend(
        self,
        userid: Any,
        user_items: Any,
        N: int = 10,
        filter_already_liked_items: bool = True,
        filter_items: Any = None,
        recalculate_user: bool = False,
        items: Any = None,
    ) -> tuple[IndexArray, ScoreArray]:
        """The N items with the highest log chance to be picked next.

        user_items has a row for each user asked: what not to list, and if recalculate_user what
        they are known by, instead of what they picked in fit().
        """
        users = np.atleast_1d(userid)
        rows = _csr(user_items, "user_items")
        if rows.shape[0] != len(users):
            raise PredictionError(
                f"user_items has {rows.shape[0]} rows for {len(users)} users; give one for each, "
                "such as user_items[userid]"
            )
        picked = rows if recalculate_user else self._picked[self._checked(users, 0)]
        left_out = rows if filter_already_liked_items else None
        scores = self._full(
            self._interactions.log_probabilities(self._rows(picked), exclude_known=False)
        )
        return self._best(scores, N, np.ndim(userid) == 0, filter_items, items, left_out)

    def similar_items(
        self,
        itemid: Any,
        N: int = 10,
        recalculate_item: bool = False,
        item_users: Any = None,
        filter_items: Any = None,
        items: Any = None,
    ) -> tuple[IndexArray, ScoreArray]:
        """The N items that those who picked one pick more than others do, itself the first.

        Scores are log p(item | this one) - log p(item) / 2: popularity counts by half.
        """
        if recalculate_item or item_users is not None:
            raise NotImplementedError("an item is known by what it was picked with in fit()")
        asked = self._checked(np.atleast_1d(itemid), 1)
        rows = np.arange(len(asked))
        once = np.full(len(asked), self._mean())
        alone = csr_matrix((once, (rows, asked)), (len(asked), self._picked.shape[1]))
        model = self._interactions
        logs = model.log_probabilities(self._rows(alone))
        scores = self._full(logs - (1 - POPULAR) * model.base_log_probabilities)
        scores[rows, asked] = np.inf
        return self._best(scores, N, np.ndim(itemid) == 0, filter_items, items, None)

    def similar_users(self, *_: Any, **__: Any) -> Any:
        """Not answered: a person is what they picked, and has no vector to compare."""
        raise NotImplementedError("people are not compared; similar_items compares items")

    # -- shared -------------------------------------------------------------------------------

    @property
    def _interactions(self) -> InteractionModel:
        model = self.model.fitted_.interaction_model
        assert model is not None
        return model

    @property
    def _columns(self) -> IntArray:
        """The column that each item of the model has: those that nobody picked have none."""
        return np.asarray(self.model.fitted_.context.item_ids, np.int64)

    def _rows(self, rows: Any) -> InteractionRows:
        own = rows[:, self._columns].tocsr()
        own.sort_indices()
        arrays = own.indptr.astype(np.int64), own.indices.astype(np.int32)
        return InteractionRows(*arrays, own.data.astype(np.float32), len(self._columns))

    def _mean(self) -> float:
        weights = self.model.fitted_.context.weights
        return 1.0 if weights is None else float(weights.mean())

    def _full(self, scores: ScoreArray) -> ScoreArray:
        """Of every column of the matrix."""
        whole = np.full((len(scores), self._picked.shape[1]), _LAST, np.float32)
        whole[:, self._columns] = scores
        return whole

    def _checked(self, ids: IntArray, axis: int) -> IntArray:
        limit = self._picked.shape[axis]
        if len(ids) and not (ids.min() >= 0 and ids.max() < limit):
            what = ("user", "item")[axis]
            raise IndexError(
                f"{what} {ids[(ids < 0) | (ids >= limit)][0]} is not in 0..{limit - 1}"
            )
        return ids

    def _best(
        self,
        scores: ScoreArray,
        N: int,
        single: bool,
        filter_items: Any,
        items: Any,
        left_out: Any,
    ) -> tuple[IndexArray, ScoreArray]:
        if items is not None and filter_items is not None:
            raise PredictionError("give items, which alone are ranked, or filter_items, not both")
        if left_out is not None:
            scores[left_out.nonzero()] = _LAST
        if filter_items is not None:
            scores[:, self._checked(np.asarray(filter_items), 1)] = _LAST
        among = np.arange(scores.shape[1])
        if items is not None:
            among = self._checked(np.asarray(items), 1)
        order = np.argsort(-scores[:, among], axis=1, kind="stable")[:, :N]
        ids = among[order].astype(np.int32)  # as implicit's own measures want them
        best = np.take_along_axis(scores[:, among], order, axis=1)
        return (ids[0], best[0]) if single else (ids, best)


def _csr(matrix: Any, name: str) -> Any:
    if getattr(matrix, "format", "") != "csr":
        raise DataError(f"{name} is a {type(matrix).__name__}; give a scipy.sparse CSR matrix")
    return matrix
