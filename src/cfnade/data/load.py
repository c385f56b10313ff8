"""load(): from a name, a file, a folder or a frame to checked ratings in one line."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cfnade.data.build import Columns, Options, Repeats, build
from cfnade.data.cache import cached
from cfnade.data.named import SETS, Named, find, named
from cfnade.data.ratings import Ratings
from cfnade.data.scale import Scale
from cfnade.errors import DataError

log = logging.getLogger(__name__)


def load(
    data: Any,
    *,
    user: str | int | None = None,
    item: str | int | None = None,
    rating: str | int | None = None,
    time: str | int | None = None,
    separator: str | None = None,
    header: bool | None = None,
    encoding: str | None = None,
    scale: str | Sequence[float] | Scale | None = None,
    bins: int | Sequence[float] | None = None,
    repeats: Repeats = "error",
    cache: bool = True,
) -> Ratings:
    """Ratings from a data set's name ("ml-1m"), a path, or a pandas, polars or pyarrow frame.

    Formats, columns and scale are recognised; the arguments say what cannot be, or is not as it
    looks. `user`, `item`, `rating` and `time` are column names, or positions that count from 0.
    `bins` cuts continuous ratings into levels; `repeats` says which of several ratings of one item
    by one user counts ("first", "last" or "mean"; otherwise they are an error). What was parsed
    from a file is kept for the next time unless `cache` is false.
    """
    options = Options(scale, bins, repeats)
    layout = {
        "user": user,
        "item": item,
        "rating": rating,
        "time": time,
        "separator": separator,
        "header": header,
        "encoding": encoding,
    }
    layout = {name: value for name, value in layout.items() if value is not None}
    if isinstance(data, Ratings):
        return _as_it_is(data, layout, options)
    if isinstance(data, str | Path):
        return _load_from_disk(data, layout, options, cache)
    from cfnade.data.tables import read_frame

    return build(read_frame(data, **layout), options)


def _as_it_is(data: Ratings, layout: dict[str, Any], options: Options) -> Ratings:
    if layout or options != Options():
        raise DataError("these are Ratings already; give such arguments when loading the file")
    return data


def _load_from_disk(
    data: str | Path, layout: dict[str, Any], options: Options, cache: bool
) -> Ratings:
    wanted = SETS.get(data) if isinstance(data, str) else None
    path = locate(data, wanted)
    source = "" if wanted is None else wanted.name

    from cfnade.data.formats import companions, read

    def parse() -> tuple[Ratings, str]:
        columns, recognised = read(path, **layout)
        if wanted is not None:
            columns = _relabelled(columns, wanted, path)
        ratings = build(columns, options)
        if wanted is not None:
            wanted.check(ratings, path)
        return ratings, recognised

    asked = f"{source} {options} {sorted(layout.items())}"
    ratings, recognised = cached(path, asked, parse, companions(path)) if cache else parse()
    log.info("%s: %s", path, recognised)
    return ratings


def locate(data: str | Path, wanted: Named | None) -> Path:
    """Where the data lies on disk, after getting it if it is a named set that does not."""
    if wanted is not None:
        from cfnade.data.fetch import fetch, show_terms

        show_terms(wanted)
        return find(wanted) or fetch(wanted)
    path = Path(data).expanduser()
    if path.is_file() or path.is_dir():
        return path
    if path.exists():  # a device or a pipe might never end
        raise DataError(f"{data}: is not a regular file; give a file, a folder or a zip")
    if isinstance(data, str) and path.name == data and not path.suffix:
        named(data)  # its error lists the names
    raise DataError(f"{data}: there is no such file or folder")


def _relabelled(columns: Columns, wanted: Named, path: Path) -> Columns:
    """Name the set; a copy that is not the publisher's says so and gets its own ids back."""
    copy = wanted.wheel
    if copy is None or not list(path.glob("*.inter")):
        return replace(columns, source=wanted.name)
    users = columns.users
    if copy.user_prefix:
        import polars as pl

        users = pl.Series(users).str.strip_prefix(copy.user_prefix).cast(pl.Int64)
    return replace(columns, users=users, source=f"{wanted.name} (copy in {copy.package})")
