"""Lines that cannot be read: the first is an error, or all are left out, counted and told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl

from cfnade.data.characters import LOST
from cfnade.data.columns import counts, iso_seconds, numbers, text_ids, times
from cfnade.errors import DataError

SKIP = "or leave such lines out with skip_bad_lines="
_NOWHERE = "".format  # a row's number in no words: the line is named beside it
TOLD = 5
"""Lines of which the reason is given."""


class BadLines:
    """What is left out of one file. Lines count from 0 here and from 1 in words."""

    def __init__(self, label: str, skip: bool = False) -> None:
        self.label, self.skip = label, skip
        self._reasons: dict[int, str] = {}

    def add(self, line: int, reason: str, cure: str) -> None:
        """Leave a line out, or raise."""
        if not self.skip:
            raise DataError(f"{self.label}:{line + 1}: {reason}; {cure}, {SKIP}")
        self._reasons.setdefault(line, reason)

    def __str__(self) -> str:
        """Empty if there are none."""
        if not self._reasons:
            return ""
        lines = sorted(self._reasons)
        told = "; ".join(f"line {line + 1}: {self._reasons[line]}" for line in lines[:TOLD])
        more = "; …" if len(lines) > TOLD else ""
        plural = "s" if len(lines) > 1 else ""
        return f"skipped {len(lines):,} bad line{plural} ({told}{more})"


def faults(column: pl.Series, role: str) -> pl.Series:
    """Where a text cannot be an id, a rating, a weight or a time, whatever the others are."""
    if role in ("user", "item"):
        return (column.str.strip_chars() == "").fill_null(True) | column.str.contains(
            LOST, literal=True
        ).fill_null(True)
    values = column.str.strip_chars().cast(pl.Float64, strict=False)
    wrong = values.is_finite().fill_null(False).not_()
    if role == "weight":
        return wrong | (values <= 0).fill_null(True)
    if role == "rating" or 2 * int(wrong.sum()) < len(wrong):
        return wrong
    distinct = column.unique()  # of dates
    dates = [text is not None and iso_seconds(text) is not None for text in distinct.to_list()]
    return column.is_in(distinct.filter(pl.Series(dates))).fill_null(False).not_()


def reason(column: pl.Series, role: str, row: int) -> str:
    """What is wrong with the text in a row that is at fault."""
    checks: dict[str, Callable[..., Any]] = {"rating": numbers, "weight": counts, "time": times}
    text = column.slice(row, 1)
    try:
        if role in checks:
            checks[role](text, _NOWHERE)
        else:
            text_ids(text, role, _NOWHERE)
    except DataError as error:
        return str(error).removeprefix(": ").partition(";")[0]
    if role == "time":
        return f"time {text[0]!r} is not written like the others (numbers, or ISO dates)"
    return f"the {role} id holds damaged characters"
