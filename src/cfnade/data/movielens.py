"""MovieLens as it is published: 100K (u.data), 1M and 10M (ratings.dat), the others (csv)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import compress
from pathlib import PurePosixPath

import polars as pl

from cfnade.data.characters import clean
from cfnade.data.columns import Columns
from cfnade.data.fields import BadLines, TextShape, cut_fields
from cfnade.data.roles import PLAIN, ReadOptions
from cfnade.data.sources import FileSource, bare
from cfnade.data.text import read_columns, recognise
from cfnade.exceptions import DataError

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
_NO_GENRE = ("(no genres listed)", "unknown")
_CSV_HEADER = b"userId,movieId,rating,timestamp"


@dataclass(frozen=True)
class _Edition:
    movies: str
    separator: str
    header: bool = False

    @property
    def ratings(self) -> ReadOptions:
        return ReadOptions(0, 1, 2, 3, self.separator, self.header)


EDITIONS = {
    "u.data": _Edition("u.item", "\t"),
    "ratings.dat": _Edition("movies.dat", "::"),
    "ratings.csv": _Edition("movies.csv", ",", header=True),
}


def find(source: FileSource) -> list[str]:
    """The rating files in it that are MovieLens's."""
    names = source.names()
    ratings = [name for name in names if bare(name) in ("u.data", "ratings.dat")]
    for name in names:
        # other sets have a ratings.csv as well: the header and a movies.csv beside it tell
        if bare(name) == "ratings.csv" and source.beside(name, "movies.csv"):
            head = source.head(name).removeprefix(b"\xef\xbb\xbf")
            if head.startswith(_CSV_HEADER):
                ratings.append(name)
    return ratings


def read(source: FileSource, name: str, options: ReadOptions = PLAIN) -> tuple[Columns, str]:
    """Ratings, titles and genres, and which MovieLens it is."""
    edition, label, skip = EDITIONS[bare(name)], source.label(name), options.skip_bad_lines
    data, _ = clean(source.read(name), label, forgiving=skip)
    layout = recognise(data, label, edition.ratings)
    columns, skipped = read_columns(data, layout, BadLines(label, skip))
    movies = source.beside(name, edition.movies)
    used = PurePosixPath(name).name
    if movies is not None:
        used += f", {PurePosixPath(movies).name}"
        columns = _with_movies(columns, source, movies, edition)
    size = _SIZES.get(len(columns.values))
    what = f"MovieLens {size} ({used})" if size else f"MovieLens files ({used})"
    return columns, f"{what}; {skipped}" if skipped else what


def _with_movies(columns: Columns, source: FileSource, name: str, edition: _Edition) -> Columns:
    frame = _movies(source, name, edition)
    if edition.movies == "u.item":  # a flag for each genre instead of their names
        flags = frame.select(pl.nth(range(5, frame.width)).str.strip_chars() == "1").rows()
        names = _genre_names(source, name)
        genres = ["|".join(compress(names, row)) for row in flags]
    else:
        genres = frame["2"].to_list()
    shown = ["" if text in _NO_GENRE else text for text in genres]
    return columns.with_texts(frame["0"].to_list(), frame["1"].to_list(), shown)


def _movies(source: FileSource, name: str, edition: _Edition) -> pl.DataFrame:
    """id, title, genres; of 100K id, title, three fields more and a flag for each genre."""
    label = source.label(name)
    of_flags = edition.movies == "u.item"
    width = 5 + len(_genre_names(source, name)) if of_flags else 3
    separator = "|" if of_flags else edition.separator
    shape = TextShape(separator, separator == ",", width, edition.header, like="a movie")
    try:
        data, _ = clean(source.read(name), label)  # 100K and 1M are in Latin-1
        return cut_fields(data, shape, BadLines(label)).frame.fill_null("")
    except DataError as error:
        raise DataError(
            f"{str(error).partition(';')[0]}; correct it, or take the file away to read the "
            "ratings without titles"
        ) from error


def _genre_names(source: FileSource, movies: str) -> list[str]:
    name = source.beside(movies, "u.genre")
    if name is None:
        return _GENRES.split("|")
    lines = source.read(name).decode("latin-1").split()
    names = [line.partition("|")[0] for line in lines if "|" in line]
    return names or _GENRES.split("|")
