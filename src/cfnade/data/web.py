"""Files at http:// and https:// addresses: downloaded once, whole or not at all."""

from __future__ import annotations

import base64
import http.client
import logging
import re
import shutil
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from cfnade.data.addresses import masked
from cfnade.data.elsewhere import place_of
from cfnade.exceptions import DataError
from cfnade.utils.files import atomic_write

log = logging.getLogger(__name__)

SECONDS = 30.0
"""How long a server may say nothing."""

_PIECE = 1 << 20
_AS_WRITTEN = "%/:=&?~#+!$,;'@()*[]"  # in an address; everything else is escaped
_OR_BY_HAND = "check the address and the network, or download the file and give its path"
_ADVICE = {401: "it wants a user and a password", 403: "it may want a user and a password"}


def download(address: str) -> Path:
    """The file of an address, from the cache if it was downloaded before."""
    shown = masked(address)
    with _explaining(shown):
        request, name = _request(address)
        place = place_of(shown, name)
        if place.exists():
            return place
        log.info("%s: downloading", shown)
        with (
            urllib.request.urlopen(request, timeout=SECONDS) as answer,
            atomic_write(place) as file,
        ):
            size = _copy(answer, file, shown, place)
    log.info("%s: %s bytes, kept as %s until you delete it", shown, f"{size:,}", place)
    return place


def _request(address: str) -> tuple[urllib.request.Request, str]:
    """What to ask for, and what to call it."""
    parts = urlsplit(quote(address, safe=_AS_WRITTEN))
    if not parts.hostname:
        raise DataError(f"{masked(address)}: names no host; write it like https://host/ratings.csv")
    host = parts.netloc.rpartition("@")[2]
    request = urllib.request.Request(urlunsplit((*parts[:1], host, *parts[2:4], "")))
    request.add_header("User-Agent", "cfnade")
    if parts.username:
        login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        token = base64.b64encode(login.encode()).decode()
        # not for other hosts that the server may send us to
        request.add_unredirected_header("Authorization", f"Basic {token}")
    last = PurePosixPath(unquote(parts.path)).name
    return request, re.sub(r"[^\w.-]", "_", last).lstrip(".")[-100:] or "download"


def _copy(answer: Any, file: IO[bytes], shown: str, place: Path) -> int:
    """All that the server sends, as much as it said it would; how many bytes that is."""
    expected = int(answer.headers.get("Content-Length", -1))
    free = shutil.disk_usage(place.parent).free
    if expected > free:
        raise DataError(
            f"{shown}: has {expected:,} bytes, {place.parent} has room for {free:,}; make room, "
            "or name another folder with the environment variable CFNADE_CACHE"
        )
    size, bar = 0, DownloadBar(place.name)
    bar.total = max(expected, 0)
    try:
        while piece := answer.read(_PIECE):
            if size == 0:
                _refuse_page(piece, shown)
            file.write(piece)
            size += len(piece)
            bar.update(len(piece))
    finally:
        bar.close()
    if size == 0 and expected <= 0:
        raise DataError(f"{shown}: is empty; {_OR_BY_HAND}")
    if expected > size:
        raise http.client.IncompleteRead(b"", expected - size)
    return size


def _refuse_page(start: bytes, shown: str) -> None:
    """A page that says something is not kept in place of the file."""
    if start.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"<"):
        raise DataError(
            f"{shown}: is a web page, not a file of ratings; give the address that the download "
            "itself has"
        )


@contextmanager
def _explaining(shown: str) -> Iterator[None]:
    """Whatever a network can do, in one sentence."""
    try:
        yield
    except urllib.error.HTTPError as error:
        error.close()
        why = _ADVICE.get(error.code, "check the address")
        raise DataError(
            f"{shown}: the server answers {error.code} ({error.reason}); {why}, or download the "
            "file and give its path"
        ) from error
    except http.client.IncompleteRead as error:
        raise DataError(
            f"{shown}: the download broke off, {error.expected or 'some'} bytes are missing; try "
            "again"
        ) from error
    except TimeoutError as error:
        raise DataError(
            f"{shown}: the server said nothing for {SECONDS:g} s; {_OR_BY_HAND}"
        ) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        if isinstance(error, DataError):
            raise
        reason = getattr(error, "reason", error)
        text = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
        raise DataError(f"{shown}: cannot be downloaded ({text}); {_OR_BY_HAND}") from error


class DownloadBar:
    """How far a download is, on standard error if that is a terminal; in the shape pooch drives."""

    def __init__(self, name: str) -> None:
        from rich import progress
        from rich.console import Console

        console = Console(stderr=True)
        self.total = 0
        columns = (progress.BarColumn(), progress.DownloadColumn(), progress.TransferSpeedColumn())
        self._progress = progress.Progress(
            progress.TextColumn(name), *columns, console=console, disable=not console.is_terminal
        )
        self._task = self._progress.add_task(name, total=None)

    def update(self, amount: int) -> None:
        self._progress.start()
        self._progress.update(self._task, total=self.total, advance=amount)

    def reset(self) -> None:
        self._progress.reset(self._task)

    def close(self) -> None:
        self._progress.stop()
