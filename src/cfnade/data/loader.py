"""load() and load_split(): from a name, a path, an address or a table to ratings or parts."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from cfnade.data import datasets
from cfnade.data.addresses import DATABASES, PIPE, STORE, masked, scheme
from cfnade.data.build import Options, Repeats, build
from cfnade.data.cache import cached
from cfnade.data.columns import Columns
from cfnade.data.containers import as_frame
from cfnade.data.dataset import Dataset
from cfnade.data.datasets import DATASETS, PublishedDataset, published_dataset
from cfnade.data.elsewhere import bring, is_kept_input, settled
from cfnade.data.formats import companions, read
from cfnade.data.interactions import Weighting
from cfnade.data.items import with_items
from cfnade.data.roles import NO_COLUMN, PLAIN, ReadOptions
from cfnade.data.scale import Scale
from cfnade.data.sources import open_source
from cfnade.data.splits import (
    MOVIELENS_100K_SPLITS,
    Split,
    split,
    split_from_files,
    split_movielens_100k,
)
from cfnade.data.typed_tables import read_frame
from cfnade.exceptions import DataError

log = logging.getLogger(__name__)


def load(
    data: Any,
    *,
    user: str | int | None = None,
    item: str | int | None = None,
    rating: str | int | None = None,
    time: str | int | None = None,
    weight: str | int | None = None,
    separator: str | None = None,
    header: bool | None = None,
    encoding: str | None = None,
    query: str | None = None,
    skip_bad_lines: bool = False,
    items: Any = None,
    scale: str | Sequence[float] | Scale | None = None,
    bins: int | Sequence[float] | None = None,
    repeats: Repeats = "error",
    likes: float | None = None,
    weights: Weighting = "linear",
    cache: bool = True,
) -> Dataset:
    """Ratings from a data set's name ("ml-1m"), a path, an address, or a table in memory.

    An address is http(s)://…, or that of a database (sqlite:///shop.db, postgresql://…) with a
    `query` for its rows, or store:ADDRESS (docs/store.md); "-" is standard input. A table is a
    pandas, polars or pyarrow frame, a NumPy array, a scipy.sparse matrix, a list of tuples or a
    dict; docs/data.md has each.

    Formats, columns and scale are recognised; the arguments say what cannot be, or is not as it
    looks. `user`, `item`, `rating` and `time` are column names, or positions that count from 0.
    `bins` cuts continuous ratings into levels; `repeats` says which of several ratings of one item
    by one user counts ("first", "last" or "mean"; otherwise they are an error). Lines of text that
    cannot be read are an error too, or left out and told if `skip_bad_lines`. `items` is a file or
    frame with a column of item ids and one of titles, of genres or both. What was parsed from a
    file is kept for the next time unless `cache` is false.

    Without a column of ratings, or with rating="-", lines are interactions. `weight` is a column of
    their counts; those of a pair are added up, and `weights` makes weights of the totals: "linear"
    as they are, "log" 1 + ln of them. With `likes` ratings of at least so much become interactions.
    """
    if isinstance(data, str) and data.startswith(STORE):  # never kept: people may be forgotten
        data, scale = _of_store(data, bins=bins, scale=scale, picks=rating == NO_COLUMN)
    options = Options(scale=scale, bins=bins, repeats=repeats, likes=likes, weights=weights)
    reading = ReadOptions(
        user, item, rating, time, separator, header, encoding, skip_bad_lines, weight
    )
    if isinstance(data, Dataset):
        if (reading, options, query) != (PLAIN, Options(), None):
            raise DataError("these are Ratings already; give such arguments when loading the file")
        return with_items(data, items)
    if isinstance(data, str) and scheme(data) in DATABASES:
        ratings = _of_query(data, query, reading, options)
    elif isinstance(data, str | Path):
        ratings = _of_file(data, reading, options, query, cache=cache)
    elif query is None:
        ratings = _of_table(data, reading, options)
    else:
        raise DataError("query= is for databases, not for tables in memory; leave it out")
    return with_items(ratings, items)


def _of_table(
    table: Any, reading: ReadOptions, options: Options, label: str = "the frame"
) -> Dataset:
    columns = read_frame(as_frame(table, reading, options.rated()), reading, label)
    if columns.assumed:
        log.info("%s: %s", label, columns.assumed)
    return build(columns, options)


def _of_query(address: str, query: str | None, reading: ReadOptions, options: Options) -> Dataset:
    from cfnade.data.database import read_query

    return _of_table(read_query(address, query), reading, options, masked(address))


def _of_file(
    data: str | Path, reading: ReadOptions, options: Options, query: str | None, *, cache: bool
) -> Dataset:
    """Of a path, of a data set's name, or of whatever an address leads to."""
    published = DATASETS.get(data) if isinstance(data, str) else None
    path = locate(data, published, query)

    def parse() -> tuple[Dataset, str]:
        columns, recognised = read(path, reading)
        if columns.assumed:
            recognised += f"; {columns.assumed}"
        if published is None:
            return build(columns, options), recognised
        ratings = build(_relabelled(columns, published, path), options)
        published.check(ratings, path, len(columns.values))
        return ratings, recognised

    asked = f"{published.name if published else ''} {options} {reading}"
    asked += options.counting() + reading.counting()
    cache = cache and not is_kept_input(path)  # it is bounded; its parsed copy would not be
    ratings, recognised = cached(path, asked, parse, companions(path)) if cache else parse()
    log.info("%s: %s", path, recognised)
    return ratings


