"""The map keeps neighbours together."""

from __future__ import annotations

import numpy as np
import pytest

from cfnade.server.item_map import embed_in_plane


def groups(seed: int, sizes: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Unit vectors around as many directions as there are sizes, and whose each is."""
    rng = np.random.default_rng(seed)
    centres = np.linalg.qr(rng.normal(size=(12, len(sizes))))[0].T
    which = np.repeat(np.arange(len(sizes)), sizes)
    made = centres[which] + 0.15 * rng.normal(size=(len(which), 12))
    return made / np.linalg.norm(made, axis=1, keepdims=True), which


def nearest(points: np.ndarray, k: int) -> np.ndarray:
    far = np.square(points[:, None] - points).sum(2)
    np.fill_diagonal(far, np.inf)
    return np.asarray(far.argsort(1)[:, :k])


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_groups_stay_together(seed: int) -> None:
    vectors, which = groups(seed, (30, 40, 20, 50))
    places = embed_in_plane(vectors)
    assert places.shape == (140, 2)
    assert places.min() == pytest.approx(0)
    assert places.max() == pytest.approx(1)
    assert (which[nearest(places, 5)] == which[:, None]).mean() > 0.97


def test_it_keeps_more_neighbours_than_a_plain_projection() -> None:
    vectors, _ = groups(4, (15,) * 9)
    centred = vectors - vectors.mean(0)
    plain = centred @ np.linalg.svd(centred, full_matrices=False)[2][:2].T

    def kept(points: np.ndarray) -> float:
        pairs = zip(nearest(points, 8), nearest(vectors, 8), strict=True)
        return float(np.mean([len(set(a) & set(b)) / 8 for a, b in pairs]))

    assert kept(embed_in_plane(vectors)) > kept(plain) + 0.2


def test_there_is_no_chance_in_it() -> None:
    vectors, _ = groups(7, (10, 12))
    assert (embed_in_plane(vectors) == embed_in_plane(vectors.copy())).all()


@pytest.mark.parametrize("n", [0, 1, 3, 4, 5])
def test_few_and_equal_items_have_places_too(n: int) -> None:
    places = embed_in_plane(np.ones((n, 6), np.float32))
    assert places.shape == (n, 2)
    assert np.isfinite(places).all()
