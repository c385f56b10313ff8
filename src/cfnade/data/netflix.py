"""The Netflix Prize: `combined_data_*.txt`, or a folder of `mv_*.txt`, and `movie_titles`."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from cfnade.data.columns import Columns
from cfnade.data.roles import PLAIN, ReadOptions
from cfnade.exceptions import DataError

if TYPE_CHECKING:
    from cfnade.data.sources import FileSource

_PIECE = 1 << 25  # bytes a thread parses at a time
_THREADS = 2
_DAY = 86_400
_RATINGS = re.compile(r"(combined_data_\d+|mv_\d+)\.txt(\.\w+)?")
_TITLES = re.compile(r"movie_titles\.(txt|csv)(\.\w+)?")
_OPENING = re.compile(rb"\d{1,9}:\r?\n\d{1,9},\d,\d{4}-\d\d-\d\d\r?(\n|$)")

Bytes = npt.NDArray[np.uint8]


def find(source: FileSource) -> list[str]:
    """The one set that its rating files make, if this looks like the Netflix Prize's."""
    names = source.names()
    if any(_RATINGS.fullmatch(PurePosixPath(name).name) for name in names) or (
        len(names) == 1 and _OPENING.match(source.head(names[0]))
    ):
        return ["the Netflix Prize's files"]
    return []


def read(
    source: FileSource,
    name: str = "",  # noqa: ARG001
    options: ReadOptions = PLAIN,
) -> tuple[Columns, str]:
    """All ratings in the order of the files, dates as seconds, titles if they are there."""
    if options.skip_bad_lines:
        raise DataError(
            f"{source.path}: skip_bad_lines= is not for Netflix Prize files, where a line belongs "
            "to the movie named before it; leave it out, and correct a line that is named"
        )
    files = [_read_file(source, file) for file in _rating_files(source)]
    firsts = np.cumsum([0] + [len(file.stars) for file in files])

    def where(row: int) -> str:
        number = int(np.searchsorted(firsts, row, side="right")) - 1
        return files[number].where(row - int(firsts[number]))

    columns = Columns(
        users=_joined([file.users for file in files]),
        items=_joined([file.movies() for file in files]),
        values=_joined([file.stars for file in files]),
        times=_joined([file.days for file in files]) * np.int32(_DAY),
        titles=_titles(source),
        where=where,
    )
    for file in files:
        file.users = file.stars = file.days = np.empty(0, np.int32)  # `where` needs only the heads
    return columns, "Netflix Prize text"


@dataclass
class _File:
    label: str
    users: npt.NDArray[Any]
    stars: npt.NDArray[Any]
    days: npt.NDArray[Any]
    heads: npt.NDArray[np.int32]  # the movies named, in order
    head_at: npt.NDArray[np.int64]  # how many ratings came before each

    def movies(self) -> npt.NDArray[np.int32]:
        return np.repeat(self.heads, np.diff(self.head_at, append=len(self.users)))

    def where(self, row: int) -> str:
        heads_before = int(np.searchsorted(self.head_at, row, side="right"))
        return f"{self.label}:{row + heads_before + 1}"


def _rating_files(source: FileSource) -> list[str]:
    names = [n for n in source.names() if _RATINGS.fullmatch(PurePosixPath(n).name)]
    if not names:
        return source.names()  # a single file under another name
    kinds = {PurePosixPath(name).name[:2] for name in names}
    if len(kinds) > 1:
        raise DataError(
            f"{source.path}: holds both combined_data_*.txt and mv_*.txt, which are the same "
            "ratings twice; keep one of them there"
        )
    return sorted(names, key=lambda name: (len(name), name))


def _joined(parts: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _read_file(source: FileSource, name: str) -> _File:
    path = source.plain_path(name)
    text: Bytes
    if path is not None and path.stat().st_size > _PIECE:
        text = np.memmap(path, np.uint8, "r").view(np.ndarray)
    else:
        text = np.frombuffer(source.read(name), np.uint8)
    label = source.label(name)
    end = len(text)
    while end > 0 and text[end - 1] in b"\r\n":  # blank lines at the end do no harm
        end -= 1
    if end == 0:
        raise DataError(f"{label}: the file is empty")
    with ThreadPoolExecutor(_THREADS) as pool:
        parsed = list(pool.map(lambda piece: _parse(text, piece, label), _pieces(text, end)))
    heads, head_at = parsed[0][3:]
    if len(heads) == 0 or head_at[0] != 0:
        raise DataError(f'{label}:1: a rating before any movie; the first line must be like "1:"')
    before = np.cumsum([0] + [len(part[0]) for part in parsed[:-1]])
    users, stars, days, heads = (_joined([part[i] for part in parsed]) for i in range(4))
    head_at = _joined([part[4] + n for part, n in zip(parsed, before, strict=True)])
    return _File(label, users, stars, days, heads, head_at)


def _pieces(text: Bytes, end: int) -> list[slice]:
    """Stretches of about _PIECE bytes that start and end with whole lines."""
    pieces, start = [], 0
    while start < end:
        stop = min(start + _PIECE, end)
        while stop < end and text[stop - 1] != 10:
            stop += 1
        pieces.append(slice(start, stop))
        start = stop
    return pieces


def _parse(text: Bytes, piece: slice, label: str) -> tuple[npt.NDArray[Any], ...]:
    from cfnade.data.netflix_text import FINE, parse

    lines = int(np.count_nonzero(text[piece] == 10)) + 1
    users, days, heads = (np.empty(lines, np.int32) for _ in range(3))
    stars, head_at = np.empty(lines, np.uint8), np.empty(lines, np.int64)
    places: list[npt.NDArray[Any]] = [users, stars, days, heads, head_at]
    state, stop, n, n_heads = parse(text, piece.start, piece.stop, *places)
    if state != FINE:
        raise DataError(_complaint(text, int(stop), label))
    return tuple(
        place[:count].copy()
        for place, count in zip(places, (n, n, n, n_heads, n_heads), strict=True)
    )


def _complaint(text: Bytes, start: int, label: str) -> str:
    """What is wrong with the line that starts at byte `start`."""
    number = int(np.count_nonzero(text[:start] == 10)) + 1
    rest = text[start : start + 200].tobytes().split(b"\n")[0].rstrip(b"\r").decode("latin-1")
    fields = rest.split(",")
    place = f"{label}:{number}: "
    if not rest:
        return place + "the line is empty; remove it"
    if len(fields) != 3:
        return place + f'{rest!r} is neither "movie:" nor "user,rating,date" ({len(fields)} fields)'
    if not re.fullmatch(r"\d{1,9}", fields[0]):
        return place + f"user {fields[0]!r} is not a whole number of at most 9 digits"
    if not re.fullmatch("[1-5]", fields[1]):
        return place + f"rating {fields[1]!r} is off the scale 1–5"
    return place + f"date {fields[2]!r} is not a day like 2005-09-06"


def _titles(source: FileSource) -> dict[int, str]:
    """Titles with their year, by movie. The file is Latin-1 and has commas inside titles."""
    names = [n for n in source.names() if _TITLES.fullmatch(PurePosixPath(n).name)]
    titles = {}
    for name in names[:1]:
        for number, line in enumerate(source.read(name).decode("latin-1").splitlines(), 1):
            movie, _, rest = line.partition(",")
            year, comma, title = rest.partition(",")
            if not comma or not movie.isdecimal():
                raise DataError(
                    f'{source.label(name)}:{number}: {line[:60]!r} is not "movie,year,title"'
                )
            titles[int(movie)] = f"{title} ({year})" if year.isdecimal() else title
    return titles
