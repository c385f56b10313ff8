"""MovieLens as it is published: 100K (u.data), 1M and 10M (ratings.dat), the others (csv)."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

import polars as pl

from cfnade.data.columns import Columns
from cfnade.data.roles import ReadOptions
from cfnade.data.sources import FileSource, bare
from cfnade.data.text import read_text
from cfnade.errors import DataError

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

Movie = tuple[str, str, str]  # id, title, genres


@dataclass(frozen=True)
class _Edition:
    movies: str
    options: ReadOptions
    movies_of: Callable[[str, str, list[str]], Iterator[Movie]]


def find(source: FileSource) -> list[str]:
    """The rating files in it that are MovieLens's."""
    names = source.names()
    ratings = [name for name in names if bare(name) in ("u.data", "ratings.dat")]
    for name in names:
        # other sets have a ratings.csv as well: the header and a movies.csv beside it tell
        if bare(name) == "ratings.csv" and _beside(source, name, "movies.csv"):
            head = source.head(name).removeprefix(b"\xef\xbb\xbf")
            if head.startswith(_CSV_HEADER):
                ratings.append(name)
    return ratings


def companions(name: str) -> tuple[str, ...]:
    """Files that belong beside a rating file of this name."""
    edition = _EDITIONS.get(bare(name))
    return () if edition is None else (edition.movies, "u.genre")


def read(source: FileSource, name: str) -> tuple[Columns, str]:
    """Ratings, titles and genres, and which MovieLens it is."""
    edition = _EDITIONS[bare(name)]
    columns, _ = read_text(source.read(name), source.label(name), edition.options)
    movies = _beside(source, name, edition.movies)
    used = PurePosixPath(name).name
    if movies is not None:
        used += f", {PurePosixPath(movies).name}"
        columns = _with_movies(columns, _movies(source, movies, edition))
    size = _SIZES.get(len(columns.values))
    return columns, f"MovieLens {size} ({used})" if size else f"MovieLens files ({used})"


def _beside(source: FileSource, name: str, other: str) -> str | None:
    folder = PurePosixPath(name).parent
    for candidate in source.names():
        if PurePosixPath(candidate).parent == folder and bare(candidate) == other:
            return candidate
    return None


def _movies(source: FileSource, name: str, edition: _Edition) -> list[Movie]:
    data = source.read(name).removeprefix(b"\xef\xbb\xbf")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = data.decode("latin-1")  # 100K and 1M
    genres = _genre_names(source, name)
    return list(edition.movies_of(text.replace("\r\n", "\n"), source.label(name), genres))


def _with_movies(columns: Columns, movies: list[Movie]) -> Columns:
    whole = isinstance(columns.items, pl.Series) and columns.items.dtype.is_integer()
    titles: dict[Any, str] = {}
    genres: dict[Any, str] = {}
    for raw, title, names in movies:
        key = int(raw) if whole and raw.isdecimal() else raw
        titles[key] = title
        if names not in _NO_GENRE:
            genres[key] = names
    return replace(columns, titles=titles, genres=genres)


def _genre_names(source: FileSource, movies: str) -> list[str]:
    name = _beside(source, movies, "u.genre")
    if name is None:
        return _GENRES.split("|")
    lines = source.read(name).decode("latin-1").split()
    names = [line.partition("|")[0] for line in lines if "|" in line]
    return names or _GENRES.split("|")


def _from_item(text: str, label: str, genres: list[str]) -> Iterator[Movie]:
    """id | title | release | video release | address | a flag for each genre."""
    for number, line in enumerate(text.rstrip("\n").split("\n"), 1):
        fields = line.split("|")
        flags = fields[5:]
        if len(flags) != len(genres):
            raise DataError(_bad(label, number, len(fields), 5 + len(genres), "|"))
        named = "|".join(g for g, flag in zip(genres, flags, strict=True) if flag.strip() == "1")
        yield fields[0], fields[1], named


def _from_dat(text: str, label: str, genres: list[str]) -> Iterator[Movie]:  # noqa: ARG001
    for number, line in enumerate(text.rstrip("\n").split("\n"), 1):
        fields = line.split("::")
        if len(fields) != 3:
            raise DataError(_bad(label, number, len(fields), 3, "::"))
        yield fields[0], fields[1], fields[2]


def _from_csv(text: str, label: str, genres: list[str]) -> Iterator[Movie]:  # noqa: ARG001
    reader = csv.reader(io.StringIO(text, newline="\n"), strict=True)
    try:
        for number, fields in enumerate(reader, 1):
            if len(fields) != 3:
                raise DataError(_bad(label, reader.line_num, len(fields), 3, ","))
            if number > 1:  # the header
                yield fields[0], fields[1], fields[2]
    except csv.Error as error:
        raise DataError(f"{label}:{reader.line_num}: {error}; fetch the file again") from error


def _bad(label: str, line: int, count: int, needed: int, separator: str) -> str:
    return (
        f'{label}:{line}: a movie needs {needed} fields separated by "{separator}", this line has '
        f"{count}; correct it, or take the file away to read the ratings without titles"
    )


_EDITIONS = {
    "u.data": _Edition("u.item", ReadOptions(0, 1, 2, 3, "\t", header=False), _from_item),
    "ratings.dat": _Edition("movies.dat", ReadOptions(0, 1, 2, 3, "::", header=False), _from_dat),
    "ratings.csv": _Edition("movies.csv", ReadOptions(0, 1, 2, 3, ",", header=True), _from_csv),
}
