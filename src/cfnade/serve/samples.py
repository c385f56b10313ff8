"""Sample tastes, so that nobody begins with an empty list."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from cfnade.predictor import Predictor

_LEAST = 4
"""Films of a taste that the catalogue must have."""

Taste = dict[tuple[str, int], float]
"""Title and year, with a liking from 0 (the scale's lowest) to 1 (its highest)."""

TASTES: dict[str, Taste] = {
    "Film noir": {
        ("Double Indemnity", 1944): 1.0,
        ("The Maltese Falcon", 1941): 1.0,
        ("The Big Sleep", 1946): 1.0,
        ("Chinatown", 1974): 1.0,
        ("L.A. Confidential", 1997): 0.75,
        ("The Third Man", 1949): 1.0,
        ("Independence Day", 1996): 0.25,
    },
    "Science fiction": {
        ("Blade Runner", 1982): 1.0,
        ("Alien", 1979): 1.0,
        ("2001: A Space Odyssey", 1968): 1.0,
        ("The Matrix", 1999): 1.0,
        ("The Terminator", 1984): 0.75,
        ("Star Wars: Episode V - The Empire Strikes Back", 1980): 1.0,
        ("Pretty Woman", 1990): 0.25,
    },
    "Romantic comedy": {
        ("When Harry Met Sally...", 1989): 1.0,
        ("Notting Hill", 1999): 1.0,
        ("Four Weddings and a Funeral", 1994): 1.0,
        ("Sleepless in Seattle", 1993): 1.0,
        ("Pretty Woman", 1990): 0.75,
        ("While You Were Sleeping", 1995): 1.0,
        ("Alien", 1979): 0.25,
    },
    "With children": {
        ("Toy Story", 1995): 1.0,
        ("The Lion King", 1994): 1.0,
        ("Babe", 1995): 1.0,
        ("Beauty and the Beast", 1991): 1.0,
        ("A Bug's Life", 1998): 0.75,
        ("Mary Poppins", 1964): 1.0,
        ("Pulp Fiction", 1994): 0.25,
    },
    "Horror": {
        ("The Shining", 1980): 1.0,
        ("Halloween", 1978): 1.0,
        ("The Exorcist", 1973): 1.0,
        ("A Nightmare on Elm Street", 1984): 0.75,
        ("Psycho", 1960): 1.0,
        ("Scream", 1996): 0.75,
        ("The Sound of Music", 1965): 0.25,
    },
}


def samples_of(predictor: Predictor, counts: npt.NDArray[np.int64]) -> list[dict[str, Any]]:
    """The tastes whose films the catalogue has; the most rated items at the top rating if none."""
    samples = []
    for name, taste in TASTES.items():
        films = {predictor.catalogue.match(*film): liking for film, liking in taste.items()}
        films.pop(None, None)
        if len(films) >= _LEAST:
            samples.append({"name": name, "ratings": _ratings(predictor, films)})
    most_rated = dict.fromkeys(np.argsort(-counts, kind="stable")[:_LEAST].tolist(), 1.0)
    return samples or [{"name": "Most rated", "ratings": _ratings(predictor, most_rated)}]


def _ratings(predictor: Predictor, likings: dict[int | None, float]) -> list[dict[str, Any]]:
    """Items by index, with the level of the scale that is nearest to each liking."""
    values, titles = predictor.scale.array(), predictor.catalogue.titles
    ratings = []
    for index, liking in likings.items():
        assert index is not None
        wished = values[0] + liking * (values[-1] - values[0])
        ratings.append(
            {
                "item": predictor.items.raw(index),
                "title": None if titles is None else titles[index] or None,
                "rating": float(values[np.abs(values - wished).argmin()]),
            }
        )
    return ratings
