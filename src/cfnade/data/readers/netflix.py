"""Read the Netflix Prize: `combined_data_*.txt`, or a folder of `mv_*.txt`, and `movie_titles`.

    8:
    1488844,3,2005-09-06

A compiled parser checks every line ("movie:", then its ratings) and stops at the first byte of the
first line that is wrong. It takes 0.4 to 1.2 s for 3 M lines, polars with a forward fill 1.7 to
3.4 s (one thread each). This module imports numba: import it only when such a file was found.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from numba import njit

from cfnade.data.raw_table import RawTable
from cfnade.data.readers import NETFLIX_FILE
from cfnade.data.readers.files import SourceFiles
from cfnade.exceptions import DataError
from cfnade.utils.text import option

_PIECE = 1 << 25  # bytes that a thread parses at a time
_THREADS = 2
_DAY = 86_400
_TITLES = re.compile(r"movie_titles\.(txt|csv)(\.\w+)?")

Bytes = npt.NDArray[np.uint8]


def read(source: SourceFiles, *, skip_bad_lines: bool = False) -> RawTable:
    """Return all ratings in the order of the files, dates as seconds, titles if there are any."""
    if skip_bad_lines:
        raise DataError(
            f"{source.path}: {option('skip_bad_lines', True)} is not for Netflix Prize files, "
            "where a line belongs to the movie named before it; leave it out, and correct a line "
            "that is named"
        )
    names = _rating_files(source)
    first_rows, first_movies, arrays = _parse_files(source, names)
    users, stars, days, movie_ids, movie_starts = arrays

    def locate(row: int) -> str:
        file = int(np.searchsorted(first_rows, row, side="right")) - 1
        movies = int(np.searchsorted(movie_starts, row, side="right")) - first_movies[file]
        return f"{source.label(names[file])}:{row - first_rows[file] + movies + 1}"

    columns = {
        "user": users,
        "item": np.repeat(movie_ids, np.diff(movie_starts, append=len(users))),
        "rating": stars,
        "time": days * np.int32(_DAY),
    }
    return RawTable(
        pl.DataFrame(columns),
        locate,
        label=source.path.name,
        description="Netflix Prize text",
        item_table=_titles(source),
        rating_column=1,
    )


def _rating_files(source: SourceFiles) -> list[str]:
    names = [n for n in source.names if NETFLIX_FILE.fullmatch(PurePosixPath(n).name)]
    if not names:
        return source.names  # a single file under another name
    kinds = {PurePosixPath(name).name[:2] for name in names}
    if len(kinds) > 1:
        raise DataError(
            f"{source.path}: holds both combined_data_*.txt and mv_*.txt, which are the same "
            "ratings twice; keep one of them there"
        )
    return sorted(names, key=lambda name: (len(name), name))


def _parse_files(
    source: SourceFiles, names: list[str]
) -> tuple[list[int], list[int], list[npt.NDArray[Any]]]:
    """Return the first row and the first movie of each file, and the arrays of all files.

    The arrays are users, stars, days, ids of movies, and how many ratings precede each movie.
    """
    first_rows, first_movies, parts = list[int](), list[int](), list[list[npt.NDArray[Any]]]()
    n_rows = n_movies = 0
    for name in names:
        first_rows.append(n_rows)
        first_movies.append(n_movies)
        for part in _parse_file(source, name):
            part[4] += n_rows
            n_rows += len(part[0])
            n_movies += len(part[3])
            parts.append(part)
    arrays = parts[0] if len(parts) == 1 else [np.concatenate(a) for a in zip(*parts, strict=True)]
    return first_rows, first_movies, arrays


def _parse_file(source: SourceFiles, name: str) -> list[list[npt.NDArray[Any]]]:
    """Return the arrays of each piece of a file."""
    path = source.plain_path(name)
    text: Bytes
    if path is not None and path.stat().st_size > _PIECE:
        text = np.memmap(path, np.uint8, "r").view(np.ndarray)
    else:
        text = np.frombuffer(source.read(name), np.uint8)
    label = source.label(name)
    end = len(text)
    while end > 0 and text[end - 1] in b"\r\n":  # blank lines at the end are no error
        end -= 1
    if end == 0:
        raise DataError(f"{label}: the file is empty")
    with ThreadPoolExecutor(_THREADS) as pool:
        parts = list(pool.map(lambda piece: _parse(text, piece, label), _pieces(text, end)))
    movie_starts = parts[0][4]
    if len(movie_starts) == 0 or movie_starts[0] != 0:
        raise DataError(f'{label}:1: a rating before any movie; the first line must be like "1:"')
    return parts


def _pieces(text: Bytes, end: int) -> list[slice]:
    """Return stretches of about _PIECE bytes that begin and end with whole lines."""
    pieces, start = [], 0
    while start < end:
        stop = min(start + _PIECE, end)
        while stop < end and text[stop - 1] != 10:
            stop += 1
        pieces.append(slice(start, stop))
        start = stop
    return pieces


def _parse(text: Bytes, piece: slice, label: str) -> list[npt.NDArray[Any]]:
    lines = int(np.count_nonzero(text[piece] == 10)) + 1
    users, days, movie_ids = (np.empty(lines, np.int32) for _ in range(3))
    stars, movie_starts = np.empty(lines, np.uint8), np.empty(lines, np.int64)
    arrays: list[npt.NDArray[Any]] = [users, stars, days, movie_ids, movie_starts]
    outcome, stop, n, n_movies = parse_lines(text, piece.start, piece.stop, *arrays)
    if outcome != FINE:
        raise DataError(_explain(text, int(stop), label))
    counts = (n, n, n, n_movies, n_movies)
    return [array[:count].copy() for array, count in zip(arrays, counts, strict=True)]


def _explain(text: Bytes, start: int, label: str) -> str:
    """Return what is wrong with the line that starts at byte `start`."""
    number = int(np.count_nonzero(text[:start] == 10)) + 1
    line = text[start : start + 200].tobytes().split(b"\n")[0].rstrip(b"\r").decode("latin-1")
    fields = line.split(",")
    if not line:
        fault = "the line is empty; remove it"
    elif len(fields) != 3:
        fault = f'{line!r} is neither "movie:" nor "user,rating,date" ({len(fields)} fields)'
    elif not re.fullmatch(r"\d{1,9}", fields[0]):
        fault = f"user {fields[0]!r} is not a whole number of at most 9 digits"
    elif not re.fullmatch("[1-5]", fields[1]):
        fault = f"rating {fields[1]!r} is off the scale 1–5"
    else:
        fault = f"date {fields[2]!r} is not a day like 2005-09-06"
    return f"{label}:{number}: {fault}"


def _titles(source: SourceFiles) -> pl.DataFrame | None:
    """Return titles with their year. The file is Latin-1 and has commas inside titles."""
    names = [n for n in source.names if _TITLES.fullmatch(PurePosixPath(n).name)]
    if not names:
        return None
    movies, titles = [], []
    lines = source.read(names[0]).decode("latin-1").splitlines()
    for number, line in enumerate(lines, 1):
        movie, _, text_line = line.partition(",")
        year, comma, title = text_line.partition(",")
        if not comma or not movie.isdecimal():
            raise DataError(
                f'{source.label(names[0])}:{number}: {line[:60]!r} is not "movie,year,title"'
            )
        movies.append(int(movie))
        titles.append(f"{title} ({year})" if year.isdecimal() else title)
    return pl.DataFrame({"item": movies, "title": titles})


# -- the compiled parser --------------------------------------------------------------------------

FINE, _WRONG = 0, 1
_NEWLINE, _RETURN, _COLON, _COMMA, _DASH, _ZERO = 10, 13, 58, 44, 45, 48


@njit(cache=True, nogil=True)
def _two(text, place):  # type: ignore[no-untyped-def]
    """Return the number of two digits."""
    return (np.int32(text[place]) - _ZERO) * 10 + np.int32(text[place + 1]) - _ZERO


@njit(cache=True, nogil=True)
def _day(year, month, day):  # type: ignore[no-untyped-def]
    """Return the days since 1970-01-01; -1 if there is no such day."""
    leap = (year % 4 == 0 and year % 100 != 0) or year % 400 == 0
    days = 31 if month in (1, 3, 5, 7, 8, 10, 12) else 30
    if month == 2:
        days = 29 if leap else 28
    if year < 1970 or year > 2037 or month < 1 or month > 12 or day < 1 or day > days:
        return -1
    # Count from March, so that the leap day is the last of its year.
    y = year - (1 if month <= 2 else 0)
    m = (month + 9) % 12
    return 365 * y + y // 4 - y // 100 + y // 400 + (153 * m + 2) // 5 + day - 1 - 719468


@njit(cache=True, nogil=True)
def _rating(text, place):  # type: ignore[no-untyped-def]
    """Return stars and day of 13 bytes such as ",3,2005-09-06"; a day of -1 for others."""
    shape = text[place] == _COMMA and text[place + 2] == _COMMA
    shape = shape and text[place + 7] == _DASH and text[place + 10] == _DASH
    star = np.int32(text[place + 1]) - _ZERO
    digits = True
    for i in (3, 4, 5, 6, 8, 9, 11, 12):
        digits = digits and _ZERO <= text[place + i] <= _ZERO + 9
    if not shape or not digits or star < 1 or star > 5:
        return star, -1
    year = _two(text, place + 3) * 100 + _two(text, place + 5)
    return star, _day(year, _two(text, place + 8), _two(text, place + 11))


@njit(cache=True, nogil=True)
def parse_lines(text, start, end, users, stars, days, movie_ids, movie_starts):  # type: ignore[no-untyped-def]
    """Parse the lines of text[start:end] into the given arrays, which hold one entry a line.

    `movie_ids` gets the ids on "movie:" lines and `movie_starts` how many ratings precede each.
    Reads each byte once, without the GIL, so that each thread can parse a piece of text. Returns
    the outcome, where it stopped, and how many ratings and movies there are.
    """
    n = n_movies = 0
    place = start
    while place < end:
        line = place
        number = np.int64(0)
        while place < end and _ZERO <= text[place] <= _ZERO + 9:
            number = number * 10 + (np.int64(text[place]) - _ZERO)
            place += 1
        if place in (line, end) or place - line > 9:
            return _WRONG, line, n, n_movies
        if text[place] == _COLON:
            movie_ids[n_movies] = number
            movie_starts[n_movies] = n
            n_movies += 1
            place += 1
        else:
            star, day = _rating(text, place) if place + 13 <= end else (0, -1)
            if day < 0:
                return _WRONG, line, n, n_movies
            users[n] = number
            stars[n] = star
            days[n] = day
            n += 1
            place += 13
        if place < end and text[place] == _RETURN:
            place += 1
        if place < end:
            if text[place] != _NEWLINE:
                return _WRONG, line, n, n_movies
            place += 1
    return FINE, place, n, n_movies
