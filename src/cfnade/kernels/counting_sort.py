"""A counting sort that groups ratings by row."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from cfnade.kernels.compiled import kernel


def place_entries(
    rows: npt.NDArray[np.int32],
    columns: npt.NDArray[np.int32],
    levels: npt.NDArray[np.uint8],
    ends: npt.NDArray[np.int64],
    out: tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]],
) -> None:
    """Append entries to their rows, in their order.

    Args:
        rows: Row of each entry, (n,).
        columns: Column of each entry, (n,).
        levels: Level of each entry, (n,).
        ends: Position in `out` of the next entry of each row; advanced.
        out: Columns and levels of all rows, written.
    """
    arrays = [_read_only(array) for array in (rows, columns, levels)]
    _place_entries(*arrays, ends, *out)


def _read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A read-only contiguous view: arrays of other types would compile a second kernel."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


@kernel
def _place_entries(
    rows: Any, columns: Any, levels: Any, ends: Any, out_columns: Any, out_levels: Any
) -> None:
    for i in range(len(rows)):
        place = ends[rows[i]]
        out_columns[place] = columns[i]
        out_levels[place] = levels[i]
        ends[rows[i]] = place + 1
