"""Rows scored by plain torch, one context after another: obvious, and a reference for kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from tests.components.given import network_of
from tests.components.toy import Toy
from tests.queries import without
from torch import Tensor

from cfnade._typing import IntArray
from cfnade.components import RatingComponent
from cfnade.components.base import Array, Pairs
from cfnade.components.factor_analysis import FactorComponent
from cfnade.components.neighborhood import NeighborhoodComponent
from cfnade.data.csr import CsrRows
from cfnade.inference.query import KnownRatings
from cfnade.models.batch import Context


def plain_scores(component: RatingComponent) -> ScoresGiven:
    """Scores of cells, each of a row of the context, by the component's network."""
    network: Any = network_of(component)
    if isinstance(component, FactorComponent):
        return lambda context, rows, columns: torch.from_numpy(
            component.link().scores(
                network.predicted(network.hidden(context), rows, columns).numpy()
            )
        )
    if isinstance(component, Toy):
        return component.plain_scores
    if isinstance(component, NeighborhoodComponent):
        return lambda context, rows, columns: network.scores(context, rows, columns)
    return lambda context, rows, columns: network.scores(network.hidden(context), rows, columns)


ScoresGiven = Callable[[Context, Tensor, Tensor], Tensor]
"""Scores (n, K) of cells: the number of each one's context, and its column."""


def ratings_of(rows: CsrRows, row: int) -> KnownRatings:
    part = slice(rows.offsets[row], rows.offsets[row + 1])
    return rows.columns[part], rows.levels[part]


class PlainRows:
    """Scores of a component's rows, pair by pair from what the pair may be predicted from."""

    def __init__(self, scores: ScoresGiven, rows: CsrRows) -> None:
        self._scores, self.rows = scores, rows

    def score_pairs(self, pairs: Pairs) -> Array:
        known = []
        for place, (row, column, level) in enumerate(
            zip(pairs.row.tolist(), pairs.column.tolist(), pairs.levels.tolist(), strict=True)
        ):
            one = ratings_of(pairs.rows, row)
            if pairs.left_out is not None and pairs.left_out[place] >= 0:
                one = without(one, int(pairs.rows.columns[pairs.left_out[place]]))
            known.append(without(one, column) if level >= 0 else one)
        return self._asked(known, pairs.column)

    def score_columns(self, rows: CsrRows) -> Array:
        every = np.arange(rows.n_columns)
        lists = [self._asked([ratings_of(rows, n)] * len(every), every) for n in range(len(rows))]
        return np.array(lists).reshape(len(rows), len(every), rows.n_levels)

    def score_rows(self, columns: IntArray) -> Array:
        histories = [ratings_of(self.rows, row) for row in range(len(self.rows))]
        lists = [self._asked(histories, np.full(len(histories), c)) for c in columns.tolist()]
        return np.array(lists).reshape(len(columns), len(histories), self.rows.n_levels)

    def fold_in_output(self) -> None:
        """Nothing is folded in here."""

    @torch.no_grad()
    def _asked(self, known: Sequence[KnownRatings], columns: IntArray) -> Array:
        """Each column given its own context. Returns (n, K)."""
        counts = [len(row[0]) for row in known]
        joined = [np.concatenate([[], *(row[part] for row in known)]) for part in (0, 1)]
        parts = [np.concatenate([[0], np.cumsum(counts)]), *joined]
        context = Context(*(torch.from_numpy(part.astype(np.int64)) for part in parts))
        cells = np.arange(len(known)), np.maximum(columns, 0)
        scores = self._scores(context, *(torch.from_numpy(part.astype(np.int64)) for part in cells))
        return np.asarray(scores.numpy())
