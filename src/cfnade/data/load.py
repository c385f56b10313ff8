"""Load ratings and splits from a name, a path, a URL, a database or a table in memory."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl

from cfnade.data import datasets
from cfnade.data.dataset import Dataset
from cfnade.data.datasets import DATASETS, PublishedDataset, published_dataset
from cfnade.data.raw_table import RawTable
from cfnade.data.readers import read
from cfnade.data.readers.files import SUFFIXES, bare, open_source
from cfnade.data.readers.movielens import EDITIONS
from cfnade.data.remote import (
    DATABASES,
    INPUT_MARK,
    STANDARD_INPUT,
    STORE,
    is_stored_input,
    pin_source,
    redact_url,
    resolve,
    url_scheme,
)
from cfnade.data.scale import INTERACTIONS, Scale
from cfnade.data.splits import (
    MOVIELENS_100K_SPLITS,
    Split,
    split,
    split_from_files,
    split_movielens_100k,
)
from cfnade.data.storage import cached
from cfnade.data.validate import Duplicates, Weighting, build
from cfnade.exceptions import DataError
from cfnade.utils.text import option
from cfnade.utils.validation import describe_unknown, options

log = logging.getLogger(__name__)

_COLUMNS = ("user", "item", "rating", "time", "weight")
_LAYOUT = (*_COLUMNS, "separator", "header", "encoding")
_TEXT = ("separator", "header", "encoding", "skip_bad_lines")


@options(DataError, "load option")
class LoadOptions:
    """How data is read; what is not given is recognized. `load` documents each option."""

    user: str | int | None = None
    item: str | int | None = None
    rating: str | int | None = None
    time: str | int | Literal[False] | None = None
    weight: str | int | Literal[False] | None = None
    implicit: bool = False
    separator: str | None = None
    header: bool | None = None
    encoding: str | None = None
    query: str | None = None
    skip_bad_lines: bool = False
    scale: str | Sequence[float] | Scale | None = None
    bins: int | Sequence[float] | None = None
    duplicates: Duplicates = "error"
    min_rating: float | None = None
    weighting: Weighting = "linear"

    def __post_init__(self) -> None:
        if self.scale is not None and self.bins is not None:
            raise DataError(
                f"{option('scale')} and {option('bins')} exclude each other: give one of them"
            )

    def describes_file(self) -> bool:
        """Return whether an option describes the layout of the file."""
        values = (getattr(self, name) for name in _LAYOUT)
        return any(value is not None and value is not False for value in values)

    def names_columns(self) -> bool:
        """Return whether an option assigns a role to a column."""
        return self.implicit or any(getattr(self, name) is not None for name in _COLUMNS)

    def is_for_ratings(self) -> bool:
        """Return whether an option was given that makes sense for ratings only."""
        values = (self.rating, self.scale, self.bins, self.min_rating)
        return any(value is not None for value in values)

    def check_not_text(self, subject: str) -> None:
        """Raise if an option was given that makes sense for text only; `subject` is a table."""
        for name in _TEXT:
            if getattr(self, name) not in (None, False):
                raise DataError(
                    f"{subject} takes no {option(name)}, which is for text; leave it out"
                )


_DEFAULTS = LoadOptions()


def load(data: Any, *, item_features: Any = None, cache: bool = True, **options: Any) -> Dataset:
    """Read ratings or interactions.

    Formats, columns and the rating scale are recognized unless options give them.
    docs/how-to/own-data.md describes every source and format.

    Args:
        data: The name of a data set ("ml-1m"), a path, a URL (http, https), the URL of a database
            (sqlite:///shop.db, postgresql://…) with `query`, store:ADDRESS for an event store, "-"
            for standard input; or a table in memory: a pandas, polars or pyarrow frame, a NumPy
            array, a scipy.sparse matrix, (users, items, ratings), a list of tuples or a dict.
        item_features: A file or table with a column of item ids and titles, genres or both.
        cache: Whether to store the parsed file for the next time.
        **options: Fields of `LoadOptions`:

            - user, item, rating, time, weight: names of columns, or positions from 0. `weight` has
              counts of interactions. time=False and weight=False ignore these columns.
            - implicit: Rows are interactions (clicks, plays) without ratings, added up by pair.
            - separator, header, encoding, skip_bad_lines: of text files. Bad lines are an error
              unless they are skipped.
            - query: What to select from a database.
            - scale: The rating scale, such as "1-5", "0.5-5/0.5" or a list of values.
            - bins: Cuts continuous ratings into this many levels, or at these edges.
            - duplicates: Which of a user's different ratings of one item counts: "first", "last" or
              "mean"; "error" (default) refuses them. Identical rows count once.
            - min_rating: Ratings from here on become interactions; the others are dropped.
            - weighting: The weight of a total count c: "linear" is c, "log" is 1 + ln c.

    Returns:
        Ratings, or interactions if there are no ratings.

    Raises:
        DataError: If the data cannot be read; the message says where and why.
    """
    if isinstance(data, str) and data.startswith(STORE):  # never cached: users may be erased
        data, options = _load_store(data, options)
    for name in options:
        if name not in LoadOptions.__dataclass_fields__:
            names = [*LoadOptions.__dataclass_fields__, "item_features", "cache"]
            raise DataError(describe_unknown("load option", name, names))
    load_options = LoadOptions(**options) if options else _DEFAULTS
    if isinstance(data, Dataset):
        if load_options != _DEFAULTS:
            raise DataError("these are Ratings already; give such arguments when loading the file")
        ratings = data
    elif isinstance(data, str) and "://" in data and url_scheme(data) in DATABASES:
        from cfnade.data.readers.sql import read_query

        ratings = _load_table(read_query(data, load_options.query), load_options, redact_url(data))
    elif isinstance(data, str | Path):
        ratings = _load_file(data, load_options, cache=cache)
    elif load_options.query is None:
        ratings = _load_table(data, load_options)
    else:
        raise DataError(f"{option('query')} is for databases, not tables in memory; leave it out")
    if item_features is not None:
        from cfnade.data.item_table import join_item_table

        ratings = join_item_table(ratings, item_features)
    return ratings


def _load_table(table: Any, options: LoadOptions, label: str = "the frame") -> Dataset:
    from cfnade.data.readers.tables import read_frame

    raw = read_frame(table, replace(options, query=None), label)
    ratings = build(raw, options)
    if description := _describe(raw, ratings, options):
        log.info("%s: %s", label, description)
    return ratings


def _load_file(data: str | Path, options: LoadOptions, *, cache: bool) -> Dataset:
    """Load a path, a data set's name, or what a URL leads to."""
    published = DATASETS.get(data) if isinstance(data, str) else None
    path = locate(data, published, options.query)
    options = options if options.query is None else replace(options, query=None)
    companions = companion_files(path) if path.is_file() else []

    def parse() -> tuple[Dataset, str]:
        table = read(path, options, companions)
        if published is not None:
            table = _relabel(table, published, path)
        ratings = build(table, options)
        if published is not None:
            published.check(ratings, path, table.frame.height)
        return ratings, _describe(table, ratings, options)

    if (path.parent / INPUT_MARK).exists() and is_stored_input(path):
        cache = False  # inputs are bounded; their parsed copies would not be
    if cache:
        fields = json.dumps(asdict(options), sort_keys=True, default=_to_json)
        key = f"{published.name if published else ''} {fields}"
        ratings, description = cached(path, key, parse, companions)
    else:
        ratings, description = parse()
    log.info("%s: %s", path, description)
    return ratings


def _to_json(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else repr(value)


def companion_files(path: Path) -> list[Path]:
    """Return the files of titles beside a single file of ratings, which are read with it."""
    name, suffix = path.name.lower(), path.suffix.lower()
    bare_names: tuple[str, ...]
    if suffix in SUFFIXES:
        name = name.removesuffix(suffix)
    if name in EDITIONS:
        bare_names = EDITIONS[name].movies, "u.genre"
    elif name.endswith(".inter"):  # of RecBole
        bare_names = (name.removesuffix(".inter") + ".item",)
    else:
        return []
    try:
        siblings = [s for s in path.parent.iterdir() if s.name.lower().startswith(bare_names)]
    except OSError:
        return []  # a folder that may not be listed: the ratings can still be read
    return [s for s in sorted(siblings) if bare(s.name) in bare_names and s.is_file()]


def _describe(table: RawTable, ratings: Dataset, options: LoadOptions) -> str:
    """Return what was recognized, and how many identical rows were dropped."""
    identical = 0
    if ratings.scale != INTERACTIONS and options.duplicates == "error":
        identical = table.frame.height - len(ratings)
    words = f"{identical:,} identical duplicate rows were dropped" if identical else ""
    return "; ".join(filter(None, [table.description, table.assumed, words]))


def _load_store(address: str, options: dict[str, Any]) -> tuple[pl.DataFrame, dict[str, Any]]:
    """Return what an event store holds, and options with its scale where none is given."""
    from cfnade.online.bulk import ratings_frame, scale_of
    from cfnade.online.event_store import EventStore

    with closing(EventStore.open(address)) as store:
        implicit = options.get("implicit", False) or not store.has_ratings()
        table = ratings_frame(store, implicit=implicit)
        own_scale = None if implicit or options.get("bins") is not None else scale_of(store)
    noun = "interactions" if implicit else "ratings"
    log.info("%s: a store of ratings, %s %s count", store.name, f"{table.height:,}", noun)
    return table, {"scale": own_scale} | {k: v for k, v in options.items() if v is not None}


def load_split(data: Any, name: str, **options: Any) -> Split:
    """Load ratings and split them into training, validation and test part.

    Args:
        data: As for `load`.
        name: A name that `split` knows; "u1" … "u5", "ua" and "ub" of MovieLens 100K; or
            "file:PATH", where the data is the training part and PATH the test part.
        **options: The arguments of `load`.
    """
    if isinstance(data, str) and data == STANDARD_INPUT:
        data, options = pin_source(data, options)
    if name in MOVIELENS_100K_SPLITS:
        ratings = load(data, **options)
        complete = ratings
        if options.get("min_rating") is not None:
            complete = load(data, cache=options.get("cache", True))
        return split_movielens_100k(ratings, name, complete)
    if name.startswith("file:"):
        test_path = split_file(name)
        test_options = {option: value for option, value in options.items() if option != "query"}
        train, test = load(data, **options), load(test_path, **test_options)
        return split_from_files(train, test, name=f"file:{Path(redact_url(test_path)).name}")
    return split(load(data, **options), name)


def split_file(split_name: str) -> str:
    """Return the path or URL in "file:PATH"."""
    test_path = split_name.removeprefix("file:")
    if test_path == STANDARD_INPUT or url_scheme(test_path) in DATABASES:
        raise DataError(
            f"split file:{redact_url(test_path)}: the test part must be a file; save it as one"
        )
    return test_path


def locate(data: str | Path, published: PublishedDataset | None, query: str | None = None) -> Path:
    """Return where the data is on disk, after a download if need be."""
    if published is not None and query is None:
        return datasets.locate(published)
    if query is None and data != STANDARD_INPUT and "://" not in str(data):
        path = Path(data).expanduser()
        if path.is_file() or path.is_dir():
            return path
    path = resolve(data, query)
    if isinstance(data, str) and path.name == data and not path.suffix and not path.exists():
        published_dataset(data)  # its error lists the names
    if not (path.is_file() or path.is_dir()):
        open_source(path)  # raises for devices and pipes, which might never end
    return path


def _relabel(table: RawTable, published: PublishedDataset, path: Path) -> RawTable:
    """Set the name of the data set; ids of a mirror's copy become the original ids."""
    copy = published.mirror
    if copy is None or not published.is_mirror_copy(path):
        return replace(table, source=published.name)
    frame = table.frame
    if copy.user_prefix:
        users = pl.col("user").str.strip_prefix(copy.user_prefix).cast(pl.Int64)
        frame = frame.with_columns(users)
    return replace(table, frame=frame, source=f"{published.name} (copy in {copy.package})")
