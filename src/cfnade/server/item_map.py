"""A map of items: vectors laid out in two dimensions, like ones near each other.

Exact t-SNE (van der Maaten and Hinton, 2008) of a few hundred items, begun from their two principal
components and without chance: the same vectors give the same map.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cfnade._typing import IntArray
from cfnade.inference.predictor import Predictor

FloatArray = npt.NDArray[np.float64]

_NEAR = 15.0
"""About how many neighbours each item tries to keep (perplexity)."""
_EARLY, _ROUNDS = 80, 300
"""Rounds in which groups form, and rounds in all."""
_PULL = 12.0
"""How much stronger neighbours attract each other in early rounds."""


def item_map(predictor: Predictor, n: int) -> tuple[IntArray, FloatArray]:
    """The n best known items, and places between 0 and 1 (n, 2), like ones near each other."""
    best = np.argsort(-predictor.item_counts, kind="stable")[:n]
    return best, embed_in_plane(predictor.item_vectors[best])


def embed_in_plane(vectors: npt.NDArray[np.floating]) -> FloatArray:
    """Places between 0 and 1 of vectors (n, D). Returns (n, 2)."""
    n = len(vectors)
    if n < 4:
        return np.stack([np.linspace(0.2, 0.8, n), np.full(n, 0.5)], 1)
    made = vectors.astype(np.float64)
    places = 1e-2 * _components(made)
    nearness, moved, gains = _nearness(made), np.zeros((n, 2)), np.ones((n, 2))
    rate = max(n / _PULL, 20.0)
    for step in range(_ROUNDS):
        pull, keep = (_PULL, 0.5) if step < _EARLY else (1.0, 0.8)
        slope = _slope(pull * nearness, places)
        gains = np.where(slope * moved > 0, gains * 0.8, gains + 0.2).clip(0.01)
        moved = keep * moved - rate * gains * slope
        places = places + moved
        places -= places.mean(0)
    low, high = places.min(0), places.max(0)
    return np.asarray((places - low) / np.maximum(high - low, 1e-12))


def _components(vectors: FloatArray) -> FloatArray:
    """The two principal components, of standard deviation 1; the largest of each is positive."""
    centred = vectors - vectors.mean(0)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    places = np.zeros((len(vectors), 2))
    first = centred @ axes[:2].T
    places[:, : first.shape[1]] = first
    largest = places[np.abs(places).argmax(0), [0, 1]]
    return np.asarray(places * np.where(largest < 0, -1, 1) / np.maximum(places.std(0), 1e-12))


def _distances(points: FloatArray) -> FloatArray:
    """Squared, of all pairs. Returns (n, n)."""
    squares = np.square(points).sum(1)
    return np.asarray((squares[:, None] + squares - 2 * points @ points.T).clip(0))


def _nearness(vectors: FloatArray) -> FloatArray:
    """Shares (n, n) of nearness: bells around each item, as wide as it takes to hold _NEAR."""
    far, n = _distances(vectors), len(vectors)
    np.fill_diagonal(far, np.inf)
    far -= far.min(1, keepdims=True)
    low, high = np.full(n, 1e-6), np.full(n, 1e6)
    target = np.log(min(_NEAR, (n - 1) / 2))
    for _ in range(60):
        sharp = np.sqrt(low * high)
        shares = np.exp(-far * sharp[:, None])
        shares /= shares.sum(1, keepdims=True)
        entropy = -(shares * np.log(np.maximum(shares, 1e-300))).sum(1)
        low, high = np.where(entropy > target, sharp, low), np.where(entropy > target, high, sharp)
    both = shares + shares.T
    return np.asarray(both / both.sum())


def _slope(wanted: FloatArray, places: FloatArray) -> FloatArray:
    """Of the divergence between wanted nearness and that of the places. Returns (n, 2)."""
    near = 1 / (1 + _distances(places))
    np.fill_diagonal(near, 0)
    force = (wanted - near / near.sum()) * near
    return np.asarray(4 * (force.sum(1)[:, None] * places - force @ places))
