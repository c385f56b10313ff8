"""Sixteen bits are within half a step of what they stand for, and so are sums over levels."""

from __future__ import annotations

import numpy as np
import pytest

from cfnade.exports.rounded import rounded


@pytest.mark.parametrize("summed", [False, True])
def test_no_number_is_further_than_half_a_step(summed: bool) -> None:
    rng = np.random.default_rng(5)
    sizes = np.array([1e-6, 0.02, 1.0, 300.0, 0.0])
    table = rng.normal(size=(5, 7, 11)) * sizes[:, None, None]
    table[2, 3, 4] = -50.0  # one that stands out takes the steps of all others of its item
    steps, scales = rounded(table.astype(np.float32), summed=summed)
    assert steps.dtype == np.int16
    back, meant = steps * scales.astype(np.float64)[:, None, None], table
    if summed:
        back, meant = back.cumsum(1), meant.cumsum(1)
    half = np.abs(table).max((1, 2)) / 32766 / 2
    error = np.abs(back - meant).max((1, 2))
    assert (error <= 1.01 * half).all()
    assert (error[:4] > 0.9 * half[:4]).all()  # and no better: the steps are as wide as said
