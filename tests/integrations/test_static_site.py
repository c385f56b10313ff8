"""Rounded numbers are within half a step of what they stand for, and so are sums over levels."""

from __future__ import annotations

import numpy as np
import pytest

from cfnade.integrations.static_site import packed, rounded


@pytest.mark.parametrize("summed", [False, True])
@pytest.mark.parametrize("bits", [12, 16])
def test_no_number_is_further_than_half_a_step(bits: int, summed: bool) -> None:
    rng = np.random.default_rng(5)
    sizes = np.array([1e-6, 0.02, 1.0, 300.0, 0.0])
    table = rng.normal(size=(5, 7, 11)) * sizes[:, None, None]
    table[2, 3, 4] = -50.0  # one that stands out takes the steps of all others of its item
    steps, scales = rounded(table.astype(np.float32), bits, summed=summed)
    most = 1 << (bits - 1)
    assert np.abs(steps).max() < most
    back, meant = steps * scales.astype(np.float64)[:, None, None], table
    if summed:
        back, meant = back.cumsum(1), meant.cumsum(1)
    half = np.abs(table).max((1, 2)) / (most - 2) / 2
    error = np.abs(back - meant).max((1, 2))
    assert (error <= 1.01 * half).all()
    assert (error[:4] > 0.8 * half[:4]).all()  # and no better: the steps are as wide as said


@pytest.mark.parametrize("size", [6, 7])
def test_twelve_bits_are_all_there(size: int) -> None:
    steps = np.array([-2047, 2047, 0, -1, 1234, -999, 5])[:size]
    together = sum(int(byte) << (8 * at) for at, byte in enumerate(packed(steps, 12).ravel()))
    assert [(together >> (12 * at) & 4095) - 2048 for at in range(size)] == steps.tolist()
    assert packed(steps, 16).tobytes() == steps.astype("<i2").tobytes()
