"""Sample people for a page, so that nobody begins with an empty list."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cfnade.inference.predictor import Predictor

_LEAST = 4
"""Films of a taste that the catalog must have."""
_TASTES = tomllib.loads(
    (Path(__file__).parent / "sample_profiles.toml").read_text(encoding="utf-8")
)
TASTES: dict[str, dict[tuple[str, int], float]] = {
    name: {(film[:-7], int(film[-5:-1])): liking for film, liking in films.items()}
    for name, films in _TASTES.items()
}
"""Title and year, with a liking from 0 (the scale's lowest) to 1 (its highest)."""


def samples_of(predictor: Predictor, counts: npt.NDArray[np.int64]) -> list[dict[str, Any]]:
    """The tastes whose films the catalog has; the most rated items at the top rating if none."""
    samples = []
    for name, taste in TASTES.items():
        films = {predictor.catalog.match(*film): liking for film, liking in taste.items()}
        films.pop(None, None)
        if not predictor.fitted.rates:  # who picks a film says nothing against another
            films = {film: liking for film, liking in films.items() if liking >= 0.5}
        if len(films) >= _LEAST:
            samples.append({"name": name, "ratings": _ratings(predictor, films)})
    most_rated = dict.fromkeys(np.argsort(-counts, kind="stable")[:_LEAST].tolist(), 1.0)
    return samples or [{"name": "Most rated", "ratings": _ratings(predictor, most_rated)}]


def _ratings(predictor: Predictor, likings: dict[int | None, float]) -> list[dict[str, Any]]:
    """Items by index, with the level of the scale that is nearest to each liking."""
    values, titles = predictor.scale.array(), predictor.catalog.titles
    starred, ratings = predictor.fitted.rates, []
    for index, liking in likings.items():
        assert index is not None
        wished = values[0] + liking * (values[-1] - values[0])
        ratings.append(
            {
                "item": predictor.items.raw(index),
                "title": None if titles is None else titles[index] or None,
                "rating": float(values[np.abs(values - wished).argmin()]) if starred else None,
            }
        )
    return ratings
