"""Read MovieLens as published: 100K (u.data), 1M and 10M (ratings.dat), the others (csv)."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import polars as pl

from cfnade.data.raw_table import RawTable
from cfnade.data.readers.files import SourceFiles, bare
from cfnade.data.readers.text import Dialect, decode, read_fields, read_text
from cfnade.exceptions import DataError

if TYPE_CHECKING:
    from cfnade.data.load import LoadOptions


@dataclass(frozen=True)
class Edition:
    """The files of an edition of MovieLens."""

    movies: str
    separator: str
    opening: re.Pattern[bytes]  # of the file of ratings; other sets use the same names
    header: bool = False


EDITIONS = {
    "u.data": Edition("u.item", "\t", re.compile(rb"\d+\t\d+\t[^\t\r\n]+\t\d+\r?(\n|$)")),
    "ratings.dat": Edition("movies.dat", "::", re.compile(rb"\d+::\d+::[^:\r\n]+(::|\r?\n|$)")),
    "ratings.csv": Edition(
        "movies.csv", ",", re.compile(rb"userId,movieId,rating,timestamp"), header=True
    ),
}
"""Editions of MovieLens by the name of their file of ratings."""

_SIZES = {
    100_000: "100K",
    100_836: "latest-small",
    1_000_209: "1M",
    10_000_054: "10M",
    20_000_263: "20M",
    25_000_095: "25M",
    32_000_204: "32M",
}
_GENRES = (
    "unknown|Action|Adventure|Animation|Children's|Comedy|Crime|Documentary|Drama|Fantasy|"
    "Film-Noir|Horror|Musical|Mystery|Romance|Sci-Fi|Thriller|War|Western"
)
_NO_GENRE = ["(no genres listed)", "unknown"]


def read(source: SourceFiles, name: str, options: LoadOptions) -> RawTable:
    """Return ratings with titles and genres, with the edition in the description."""
    edition = EDITIONS[bare(name)]
    layout = replace(
        options,
        user=0,
        item=1,
        rating=None if options.implicit else 2,
        time=False if options.time is False else 3,
        separator=edition.separator,
        header=edition.header,
    )
    table = read_text(source.read(name), source.label(name), layout)
    notes = table.description.partition("; ")[2]
    movies = source.sibling(name, edition.movies)
    used = PurePosixPath(name).name
    if movies is not None:
        used += f", {PurePosixPath(movies).name}"
        table = replace(table, item_table=_movie_table(source, movies, edition))
    size = _SIZES.get(len(table))
    edition_name = f"MovieLens {size} ({used})" if size else f"MovieLens files ({used})"
    return replace(table, description=f"{edition_name}; {notes}" if notes else edition_name)


def _movie_table(source: SourceFiles, name: str, edition: Edition) -> pl.DataFrame:
    has_flags = edition.movies == "u.item"  # a flag for each genre instead of their names
    names = _genre_names(source, name) if has_flags else []
    width = 5 + len(names) if has_flags else 3
    separator = "|" if has_flags else edition.separator
    dialect = Dialect(separator, separator == ",", width, edition.header)
    label = source.label(name)
    try:
        data, _ = decode(source.read(name), label)  # 100K and 1M are in Latin-1
        frame = read_fields(data, dialect, label).frame.fill_null("")
    except DataError as error:
        raise DataError(
            f"{str(error).partition(';')[0]}; correct it, or take the file away to read the "
            "ratings without titles"
        ) from error
    genres = frame.to_series(2)
    if has_flags:
        flags = frame.select(pl.nth(range(5, width)).str.strip_chars() == "1").rows()
        genres = pl.Series(["|".join(compress(names, row)) for row in flags], dtype=pl.String)
    genres = genres.replace(dict.fromkeys(_NO_GENRE, ""))
    return pl.DataFrame({"item": frame["0"], "title": frame["1"], "genres": genres})


def _genre_names(source: SourceFiles, movies: str) -> list[str]:
    name = source.sibling(movies, "u.genre")
    if name is None:
        return _GENRES.split("|")
    lines = source.read(name).decode("latin-1").split()
    names = [line.partition("|")[0] for line in lines if "|" in line]
    return names or _GENRES.split("|")
