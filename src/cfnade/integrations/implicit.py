"""The interface of implicit's recommenders on sparse matrices; implicit itself is not needed.

Rows are users, columns items, and values the weights of interactions.
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
from cfnade.inference.similarity import POPULARITY

ScoreArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]
IndexArray = npt.NDArray[np.int32]
_LAST = -float(np.finfo(np.float32).max)  # implicit's score of what should not be listed


@dataclass(kw_only=True, eq=False)
class ImplicitRecommender:
    """Returns (ids, scores) from `recommend` and `similar_items`: (N,) of one, (B, N) of many.

    Excluded items (known, filtered, without interactions) come last, with the lowest float as
    their score, as in implicit. `model` is the fitted CFNADE.
    """

    seed: int = 0
    n_threads: int | None = None

    def fit(self, user_items: Any, show_progress: bool = False, callback: Any = None) -> Self:
        """Fit the model to a CSR matrix (users, items)."""
        if callback is not None:
            raise NotImplementedError("most of the model has a closed form: leave out callback")
        self._user_items = _csr(user_items, "user_items")
        cells = self._user_items.tocoo()
        cells.eliminate_zeros()
        if not cells.nnz:
            raise DataError("user_items has no interactions; they are its values other than 0")
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
        """Return the N items with the highest log probability of the next interaction.

        `user_items` has a row for each user: the items to exclude, and with `recalculate_user` the
        history to condition on instead of that of fit().
        """
        users = np.atleast_1d(userid)
        rows = _csr(user_items, "user_items")
        if rows.shape[0] != len(users):
            raise PredictionError(
                f"user_items has {rows.shape[0]} rows for {len(users)} users; give one for each, "
                "such as user_items[userid]"
            )
        history = rows if recalculate_user else self._user_items[self._checked(users, 0)]
        scores = self._full(
            self._interactions.log_probabilities(self._rows(history), exclude_known=False)
        )
        if filter_already_liked_items:
            scores[rows.nonzero()] = _LAST
        return self._best(scores, N, np.ndim(userid) == 0, filter_items, items)

    def similar_items(
        self,
        itemid: Any,
        N: int = 10,
        recalculate_item: bool = False,
        item_users: Any = None,
        filter_items: Any = None,
        items: Any = None,
    ) -> tuple[IndexArray, ScoreArray]:
        """Return the N items most associated with an item, which comes first.

        Scores are log p(other | item) - log p(other) / 2: popularity counts by half.
        """
        if recalculate_item or item_users is not None:
            raise NotImplementedError(
                "items have no vectors to recalculate; they are those of fit()"
            )
        item_ids = self._checked(np.atleast_1d(itemid), 1)
        weights, rows = self.model.fitted_.context.weights, np.arange(len(item_ids))
        mean = np.full(len(item_ids), 1.0 if weights is None else float(weights.mean()))
        single = csr_matrix((mean, (rows, item_ids)), (len(item_ids), self._user_items.shape[1]))
        model = self._interactions
        logs = model.log_probabilities(self._rows(single))
        scores = self._full(logs - (1 - POPULARITY) * model.base_log_probabilities)
        scores[rows, item_ids] = np.inf
        return self._best(scores, N, np.ndim(itemid) == 0, filter_items, items)

    def similar_users(self, *_: Any, **__: Any) -> Any:
        """Not implemented: users have no vectors to compare."""
        raise NotImplementedError("users are not compared; similar_items compares items")

    # -- shared -------------------------------------------------------------------------------

    @property
    def _interactions(self) -> InteractionModel:
        model = self.model.fitted_.interaction_model
        assert model is not None
        return model

    @property
    def _columns(self) -> IntArray:
        """Return the column of each item of the model; columns without interactions have none."""
        return np.asarray(self.model.fitted_.context.item_ids, np.int64)

    def _rows(self, rows: Any) -> InteractionRows:
        csr = rows[:, self._columns].tocsr()
        csr.sort_indices()
        arrays = csr.indptr.astype(np.int64), csr.indices.astype(np.int32)
        return InteractionRows(*arrays, csr.data.astype(np.float32), len(self._columns))

    def _full(self, scores: ScoreArray) -> ScoreArray:
        """Return scores for every column of the matrix."""
        padded = np.full((len(scores), self._user_items.shape[1]), _LAST, np.float32)
        padded[:, self._columns] = scores
        return padded

    def _checked(self, ids: IntArray, axis: int) -> IntArray:
        limit = self._user_items.shape[axis]
        if len(ids) and not (ids.min() >= 0 and ids.max() < limit):
            name = ("user", "item")[axis]
            raise IndexError(
                f"{name} {ids[(ids < 0) | (ids >= limit)][0]} is not in 0..{limit - 1}"
            )
        return ids

    def _best(
        self, scores: ScoreArray, N: int, single: bool, filter_items: Any, items: Any
    ) -> tuple[IndexArray, ScoreArray]:
        """Return the N best items of each row, or of the only row."""
        if items is not None and filter_items is not None:
            raise PredictionError("give items, which alone are ranked, or filter_items, not both")
        if filter_items is not None:
            scores[:, self._checked(np.asarray(filter_items), 1)] = _LAST
        candidates = np.arange(scores.shape[1])
        if items is not None:
            candidates = self._checked(np.asarray(items), 1)
        order = np.argsort(-scores[:, candidates], axis=1, kind="stable")[:, :N]
        ids = candidates[order].astype(np.int32)  # as implicit's own measures want them
        best = np.take_along_axis(scores[:, candidates], order, axis=1)
        return (ids[0], best[0]) if single else (ids, best)


def _csr(matrix: Any, name: str) -> Any:
    if getattr(matrix, "format", "") != "csr":
        raise DataError(f"{name} is a {type(matrix).__name__}; give a scipy.sparse CSR matrix")
    return matrix
