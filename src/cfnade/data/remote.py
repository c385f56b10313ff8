"""Bring data that is not a local file to one: URLs, standard input, rows of a database.

    CACHE/sources/<digest>/NAME     of the whole URL, or of the content

NAME is what messages call the file. Downloads stay until they are deleted; of inputs from pipes
and databases the newest `KEPT_INPUTS` stay.
"""

from __future__ import annotations

import logging
import re
import secrets
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import IO, Any
from urllib.parse import unquote, urlsplit

from cfnade.data.storage import cache_dir
from cfnade.exceptions import DataError
from cfnade.utils.files import atomic_write
from cfnade.utils.safetensors_io import digest_file, digest_text
from cfnade.utils.text import option

log = logging.getLogger(__name__)

STANDARD_INPUT = "-"
STORE = "store:"
"""Precedes the address of an event store, whose current ratings are loaded."""
WEB = ("http", "https")
DATABASES = ("sqlite", "postgresql", "postgres")

KEPT_INPUTS = 10
"""How many inputs from pipes and databases the cache holds. The least recently used go first."""
SECONDS = 30.0
"""How long a server may be silent."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
# The last @ ends a password: one that was not escaped may hold others. host:5432/… is a port.
_PASSWORD = re.compile(r"(?<=://)([^:/?#@]*):(?!\d+/)(.*)@")
_WEB_PASSWORD = re.compile(r"(?<=://)([^:/?#@]*):([^/?#]*)@")
_PARAMETER = re.compile(r"(?<=[?&])([^=&#]*)=[^&#]*")
_NAME_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_SECRETS = {
    *("password", "passwd", "pass", "pwd", "token", "secret", "sig", "signature", "key", "auth"),
    *("apikey", "accesskey", "accesstoken", "authtoken", "authkey", "credential", "credentials"),
}
_HIDDEN = "***"

INPUT_MARK = ".kept"
"""Marks a folder of the cache that may be removed, unlike that of a download."""
_PIPE_ADVICE = "send ratings into it, as in: cat ratings.csv | cfnade data info -"
_BY_HAND = "check the address and the network, or download the file and give its path"


# -- addresses ------------------------------------------------------------------------------------


def url_scheme(data: object) -> str | None:
    """Return what precedes :// in a URL, None for anything else."""
    match = _SCHEME.match(data) if isinstance(data, str) else None
    return match[1].lower() if match else None


def password_of(url: str) -> str | None:
    """Return the password of user:password@host as it is written."""
    match = _password_pattern(url).search(url)
    return match[2] if match else None


def redact_url(data: str) -> str:
    """Return a URL without its secrets, for messages; anything else as it is."""
    if url_scheme(data) is None:
        return data
    redacted = _password_pattern(data).sub(rf"\1:{_HIDDEN}@", data, count=1)
    return _PARAMETER.sub(_redact_parameter, redacted)


def _redact_parameter(parameter: re.Match[str]) -> str:
    words = {word.lower() for word in _NAME_PARTS.findall(unquote(parameter[1]))}
    return f"{parameter[1]}={_HIDDEN}" if words & _SECRETS else parameter[0]


def _password_pattern(url: str) -> re.Pattern[str]:
    return _WEB_PASSWORD if url_scheme(url) in WEB else _PASSWORD


# -- files ----------------------------------------------------------------------------------------


def resolve(data: str | Path, query: str | None = None) -> Path:
    """Return the local file or folder of a path, a URL, standard input or a query."""
    scheme = url_scheme(data)
    if scheme in DATABASES:
        return _save_query_result(str(data), query)
    if scheme is not None and scheme not in WEB:
        raise DataError(
            f"{redact_url(str(data))}: {scheme}:// cannot be read; http://, https://, sqlite:/// "
            "and postgresql:// can"
        )
    if query is not None:
        raise DataError(
            f"{option('query')} is for databases (sqlite:///shop.db, "
            "postgresql://user@host/shop); leave it out"
        )
    if scheme is not None:
        return _download(str(data))
    if data == STANDARD_INPUT:
        return _save_standard_input()
    path = Path(data).expanduser()
    if not path.exists() and path.absolute().is_relative_to(_folder()):
        raise DataError(
            f"{path}: this data came from a URL, a pipe or a database and is no longer in the "
            f"cache, which keeps the newest {KEPT_INPUTS} inputs; give the data again (of a pipe: "
            "send the same ratings through `cfnade data info -`)"
        )
    return path


