"""A map of items: vectors laid out in the plane, similar ones close together.

Exact t-SNE (van der Maaten and Hinton, 2008) of a few hundred items. It starts from the two
principal components instead of random positions: the same vectors give the same map.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cfnade._typing import IntArray
from cfnade.inference.predictor import Predictor

FloatArray = npt.NDArray[np.float64]

_PERPLEXITY = 15.0
_EARLY_STEPS, _STEPS = 80, 300
_EARLY_EXAGGERATION = 12.0


def item_map(predictor: Predictor, n: int) -> tuple[IntArray, FloatArray]:
    """Return the n items with most ratings, and their positions between 0 and 1, (n, 2)."""
    items = np.argsort(-predictor.item_counts, kind="stable")[:n]
    return items, embed_in_plane(predictor.item_vectors[items])


def embed_in_plane(vectors: npt.NDArray[np.floating]) -> FloatArray:
    """Return positions between 0 and 1, (n, 2), of vectors (n, D)."""
    n = len(vectors)
    if n < 4:
        return np.stack([np.linspace(0.2, 0.8, n), np.full(n, 0.5)], 1)
    points = vectors.astype(np.float64)
    positions = 1e-2 * _principal_components(points)
    affinities, steps, gains = _affinities(points), np.zeros((n, 2)), np.ones((n, 2))
    learning_rate = max(n / _EARLY_EXAGGERATION, 20.0)
    for step in range(_STEPS):
        is_early = step < _EARLY_STEPS
        exaggeration, momentum = (_EARLY_EXAGGERATION, 0.5) if is_early else (1.0, 0.8)
        gradient = _gradient(exaggeration * affinities, positions)
        gains = np.where(gradient * steps > 0, gains * 0.8, gains + 0.2).clip(0.01)
        steps = momentum * steps - learning_rate * gains * gradient
        positions = positions + steps
        positions -= positions.mean(0)
    low, high = positions.min(0), positions.max(0)
    return np.asarray((positions - low) / np.maximum(high - low, 1e-12))


def _principal_components(vectors: FloatArray) -> FloatArray:
    """Return the first two, (n, 2), of standard deviation 1; the largest value is positive."""
    centered = vectors - vectors.mean(0)
    _, _, axes = np.linalg.svd(centered, full_matrices=False)
    scores = np.zeros((len(vectors), 2))
    projected = centered @ axes[:2].T
    scores[:, : projected.shape[1]] = projected
    largest = scores[np.abs(scores).argmax(0), [0, 1]]
    return np.asarray(scores * np.where(largest < 0, -1, 1) / np.maximum(scores.std(0), 1e-12))


def _squared_distances(points: FloatArray) -> FloatArray:
    """Return those of all pairs, (n, n)."""
    squares = np.square(points).sum(1)
    return np.asarray((squares[:, None] + squares - 2 * points @ points.T).clip(0))


def _affinities(vectors: FloatArray) -> FloatArray:
    """Return joint probabilities (n, n) of neighbors: Gaussians with the same perplexity."""
    distances, n = _squared_distances(vectors), len(vectors)
    np.fill_diagonal(distances, np.inf)
    distances -= distances.min(1, keepdims=True)
    low, high = np.full(n, 1e-6), np.full(n, 1e6)
    target = np.log(min(_PERPLEXITY, (n - 1) / 2))
    for _ in range(60):  # bisection of each item's precision
        precision = np.sqrt(low * high)
        conditional = np.exp(-distances * precision[:, None])
        conditional /= conditional.sum(1, keepdims=True)
        entropy = -(conditional * np.log(np.maximum(conditional, 1e-300))).sum(1)
        is_wide = entropy > target
        low, high = np.where(is_wide, precision, low), np.where(is_wide, high, precision)
    joint = conditional + conditional.T
    return np.asarray(joint / joint.sum())


def _gradient(affinities: FloatArray, positions: FloatArray) -> FloatArray:
    """Return the gradient (n, 2) of the divergence between affinities of vectors and positions."""
    kernel = 1 / (1 + _squared_distances(positions))
    np.fill_diagonal(kernel, 0)
    force = (affinities - kernel / kernel.sum()) * kernel
    return np.asarray(4 * (force.sum(1)[:, None] * positions - force @ positions))
