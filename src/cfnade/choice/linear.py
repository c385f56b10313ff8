"""The linear path: each item's picks, regressed on all others.

Steck's EASE (2019). x are a person's picks, the score of item i is x·B_i, and column i of B is the
ridge regression of item i's picks on those of all other items, which has a closed form for all
items at once:

    P = (XᵀX + Λ)⁻¹,     B_ji = -P_ji / P_ii,     B_ii = 0
    Λ_ii = λ + δ/(1-δ) (XᵀX)_ii

With δ > 0 it is Steck's EDLAE (2020): the regression on picks of which a share δ was dropped at
random, on average over what is dropped; what many picked is then trusted less.
That needs M² numbers. In larger catalogues column i is the same regression on the `neighbours`
items that are picked together with i most often, solved by itself, and B is sparse. With all items
as neighbours, and every two picked together by somebody, it is the same B.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, Gt, Lt

from cfnade._typing import IntArray
from cfnade.choice.choice_side import ChoiceSide, ScoreArray, Tables
from cfnade.choice.picks import Picks
from cfnade.exceptions import ModelError
from cfnade.kernels.cooccurrence import co_picks, largest_co_picks
from cfnade.kernels.ragged_sums import add_entries, add_rows, sum_rows, transposed
from cfnade.utils.validation import options

DENSE = 24_000
"""Up to so many items B is dense: 2.3 GB. Beyond, it is sparse."""

NEIGHBOURS = 200
_WIDER = 4  # times as many of an item's largest counts are kept, for regressions of its neighbours


@options(ModelError)
class LinearConfig:
    """The fields that fix a linear path."""

    columns: Annotated[int, Ge(1)]
    penalty: Annotated[float, Gt(0)]
    """λ."""
    dropout: Annotated[float, Ge(0), Lt(1)] = 0.0
    """δ."""
    neighbours: Annotated[int, Ge(0)] = 0
    """0: all items."""

    @property
    def doubt(self) -> float:
        """δ/(1-δ)."""
        return self.dropout / (1 - self.dropout)


def usual_penalty(each: float) -> float:
    """λ for so many picks of an item: 500 for the likes of MovieLens 1M, 950 for Netflix's."""
    return float(np.clip(180 * each**0.21, 20, 1500))


class Linear(ChoiceSide):
    """B, dense (M, M), or sparse: what item j adds to the items that it names."""

    def __init__(self, config: LinearConfig, tables: Tables) -> None:
        self.config, self._tables = config, dict(tables)
        self._entries = _by_source(tables) if config.neighbours else ()

    @classmethod
    def fit(
        cls, picks: Picks, *, penalty: float, dropout: float = 0.0, neighbours: int = 0
    ) -> Linear:
        """The regressions of these picks; 0 neighbours: all items."""
        from cfnade.choice.regressions import dense_weights, sparse_weights

        M = picks.n_columns
        config = LinearConfig(columns=M, penalty=penalty, dropout=dropout, neighbours=neighbours)
        data = picks.offsets, picks.columns, picks.weights
        if not neighbours:
            return cls(config, {"B": dense_weights(co_picks(*data, M), config)})
        most = min(M - 1, _WIDER * neighbours)
        return cls(config, sparse_weights(*largest_co_picks(*data, M, most=most), config))

    def scores(self, known: Picks) -> ScoreArray:
        data = known.offsets, known.columns, known.weights
        if not self.config.neighbours:
            return np.asarray(sum_rows(*data, self._tables["B"]))
        return np.asarray(add_entries(*data, *self._entries))

    def add_scores(self, total: ScoreArray, weight: float, known: Picks) -> None:
        if self.config.neighbours:
            return super().add_scores(total, weight, known)
        weights = np.float32(weight) * known.weights
        return add_rows(known.offsets, known.columns, weights, self._tables["B"], total)

    def scores_without(self, known: Picks, places: IntArray) -> ScoreArray:
        rest = self.scores(known) - self.scores(known.singly(places))
        return rest if len(known.columns) > 1 else np.zeros_like(rest)

    def vectors(self) -> ScoreArray | None:
        return None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self.config)

    def tables(self) -> Tables:
        return self._tables

    @classmethod
    def shapes(cls, fields: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        config = LinearConfig(**fields)
        M, n = config.columns, config.neighbours
        return {"of": (M, n), "B": (M, n)} if n else {"B": (M, M)}

    @classmethod
    def from_saved(cls, fields: Mapping[str, Any], tables: Tables) -> Linear:
        return cls(LinearConfig(**fields), tables)

    @property
    def n_items(self) -> int:
        return self.config.columns


def _by_source(tables: Tables) -> tuple[Any, ...]:
    """What each item adds to which: offsets (M+1,), items (e,), weights (e,), from the columns."""
    of, weights = tables["of"], tables["B"]
    targets, places = np.nonzero(of >= 0)
    named, values = of[targets, places], weights[targets, places]
    return transposed(targets.astype(np.int32), named, values, len(of))
