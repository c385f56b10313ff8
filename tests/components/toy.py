"""A small component, as a new one begins: biases of columns, and how high a row's ratings are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from cfnade._typing import IntArray
from cfnade.components import ArraySpec, Axis, FitData, register
from cfnade.components.base import Array, OutputTable
from cfnade.components.batches import Batch
from cfnade.components.row_states import AdditiveComponent
from cfnade.data.dataset import Dataset
from cfnade.exceptions import ModelError
from cfnade.kernels.column_groups import RowRatings
from cfnade.models.batch import Context
from cfnade.utils.validation import options


@options(ModelError)
class ToyConfig:
    columns: int
    levels: int


@register("toy")
class Toy(AdditiveComponent):
    """Level k of column i scores b_ik + w_k · (mean level of the row's other ratings)."""

    config_type = ToyConfig

    @classmethod
    def spec(cls, config: ToyConfig) -> dict[str, ArraySpec]:
        M, K = config.columns, config.levels
        return {"b": ArraySpec((M, K)), "w": ArraySpec((K,), None)}

    @classmethod
    def config_for(cls, axis: Axis | None, ratings: Dataset, options: Mapping[str, Any]) -> Any:
        del options
        rows = ratings.rows(axis or "user")
        return ToyConfig(columns=rows.n_columns, levels=rows.n_levels)

    @classmethod
    def fit(cls, axis: Axis | None, data: FitData, options: Mapping[str, Any]) -> Self:
        new = cls(cls.config_for(axis, data.dataset, options), axis=axis)
        new.network["w"].data.normal_(0.0, 0.01, generator=data.generator)
        return new

    def torch_scores(self, network: Any, batch: Batch) -> Tensor:
        del network
        drawn = batch.batch(self.axis)
        return self.plain_scores(drawn.context, drawn.targets.rows, drawn.targets.columns)

    def plain_scores(self, context: Context, rows: Tensor, columns: Tensor) -> Tensor:
        w = self.network["w"]
        sums = w.new_zeros(context.size).index_add(0, context.rows(), context.levels.to(w))
        means = sums / context.counts().clamp(min=1)
        return torch.addcmul(self.network["b"][columns], means[rows].unsqueeze(1), w)

    def row_sums(self, ratings: RowRatings, *, serial: bool = True) -> Array:
        del serial
        return np.bincount(ratings.rows, ratings.levels, len(ratings.offsets) - 1)[:, None]

    def entry_terms(self, columns: IntArray, levels: IntArray) -> Array:
        del columns
        return np.asarray(levels, np.float64)[:, None]

    def states(self, projected: Array, counts: IntArray, *, serial: bool = True) -> Array:
        del serial
        return np.asarray(projected / np.maximum(counts, 1)[:, None], self.arrays["b"].dtype)

    def output(self) -> OutputTable:
        M, w = self.config.columns, self.arrays["w"]
        table = np.ascontiguousarray(np.broadcast_to(w[None, :, None], (M, len(w), 1)))
        return OutputTable(table, self.arrays["b"], shared=False)