def _of_store(address: str, *, bins: Any, scale: Any, picks: bool) -> tuple[pl.DataFrame, Any]:
    """What counts in a store, and its scale where none is given."""
    from cfnade.store.bulk import has_ratings, scale_of, what_counts
    from cfnade.store.opening import open_store

    with closing(open_store(address)) as store:
        picks = picks or not has_ratings(store)
        table = what_counts(store, picks=picks)
        own_scale = None if picks or bins is not None else scale_of(store)
    what = "interactions" if picks else "ratings"
    log.info("%s: a store of ratings, %s %s count", store.shown, f"{table.height:,}", what)
    return table, own_scale if scale is None else scale


def load_split(data: Any, name: str, **reading: Any) -> Split:
    """Load ratings and cut them into parts; `reading` are the arguments of `load`.

    Beside the names that `split` knows: "u1" … "u5", "ua" and "ub" of MovieLens 100K, and
    "file:PATH", where the data is the training part and PATH the test part.
    """
    if isinstance(data, str) and data == PIPE:
        data, reading = settled(data, reading)
    if name in MOVIELENS_100K_SPLITS:
        whole = load(data, **reading)
        likes, cache = reading.get("likes"), reading.get("cache", True)
        complete = whole if likes is None else load(data, cache=cache)
        return split_movielens_100k(whole, name, complete)
    if name.startswith("file:"):
        other = file_of_split(name)
        others = {option: value for option, value in reading.items() if option != "query"}
        train, test = load(data, **reading), load(other, **others)
        return split_from_files(train, test, name=f"file:{Path(masked(other)).name}")
    return split(load(data, **reading), name)


def file_of_split(split_name: str) -> str:
    """The path or address in "file:PATH"."""
    other = split_name.removeprefix("file:")
    if _only_once(other):
        raise DataError(f"split file:{masked(other)}: the test part must be a file; save it as one")
    return other


def _only_once(data: str) -> bool:
    """Whether asking again may give something else, or nothing."""
    return data == PIPE or scheme(data) in DATABASES


def locate(data: str | Path, published: PublishedDataset | None, query: str | None = None) -> Path:
    """Where the data lies on disk, after getting it if it does not lie there."""
    if published is not None and query is None:
        return datasets.locate(published)
    if (brought := bring(data, query)) is not None:
        return brought
    path = Path(data).expanduser()
    if isinstance(data, str) and path.name == data and not path.suffix and not path.exists():
        published_dataset(data)  # its error lists the names
    if not (path.is_file() or path.is_dir()):
        open_source(path)  # its error says what else it is: a device or a pipe might never end
    return path


def _relabelled(columns: Columns, published: PublishedDataset, path: Path) -> Columns:
    """Name the set; a copy that is not the publisher's says so and gets its own ids back."""
    copy = published.mirror
    if copy is None or not published.is_mirror_copy(path):
        return replace(columns, source=published.name)
    users = columns.users
    if copy.user_prefix:
        users = pl.Series(users).str.strip_prefix(copy.user_prefix).cast(pl.Int64)
    return replace(columns, users=users, source=f"{published.name} (copy in {copy.package})")
