"""Vectors of sixteen: their functions against numpy's in double precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba import njit

from cfnade.kernels import simd


@njit
def apply_exp(x: Any, out: Any) -> None:
    for i in range(0, len(x), 16):
        simd.store(out, i, simd.exp(simd.load(x, i)))


@njit
def apply_log(x: Any, out: Any) -> None:
    for i in range(0, len(x), 16):
        simd.store(out, i, simd.log(simd.load(x, i)))


@njit
def copy_part(x: Any, out: Any, first: int, count: int) -> float:
    part = simd.load_masked(x, first, count)
    simd.store_masked(out, first, part, count)
    return float(simd.horizontal_sum(part))


@pytest.mark.parametrize(("dtype", "error"), [(np.float32, 1.5e-7), (np.float64, 4e-16)])
def test_exp_of_what_is_not_positive(dtype: Any, error: float) -> None:
    x = -np.concatenate([np.linspace(0, 1, 4000), np.linspace(0, 86, 12000)]).astype(dtype)
    out = np.empty_like(x)
    apply_exp(x, out)
    expected = np.exp(x.astype(np.longdouble))
    assert np.max(np.abs(out / expected - 1)) < error


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_exp_far_below_is_nothing_and_never_negative(dtype: Any) -> None:
    x = np.array([-100.0, -1e3, -2e4, -1e30] * 4, dtype) * (1 if dtype is np.float32 else 10)
    out = np.empty_like(x)
    apply_exp(x, out)
    assert np.all((out >= 0) & (out <= 2 * np.finfo(dtype).tiny))


@pytest.mark.parametrize(("dtype", "error"), [(np.float32, 2.5e-7), (np.float64, 4e-16)])
def test_log_from_one_on(dtype: Any, error: float) -> None:
    x = np.concatenate([1 + np.linspace(0, 3, 8000), np.geomspace(1, 1e30, 8000)]).astype(dtype)
    out = np.empty_like(x)
    apply_log(x, out)
    expected = np.log(x.astype(np.longdouble))
    assert np.max(np.abs(out - expected) / np.maximum(expected, 1e-2)) < error


@pytest.mark.parametrize("count", [1, 2, 15, 16, 20])
def test_a_part_touches_its_own_lanes_only(count: int) -> None:
    x = np.arange(40, dtype=np.float32)
    out = np.full(40, -1, np.float32)
    lanes = min(count, 16)
    assert copy_part(x, out, 5, count) == x[5 : 5 + lanes].sum()
    expected = np.full(40, -1, np.float32)
    expected[5 : 5 + lanes] = x[5 : 5 + lanes]
    assert np.array_equal(out, expected)
