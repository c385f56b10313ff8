"""The numbers of a side that reads rows: its configuration has so many columns and levels."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Self

from cfnade.data.ratings import Ratings
from cfnade.sides.side import Array, Axis, SideWeights, column_fault


class RowWeights(SideWeights):
    """What CF-NADE, ridge, factor analysis and neighbourhoods have in common."""

    axis: Axis

    def __init__(self, axis: Axis, config: Any, tables: Mapping[str, Array]) -> None:
        self.axis, self.config, self.tables = axis, config, tables

    @staticmethod
    @abstractmethod
    def config_of(fields: Mapping[str, Any]) -> Any:
        """From what `to_dict` gave."""

    @classmethod
    def from_saved(
        cls,
        axis: Axis | None,
        fields: Mapping[str, Any],
        tables: Mapping[str, Array],
        arrays: Mapping[str, Array],
    ) -> Self:
        del arrays
        assert axis is not None
        return cls(axis, cls.config_of(fields), tables)

    def to_dict(self) -> dict[str, Any]:
        fields: dict[str, Any] = self.config.to_dict()
        return fields

    def fault(self, ratings: Ratings) -> str | None:
        return column_fault(self.config, ratings, self.axis)
