"""A side that reads rows: its network has a configuration of so many columns and levels."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Self

from torch import Tensor

from cfnade.data.dataset import Dataset
from cfnade.models.batch import Context
from cfnade.sides.draw import Draw
from cfnade.sides.side import Array, Axis, column_fault
from cfnade.sides.trainable import Side


class RowSide(Side):
    """What CF-NADE, ridge and factor analysis have in common."""

    axis: Axis
    network: Any
    """With a `config`, `hidden(context)` and `scores(hidden, rows, columns)`."""

    def __init__(self, axis: Axis, network: Any) -> None:
        super().__init__()
        self.axis, self.network = axis, network

    def to_dict(self) -> dict[str, Any]:
        fields: dict[str, Any] = self.network.config.to_dict()
        return fields

    @classmethod
    def from_saved(
        cls, axis: Axis | None, fields: Mapping[str, Any], arrays: Mapping[str, Array]
    ) -> Self:
        del arrays
        assert axis is not None
        return cls(axis, cls.empty(fields))

    @staticmethod
    @abstractmethod
    def empty(fields: Mapping[str, Any]) -> Any:
        """A network of these fields, which `to_dict` gave, before its tensors are read."""

    def fault(self, ratings: Dataset) -> str | None:
        return column_fault(self.network.config, ratings, self.axis)

    def plain_scores(self, draw: Draw) -> Tensor:
        device = next(iter(self.network.state_dict().values())).device
        batch = draw.batch(self.axis, device)
        return self.scores_given(batch.context, batch.targets.rows, batch.targets.columns)

    def scores_given(self, context: Context, rows: Tensor, columns: Tensor) -> Tensor:
        """Scores of cells in plain torch, each of a row of the context. Returns (n, K)."""
        scores: Tensor = self.network.scores(self.network.hidden(context), rows, columns)
        return scores
