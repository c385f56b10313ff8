"""Example users for the page, for visitors without ratings."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np

from cfnade._typing import IntArray
from cfnade.inference.predictor import Predictor

_MIN_ITEMS = 4
"""Items of a profile that the catalog must have."""
_TABLES = tomllib.loads(
    (Path(__file__).parent / "sample_profiles.toml").read_text(encoding="utf-8")
)
PROFILES: dict[str, dict[tuple[str, int], float]] = {
    name: {(film[:-7], int(film[-5:-1])): liking for film, liking in films.items()}
    for name, films in _TABLES.items()
}
"""Title and year, with a liking from 0 (the scale's lowest) to 1 (its highest)."""


def sample_profiles(predictor: Predictor, counts: IntArray) -> list[dict[str, Any]]:
    """Return the profiles whose films the catalog has; if none, one of the most rated items."""
    profiles = []
    for name, films in PROFILES.items():
        likings = {predictor.catalog.match(*film): liking for film, liking in films.items()}
        likings.pop(None, None)
        if not predictor.fitted.predicts_ratings:  # an interaction is no evidence against others
            likings = {item: liking for item, liking in likings.items() if liking >= 0.5}
        if len(likings) >= _MIN_ITEMS:
            profiles.append({"name": name, "ratings": _ratings(predictor, likings)})
    most_rated = dict.fromkeys(np.argsort(-counts, kind="stable")[:_MIN_ITEMS].tolist(), 1.0)
    return profiles or [{"name": "Most rated", "ratings": _ratings(predictor, most_rated)}]


def _ratings(predictor: Predictor, likings: dict[int | None, float]) -> list[dict[str, Any]]:
    """Return items by index with the value of the scale that is nearest to each liking."""
    values, titles = predictor.scale.array(), predictor.catalog.titles
    ratings = []
    for index, liking in likings.items():
        assert index is not None
        target = values[0] + liking * (values[-1] - values[0])
        rating = float(values[np.abs(values - target).argmin()])
        ratings.append(
            {
                "item": predictor.items.raw(index),
                "title": None if titles is None else titles[index] or None,
                "rating": rating if predictor.fitted.predicts_ratings else None,
            }
        )
    return ratings
