"""Ratings from elsewhere — a pipe, an address, a database — as files, and as what may be noted.

They become files of the cache, so that they are there when asked for again:

    CACHE/sources/<digest>/NAME     of the content, or of the address that it was downloaded from

NAME is what messages call the file. A folder is renamed into its place when it is whole.
"""

from __future__ import annotations

import logging
import secrets
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from cfnade.data.addresses import DATABASES, PIPE, STORE, WEB, masked, scheme
from cfnade.data.array_files import digest_file, digest_text
from cfnade.data.cache import cache_folder
from cfnade.data.named import SETS
from cfnade.exceptions import DataError
from cfnade.utils.files import atomic_write

log = logging.getLogger(__name__)

_PIPED = "standard-input"
_PIECE = 1 << 20
_HOW = "send ratings into it, as in: cat ratings.csv | cfnade data info -"


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
        return _keep_standard_input()
    _refuse_lost(Path(data).expanduser())
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


def _keep_standard_input() -> Path:
    """All of standard input as a file: it comes only once."""
    stream = sys.stdin
    if stream is None or stream.closed or stream.isatty():
        raise DataError(f"standard input is no pipe; {_HOW}")
    path = keep(_PIPED, _copy)
    log.info("standard input: kept as %s, where later commands find it", path)
    return path


def _copy(file: IO[bytes]) -> None:
    piece = sys.stdin.buffer.read(_PIECE)
    if not piece:
        raise DataError(f"standard input is empty; {_HOW}")
    while piece:
        file.write(piece)
        piece = sys.stdin.buffer.read(_PIECE)


# -- what is kept ---------------------------------------------------------------------------------


def keep(name: str, write: Callable[[IO[bytes]], None]) -> Path:
    """What `write` writes, under the digest of it: the same content is the same file."""
    scratch = _folder() / f".{secrets.token_hex(8)}.part"
    with _writable():
        try:
            with atomic_write(scratch / name) as file:
                write(file)
            place = _folder() / digest_file(scratch / name)
            if not (place / name).exists():
                place.mkdir(exist_ok=True)
                (scratch / name).replace(place / name)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return place / name


def place_of(address: str, name: str) -> Path:
    """Where the file of an address is kept."""
    return _folder() / digest_text(address) / name


def _refuse_lost(path: Path) -> None:
    """Say what to do about a file that was kept here and is gone with the cache."""
    if path.absolute().is_relative_to(_folder()) and not path.exists():
        raise DataError(
            f"{path}: these ratings came through a pipe or from a database and are no longer in "
            "the cache; give the data again, or bring it back by reading the same ratings once "
            "more with `cfnade data info`"
        )


def _folder() -> Path:
    return cache_folder().resolve() / "sources"


@contextmanager
def _writable() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(
            f"{_folder()}: what was read cannot be kept there ({error.strerror or error}); make "
            "room, or name another folder with the environment variable CFNADE_CACHE"
        ) from error
