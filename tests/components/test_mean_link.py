"""Distributions with a given mean."""

from __future__ import annotations

import numpy as np
import pytest

from cfnade.components.mean_link import EDGE, MeanLink


def chances(scores: np.ndarray) -> np.ndarray:
    weights = np.exp(scores - scores.max(1, keepdims=True))
    return np.asarray(weights / weights.sum(1, keepdims=True))


@pytest.mark.parametrize("levels", [2, 5, 10])
@pytest.mark.parametrize("noise", [0.2, 0.5, 4.0])
def test_the_mean_is_what_was_predicted(levels: int, noise: float) -> None:
    rng = np.random.default_rng(levels)
    link = MeanLink(rng.normal(size=levels), noise, 2 * noise)
    predicted = np.stack([rng.uniform(EDGE, levels - 1 - EDGE, 400), rng.uniform(0, 1, 400)], 1)
    found = chances(link.scores(predicted)) @ np.arange(levels)
    np.testing.assert_allclose(found, predicted[:, 0], atol=0.01)


def test_beyond_the_ends_the_mean_stays_just_inside() -> None:
    link = MeanLink(np.zeros(5), 0.6, 1.0)
    found = chances(link.scores(np.array([[-3.0, 0.2], [9.0, 0.2]]))) @ np.arange(5)
    np.testing.assert_allclose(found, [EDGE, 4 - EDGE], atol=1e-4)


def test_less_is_known_the_wider_it_is_and_weights_count() -> None:
    k, middle = np.arange(5), np.array([[2.0, 0.0], [2.0, 0.5], [2.0, 1.0]])
    said = chances(MeanLink(np.zeros(5), 0.3, 1.5).scores(middle))
    variances = said @ k**2 - (said @ k) ** 2
    assert (np.diff(variances) > 0.05).all()
    liked = chances(MeanLink(np.array([0, 3.0, 0, 3.0, 0]), 0.3, 1.5).scores(middle))
    assert (liked[:, [1, 3]] > said[:, [1, 3]]).all()


def test_in_the_middle_of_many_levels_it_is_a_bell() -> None:
    """No end is near, so no tilt is needed."""
    k = np.arange(41)
    said = chances(MeanLink(np.zeros(41), 4.0, 4.0).scores(np.array([[20.3, 0.0]])))[0]
    bell = np.exp(-np.square(k - 20.3) / 8)
    np.testing.assert_allclose(said, bell / bell.sum(), atol=1e-4)
