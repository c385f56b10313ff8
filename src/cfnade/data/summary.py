"""What a data set is like, in a few figures."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt

from cfnade.data.dataset import Dataset


@dataclass(frozen=True)
class Counts:
    """How many ratings each user gave, or each item got."""

    least: int
    median: float
    mean: float
    most: int
    octaves: list[int]
    """How many of them have 1, 2–3, 4–7, 8–15 … ratings."""

    def __str__(self) -> str:
        return f"{self.least:,} to {self.most:,}, median {self.median:,.0f}, mean {self.mean:,.1f}"


@dataclass(frozen=True)
class Weights:
    """What interactions weigh."""

    least: float
    median: float
    mean: float
    most: float
    total: float

    def __str__(self) -> str:
        return (
            f"{self.least:g} to {self.most:g}, median {self.median:g}, mean {self.mean:.4g}, "
            f"{self.total:,.6g} in all"
        )


@dataclass(frozen=True)
class Summary:
    """The figures of `cfnade data info`."""

    source: str
    ratings: int
    users: int
    items: int
    levels: int
    scale: list[float]
    scale_text: str
    density: float
    mean: float
    histogram: list[int]
    """How many ratings each level has, in the order of `scale`."""
    per_user: Counts
    per_item: Counts
    first: str | None
    last: str | None
    titles: bool
    genres: bool
    fingerprint: str
    weights: Weights | None = None
    """Of interactions that do not all count once."""

    @property
    def implicit(self) -> bool:
        """Whether these are interactions, which have no scale, mean and histogram to speak of."""
        return self.levels == 1


def summarise(ratings: Dataset) -> Summary:
    """Count what there is to count; users and items without a rating here are left out."""
    histogram = np.bincount(ratings.levels, minlength=len(ratings.scale))
    per_user = _per(ratings.users, ratings.n_users)
    per_item = _per(ratings.items, ratings.n_items)
    times = ratings.times if len(ratings) else None
    return Summary(
        source=ratings.source,
        ratings=len(ratings),
        users=len(per_user),
        items=len(per_item),
        levels=len(ratings.scale),
        scale=list(ratings.scale.values),
        scale_text=str(ratings.scale),
        density=len(ratings) / max(1, len(per_user) * len(per_item)),
        mean=float(histogram @ ratings.scale.array() / max(1, len(ratings))),
        histogram=histogram.tolist(),
        per_user=_counts(per_user),
        per_item=_counts(per_item),
        first=None if times is None else _iso(int(times.min())),
        last=None if times is None else _iso(int(times.max())),
        titles=ratings.titles is not None,
        genres=ratings.genres is not None,
        fingerprint=ratings.fingerprint,
        weights=_weights(ratings),
    )


def _weights(ratings: Dataset) -> Weights | None:
    if ratings.weights is None or len(ratings) == 0:
        return None
    each = ratings.weights.astype(np.float64)
    return Weights(
        float(each.min()),
        float(np.median(each)),
        float(each.mean()),
        float(each.max()),
        float(each.sum()),
    )


def _per(index: npt.NDArray[np.int32], count: int) -> npt.NDArray[np.int64]:
    counts = np.bincount(index, minlength=count)
    return counts[counts > 0]


def _counts(counts: npt.NDArray[np.int64]) -> Counts:
    if len(counts) == 0:
        return Counts(0, 0.0, 0.0, 0, [])
    octaves = np.bincount(np.frexp(counts.astype(np.float64))[1] - 1)
    return Counts(
        int(counts.min()),
        float(np.median(counts)),
        float(counts.mean()),
        int(counts.max()),
        octaves.tolist(),
    )


def _iso(seconds: int) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):  # beyond the calendar: show the number itself
        return str(seconds)
