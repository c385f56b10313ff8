"""Ratings from elsewhere — a pipe, an address, a database — as files, and as what may be noted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cfnade.data.addresses import DATABASES, PIPE, STORE, WEB, masked, scheme
from cfnade.data.kept import refuse_lost
from cfnade.data.named import SETS
from cfnade.errors import DataError


def bring(data: str | Path, query: str | None = None) -> Path | None:
    """The file that data from elsewhere becomes; None if it is a path or a name."""
    kind = scheme(data) if isinstance(data, str) else None
    if kind is not None and kind not in (*WEB, *DATABASES):
        raise DataError(
            f"{masked(str(data))}: {kind}:// cannot be read; http://, https://, sqlite:/// and "
            "postgresql:// can"
        )
    if kind in DATABASES:
        from cfnade.data.database import keep_answer

        return keep_answer(str(data), query)
    if query is not None:
        raise DataError(
            "query= is for databases (sqlite:///shop.db, postgresql://user@host/shop); leave it out"
        )
    if kind in WEB:
        from cfnade.data.web import download

        return download(str(data))
    if data == PIPE:
        from cfnade.data.piped import keep_standard_input

        return keep_standard_input()
    refuse_lost(Path(data).expanduser())
    return None


def settled(data: str, reading: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Data, and how to read it, that mean the same in any folder and at any time.

    A pipe and an answer of a database are there only once, so their file is meant; an address goes
    without its secrets, which are needed only for the download.
    """
    if data in SETS:
        return data, reading
    if data.startswith(STORE):
        from cfnade.store.opening import address_of

        return STORE + address_of(data), reading
    path = bring(data, reading.get("query"))
    others = {name: value for name, value in reading.items() if name != "query"}
    if path is None:
        path = Path(data).expanduser()
        return (str(path.resolve()) if path.exists() else data), others
    return (masked(data) if scheme(data) in WEB else str(path)), others
