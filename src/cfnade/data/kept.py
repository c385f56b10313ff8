"""Ratings from elsewhere become files of the cache, so that they are there when asked for again.

    CACHE/sources/<digest>/NAME     of the content, or of the address that it was downloaded from

NAME is what messages call the file. A folder is renamed into its place when it is whole.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from cfnade.data.array_files import digest_file, digest_text
from cfnade.data.cache import cache_folder
from cfnade.errors import DataError
from cfnade.files import replacing


def keep(name: str, write: Callable[[IO[bytes]], None]) -> Path:
    """What `write` writes, under the digest of it: the same content is the same file."""
    scratch = _folder() / f".{secrets.token_hex(8)}.part"
    with _writable():
        try:
            with replacing(scratch / name) as file:
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


def refuse_lost(path: Path) -> None:
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
