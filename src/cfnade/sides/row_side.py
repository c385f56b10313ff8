"""A side that reads rows: its network has a configuration of so many columns and levels."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from cfnade.data.ratings import Ratings
from cfnade.models.batch import Context
from cfnade.sides.draw import Draw
from cfnade.sides.side import Axis, Side, column_fault


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

    def fault(self, ratings: Ratings) -> str | None:
        return column_fault(self.network.config, ratings, self.axis)

    def plain_scores(self, draw: Draw) -> Tensor:
        device = next(iter(self.network.state_dict().values())).device
        batch = draw.batch(self.axis, device)
        return self.scores_given(batch.context, batch.targets.rows, batch.targets.columns)

    def scores_given(self, context: Context, rows: Tensor, columns: Tensor) -> Tensor:
        """Scores of cells in plain torch, each of a row of the context. Returns (n, K)."""
        scores: Tensor = self.network.scores(self.network.hidden(context), rows, columns)
        return scores
