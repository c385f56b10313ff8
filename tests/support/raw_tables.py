"""Make raw tables from arrays, as readers return them, and files to read."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from cfnade.data import readers
from cfnade.data.load import LoadOptions, companion_files
from cfnade.data.raw_table import RawTable


def raw_table(
    users: Any,
    items: Any,
    ratings: Any = None,
    times: Any = None,
    *,
    titles: Mapping[Any, str] | None = None,
    genres: Mapping[Any, str] | None = None,
    **known: Any,
) -> RawTable:
    """Return a raw table, with titles and genres by raw item id."""
    described = {"title": titles or {}, "genres": genres or {}}
    ids = [str(raw) for raw in dict.fromkeys([*described["title"], *described["genres"]])]
    columns = {
        kind: [{str(raw): text for raw, text in texts.items()}.get(raw, "") for raw in ids]
        for kind, texts in described.items()
        if texts
    }
    item_table = pl.DataFrame({"item": ids, **columns}) if ids else None
    return RawTable.from_arrays(users, items, ratings, times=times, item_table=item_table, **known)


def rows(table: RawTable) -> list[tuple[Any, ...]]:
    """Return user, item, rating or weight, and time of each row."""
    return table.frame.rows()


def item_texts(table: RawTable, kind: str) -> dict[Any, str]:
    """Return the titles or genres of a raw table that are known, by item."""
    if table.item_table is None or kind not in table.item_table.columns:
        return {}
    pairs = table.item_table.select("item", kind).iter_rows()
    return {item: text for item, text in pairs if text}


def read(path: Path, options: LoadOptions) -> RawTable:
    """Return the raw table that `load` reads at a path, including companion files."""
    return readers.read(path, options, companion_files(path))


def to_bytes(write: Callable[[io.BytesIO], object]) -> bytes:
    """Return what a function writes into a file, such as `frame.write_parquet`."""
    out = io.BytesIO()
    write(out)
    return out.getvalue()


def zip_bytes(members: Mapping[str, bytes]) -> bytes:
    """Return a zip archive of files by name."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    return out.getvalue()


def write_files(folder: Path, files: Mapping[str, bytes]) -> Path:
    """Write files by name; return the path of the only one, or the folder."""
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder / next(iter(files)) if len(files) == 1 else folder
