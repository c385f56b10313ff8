"""Figures that describe a data set."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt

from cfnade.data.dataset import Dataset


@dataclass(frozen=True)
class CountSummary:
    """Numbers of ratings of the users, or of the items."""

    min: int
    median: float
    mean: float
    max: int
    octaves: list[int]
    """Numbers of users or items with 1, 2–3, 4–7, 8–15 … ratings."""

    def __str__(self) -> str:
        return f"{self.min:,} to {self.max:,}, median {self.median:,.0f}, mean {self.mean:,.1f}"


@dataclass(frozen=True)
class WeightSummary:
    """Weights of the interactions."""

    min: float
    median: float
    mean: float
    max: float
    total: float

    def __str__(self) -> str:
        return (
            f"{self.min:g} to {self.max:g}, median {self.median:g}, mean {self.mean:.4g}, "
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
    """Numbers of ratings at each level, in the order of `scale`."""
    per_user: CountSummary
    per_item: CountSummary
    first: str | None
    last: str | None
    titles: bool
    genres: bool
    fingerprint: str
    weights: WeightSummary | None = None
    """Of interactions that do not all count once."""

    @property
    def implicit(self) -> bool:
        """Whether these are interactions: scale, mean and histogram are then meaningless."""
        return self.levels == 1


def summarize(dataset: Dataset) -> Summary:
    """Return the figures of a data set; users and items without a row are not counted."""
    histogram = np.bincount(dataset.levels, minlength=len(dataset.scale))
    per_user, per_item = np.bincount(dataset.users), np.bincount(dataset.items)
    n_users, n_items = (int(np.count_nonzero(counts)) for counts in (per_user, per_item))
    times = dataset.times if len(dataset) else None
    weights = None
    if dataset.weights is not None and len(dataset):
        w = dataset.weights.astype(np.float64)
        figures = w.min(), np.median(w), w.mean(), w.max(), w.sum()
        weights = WeightSummary(*[float(figure) for figure in figures])
    return Summary(
        source=dataset.source,
        ratings=len(dataset),
        users=n_users,
        items=n_items,
        levels=len(dataset.scale),
        scale=list(dataset.scale.values),
        scale_text=str(dataset.scale),
        density=len(dataset) / max(1, n_users * n_items),
        mean=float(histogram @ dataset.scale.array() / max(1, len(dataset))),
        histogram=histogram.tolist(),
        per_user=_summarize_counts(per_user[per_user > 0]),
        per_item=_summarize_counts(per_item[per_item > 0]),
        first=None if times is None else _iso(int(times.min())),
        last=None if times is None else _iso(int(times.max())),
        titles=dataset.titles is not None,
        genres=dataset.genres is not None,
        fingerprint=dataset.fingerprint,
        weights=weights,
    )


def _summarize_counts(counts: npt.NDArray[np.int64]) -> CountSummary:
    if len(counts) == 0:
        return CountSummary(0, 0.0, 0.0, 0, [])
    median, mean = float(np.median(counts)), float(counts.mean())
    octaves = np.bincount(np.frexp(counts.astype(np.float64))[1] - 1)
    return CountSummary(int(counts.min()), median, mean, int(counts.max()), octaves.tolist())


def _iso(seconds: int) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):  # outside the calendar
        return str(seconds)
