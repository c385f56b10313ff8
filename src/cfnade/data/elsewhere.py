"""Ratings from elsewhere — a pipe, an address, a database — as files, and as what may be noted.

They become files of the cache, so that they are there when asked for again:

    CACHE/sources/<digest>/NAME     of the content, or of the address that it was downloaded from

NAME is what messages call the file. A folder is renamed into its place when it is whole. Only the
newest inputs from pipes and databases stay; downloads stay until they are deleted.
"""

from __future__ import annotations

import logging
import secrets
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from cfnade.data.addresses import DATABASES, PIPE, STORE, WEB, masked, scheme
from cfnade.data.cache import cache_dir
from cfnade.data.datasets import DATASETS
from cfnade.exceptions import DataError
from cfnade.utils.files import atomic_write
from cfnade.utils.safetensors_io import digest_file, digest_text

log = logging.getLogger(__name__)

KEPT_INPUTS = 10
"""How many inputs from pipes and databases the cache holds. The least recently used go first."""

_PIPED = "standard-input"
_KEPT = ".kept"  # marks a folder that may be removed, unlike that of a download
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
        from cfnade.data.database import save_query_result

        return save_query_result(str(data), query)
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
    if data in DATASETS:
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
        _folder().mkdir(mode=0o700, parents=True, exist_ok=True)  # others need not read it
        try:
            with atomic_write(scratch / name) as file:
                write(file)
            place = _folder() / digest_file(scratch / name)
            if not (place / name).exists():
                place.mkdir(exist_ok=True)
                (scratch / name).replace(place / name)
            (place / _KEPT).touch()
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        _remove_oldest()
    return place / name


def is_kept_input(path: Path) -> bool:
    """Whether a file was kept here by `keep`; if so, note that it is in use."""
    mark = path.parent / _KEPT
    if not path.absolute().is_relative_to(_folder()) or not mark.exists():
        return False
    with suppress(OSError):
        mark.touch()
    return True


def _remove_oldest() -> None:
    """Remove the least recently used inputs, so that at most `KEPT_INPUTS` remain."""

    def last_use(mark: Path) -> float:
        try:
            return mark.stat().st_mtime
        except OSError:
            return 0.0  # another process has just removed it

    for mark in sorted(_folder().glob(f"*/{_KEPT}"), key=last_use)[:-KEPT_INPUTS]:
        log.info("%s: removed; the cache keeps the newest %d inputs", mark.parent, KEPT_INPUTS)
        shutil.rmtree(mark.parent, ignore_errors=True)


def place_of(address: str, name: str) -> Path:
    """Where the file of an address is kept."""
    return _folder() / digest_text(address) / name


def _refuse_lost(path: Path) -> None:
    """Say what to do about a file that was kept here and is gone with the cache."""
    if path.absolute().is_relative_to(_folder()) and not path.exists():
        again = "give the data again"
        if path.name == _PIPED:
            again += ", or bring it back: send the same ratings through `cfnade data info -`"
        raise DataError(
            f"{path}: these ratings came through a pipe or from a database and are no longer in "
            f"the cache, which keeps the newest {KEPT_INPUTS}; {again}"
        )


def _folder() -> Path:
    return cache_dir().resolve() / "sources"


@contextmanager
def _writable() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(
            f"{_folder()}: what was read cannot be kept there ({error.strerror or error}); make "
            "room, or name another folder with the environment variable CFNADE_CACHE"
        ) from error
