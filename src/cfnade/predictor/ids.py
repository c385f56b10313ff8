"""Raw ids of users or items, and the indices that they have inside."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral
from typing import Any

import numpy as np
import numpy.typing as npt

from cfnade.data.dataset import match_ids
from cfnade.exceptions import PredictionError
from cfnade.utils.caching import locked_cached_property
from cfnade.utils.text import count_of

IntArray = npt.NDArray[np.int64]

_LEAST, _MOST = -(2**63), 2**63 - 1  # ids are kept in 64 bits
_SHOWN = 40  # letters of what was typed, in an error


class Ids:
    """The id table of one side of the data."""

    def __init__(self, side: str, table: npt.NDArray[Any]) -> None:
        self.side = side
        self.table = table
        self.are_texts = table.dtype == object

    def indices(self, raw: Any) -> IntArray:
        """The index of each raw id, -1 for one that is unknown. Returns (n,)."""
        if isinstance(raw, np.ndarray) and raw.ndim == 1 and raw.dtype.kind in "iu":
            return self._integers(raw)
        if set(map(type, raw)) == {str if self.are_texts else int}:
            places = self._places
            return np.array([places.get(one, -1) for one in raw], np.int64)
        return np.array([self.index(one) for one in raw], np.int64)

    def index(self, raw: Any) -> int:
        """The index of a raw id, -1 if it is unknown."""
        if self.are_texts:
            fits = isinstance(raw, str)
        else:
            fits = isinstance(raw, Integral) and not isinstance(raw, bool)
        if not fits and len(self.table):
            kind = "texts" if self.are_texts else "integers"
            raise PredictionError(
                f"{self.side} id {raw!r} is a {type(raw).__name__}; the {self.side} ids of this "
                f"model are {kind}, such as {self.table[:1].tolist()[0]!r}: convert it"
            )
        return self._places.get(raw, -1)

    def raw(self, index: int) -> Any:
        """The raw id at an index, as Python has it."""
        return self.table[index : index + 1].tolist()[0]

    def typed(self, text: str) -> Any:
        """A raw id as a person types it, in the type that the table has."""
        if self.are_texts:
            return text
        shown = repr(text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "…")
        try:
            number = int(text)
        except ValueError:
            raise PredictionError(
                f"{self.side} {shown}: the {self.side} ids of this model are whole numbers"
            ) from None
        if not _LEAST <= number <= _MOST:
            raise PredictionError(
                f"{self.side} {shown}: an id is a whole number from {_LEAST} to {_MOST}"
            )
        return number

    @locked_cached_property
    def _places(self) -> dict[Any, int]:
        return {raw: place for place, raw in enumerate(self.table.tolist())}

    def _integers(self, raw: npt.NDArray[Any]) -> IntArray:
        if self.are_texts or not len(self.table):
            return np.array([self.index(one) for one in raw.tolist()], np.int64)
        # An unsigned id beyond int64 is in no table; a cast would wrap it onto another.
        fits = raw <= np.iinfo(np.int64).max
        asked = np.where(fits, raw, 0).astype(np.int64)
        return np.where(fits, match_ids(self.table, asked), -1)


def listed(ids: Any) -> tuple[Any, bool]:
    """Raw ids as an array or a list, and whether it was a single one."""
    if np.isscalar(ids):
        return [ids], True
    if isinstance(ids, np.ndarray):
        if ids.ndim != 1:
            raise PredictionError(f"ids have shape {ids.shape}; give one dimension")
        return (ids if ids.dtype.kind in "iu" else ids.tolist()), False
    for method in ("to_list", "tolist", "to_pylist"):  # of polars, pandas and pyarrow
        if hasattr(ids, method):
            return getattr(ids, method)(), False
    if isinstance(ids, Iterable):
        return list(ids), False
    raise PredictionError(f"ids are given as a {type(ids).__name__}; give one id or a list")


def paired(users: Any, items: Any) -> tuple[Any, Any]:
    """Equally many users and items; a single one on either side goes with all of the other."""
    (left, one_user), (right, one_item) = listed(users), listed(items)
    if one_user and not one_item:
        left = list(left) * len(right)
    elif one_item and not one_user:
        right = list(right) * len(left)
    if len(left) != len(right):
        raise PredictionError(
            f"{count_of(len(left), 'user')} and {count_of(len(right), 'item')} were given; a "
            "question is one of each, so give equally many, or a single one on either side"
        )
    return left, right