def pin_source(data: str, options: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return data, and options to load it, that mean the same in any folder and at any time.

    Standard input and rows of a database can be read only once, and a URL with secrets must not be
    noted anywhere: their local file is returned.
    """
    from cfnade.data.datasets import DATASETS

    if data in DATASETS:
        return data, options
    if data.startswith(STORE):
        from cfnade.online.engine import redact_store_url

        return STORE + redact_store_url(data), options
    remaining = {name: value for name, value in options.items() if name != "query"}
    if url_scheme(data) in WEB and redact_url(data) == data:
        return data, remaining
    path = resolve(data, options.get("query"))
    if url_scheme(data) is None and data != STANDARD_INPUT:
        return (str(path.resolve()) if path.exists() else data), remaining
    return str(path), remaining


def store_copy(name: str, write: Callable[[IO[bytes]], None]) -> Path:
    """Store what `write` writes under its digest: the same content is the same file."""
    scratch = _folder() / f".{secrets.token_hex(8)}.part"
    with _explain_full_disk():
        _folder().mkdir(mode=0o700, parents=True, exist_ok=True)  # other users need not read it
        try:
            with atomic_write(scratch / name) as file:
                write(file)
            folder = _folder() / digest_file(scratch / name)
            if not (folder / name).exists():
                folder.mkdir(exist_ok=True)
                (scratch / name).replace(folder / name)
            (folder / INPUT_MARK).touch()
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        _remove_oldest()
    return folder / name


def is_stored_input(path: Path) -> bool:
    """Return whether `store_copy` made the file; if so, note that it is in use."""
    mark = path.parent / INPUT_MARK
    if not path.absolute().is_relative_to(_folder()) or not mark.exists():
        return False
    with suppress(OSError):
        mark.touch()
    return True


def _save_query_result(url: str, query: str | None) -> Path:
    """Save the rows of a query, for trainings, which are resumed and evaluated later."""
    from cfnade.data.readers.sql import read_query

    path = store_copy("query-result", read_query(url, query).write_parquet)
    log.info("%s: rows stored as %s, for --resume and evaluate", redact_url(url), path)
    return path


def _save_standard_input() -> Path:
    """Save all of standard input: it can be read only once."""
    stream = sys.stdin
    if stream is None or stream.closed or stream.isatty():
        raise DataError(f"standard input is no pipe; {_PIPE_ADVICE}")

    def copy(file: IO[bytes]) -> None:
        shutil.copyfileobj(stream.buffer, file)
        if file.tell() == 0:
            raise DataError(f"standard input is empty; {_PIPE_ADVICE}")

    path = store_copy("standard-input", copy)
    log.info("standard input: stored as %s, where later commands find it", path)
    return path


def _remove_oldest() -> None:
    with suppress(FileNotFoundError):  # another process may remove them at the same time
        marks = sorted(_folder().glob(f"*/{INPUT_MARK}"), key=lambda mark: mark.stat().st_mtime)
        for mark in marks[:-KEPT_INPUTS]:
            log.info("%s: removed; the cache keeps the newest %d inputs", mark.parent, KEPT_INPUTS)
            shutil.rmtree(mark.parent, ignore_errors=True)


def _folder() -> Path:
    return cache_dir().resolve() / "sources"


@contextmanager
def _explain_full_disk() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(
            f"{_folder()}: the input cannot be stored there ({error.strerror or error}); make "
            "room, or name another folder with the environment variable CFNADE_CACHE"
        ) from error


# -- downloads ------------------------------------------------------------------------------------


def _download(url: str) -> Path:
    """Return the file of a URL, from the cache if it was downloaded before."""
    redacted = redact_url(url)
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise DataError(f"{redacted}: cannot be downloaded ({error}); {_BY_HAND}") from None
    if not parts.hostname:
        raise DataError(f"{redacted}: names no host; write it like https://host/ratings.csv")
    name = re.sub(r"[^\w.-]", "_", PurePosixPath(unquote(parts.path)).name)
    path = _folder() / digest_text(url) / (name.lstrip(".")[-100:] or "download")
    if path.exists():
        return path
    log.info("%s: downloading", redacted)
    with _explain_full_disk():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        retrieve(url, path, timeout=SECONDS)
        with path.open("rb") as file:
            start = file.read(1 << 10).removeprefix(b"\xef\xbb\xbf").lstrip()
        if not start:
            raise DataError(f"is empty; {_BY_HAND}")
        if start.startswith(b"<"):
            raise DataError(
                "is a web page, not a file of ratings; give the address that the download itself "
                "has"
            )
    except Exception as error:  # requests, urllib3 and the operating system each have their own
        with suppress(OSError):
            path.unlink(missing_ok=True)
            path.parent.rmdir()
        reason = str(error) if isinstance(error, DataError) else _explain_download(error)
        raise DataError(f"{redacted}: {reason}") from None  # the cause may hold secrets
    size = path.stat().st_size
    log.info("%s: %s bytes, stored as %s until you delete it", redacted, f"{size:,}", path)
    return path


def retrieve(url: str, path: Path, *, timeout: float, known_hash: str | None = None) -> None:
    """Download a URL to a path, whole or not at all, with a progress bar on a terminal."""
    import pooch

    pooch.get_logger().setLevel(logging.WARNING)  # its messages hold the whole URL
    pooch.retrieve(
        url,
        known_hash=known_hash,
        path=path.parent,
        fname=path.name,
        downloader=pooch.HTTPDownloader(progressbar=_ProgressBar(path.name), timeout=timeout),
    )


def _explain_download(error: Exception) -> str:
    """Return what went wrong, and what to do, without the URL that requests puts into messages."""
    import requests

    if isinstance(error, requests.HTTPError) and error.response is not None:
        code, reason = error.response.status_code, error.response.reason
        error.response.close()
        remedy = "check the address"
        if code in (401, 403):
            remedy = "it may want a user and a password (https://user:password@host/…)"
        return (
            f"the server answers {code} ({reason}); {remedy}, or download the file and give its "
            "path"
        )
    if isinstance(error, requests.exceptions.ChunkedEncodingError):
        return "the download broke off before its end; try again"
    if isinstance(error, requests.Timeout) or "timed out" in str(error):
        return f"the server said nothing for {SECONDS:g} s; {_BY_HAND}"
    system_error = re.search(r"\[Errno -?\d+\] ([\w ]+)", str(error))
    reason = system_error[1] if system_error else type(error).__name__
    return f"cannot be downloaded ({reason}); {_BY_HAND}"


class _ProgressBar:
    """Progress of a download on standard error, if that is a terminal; as pooch calls it."""

    def __init__(self, name: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn

        console = Console(stderr=True)
        columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn())
        self._progress = Progress(name, *columns, console=console, disable=not console.is_terminal)
        self._task = self._progress.add_task(name, total=None)
        self.total = 0

    def update(self, amount: int) -> None:
        self._progress.start()
        self._progress.update(self._task, total=self.total, advance=amount)

    def reset(self) -> None:
        self._progress.reset(self._task)

    def close(self) -> None:
        self._progress.stop()
