"""Any delimited text: with or without header, by column names or positions."""

from __future__ import annotations

from cfnade.data import casts
from cfnade.data.build import Columns
from cfnade.data.roles import Roles
from cfnade.data.sniff import Given, Layout, prepared, recognise
from cfnade.data.text import Table, clean, table


def read(data: bytes, label: str, given: Given | None = None) -> tuple[Columns, Layout]:
    """The ratings of a text, and what was recognised."""
    given = given or Given()
    data = clean(data, label, given.encoding)
    layout = recognise(data, label, given)
    cut = table(prepared(data, layout, label), layout.shape, label)
    return columns_of(cut, layout.roles, label), layout


def columns_of(cut: Table, roles: Roles, label: str) -> Columns:
    """Texts turned into ids, numbers and times."""

    def where(row: int) -> str:
        return f"{label}:{cut.line(row) + 1}"

    column = cut.frame.to_series
    return Columns(
        users=casts.ids(column(roles.user), "user", where),
        items=casts.ids(column(roles.item), "item", where),
        values=casts.numbers(column(roles.rating), where),
        times=None if roles.time is None else casts.times(column(roles.time), where),
        where=where,
    )
