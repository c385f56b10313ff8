from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfnade.data.scale import MAX_LEVELS, Scale, bin_scale, infer_scale, parse_scale
from cfnade.exceptions import DataError

STARS = [1.0, 2.0, 3.0, 4.0, 5.0]


@pytest.mark.parametrize(
    ("seen", "expected", "text"),
    [
        ([5, 1, 2], STARS, "1–5"),
        ([0.5, 4.0, 5.0], np.arange(0.5, 5.5, 0.5).tolist(), "0.5–5 by 0.5"),
        ([1, 10, 3], list(range(1, 11)), "1–10"),
        ([-10, 9.75, 0], np.arange(-10, 10, 0.25).tolist(), "-10–9.75 by 0.25"),
        ([20, 100, 60], [20, 60, 100], "20–100 by 40"),
        ([0.1, 0.7, 0.3], [0.1, 0.3, 0.5, 0.7], "0.1–0.7 by 0.2"),
    ],
)
def test_scales_are_inferred(seen: list[float], expected: list[float], text: str) -> None:
    scale = infer_scale(np.array(seen, np.float64))
    assert list(scale.values) == expected
    assert str(scale) == text
    assert len(scale) == len(expected)


@settings(max_examples=80)
@given(
    st.integers(-300, 300),
    st.sampled_from([1, 2, 4, 5, 10, 20, 100, 10_000]),
    st.lists(st.integers(0, MAX_LEVELS - 1), min_size=2, max_size=20, unique=True),
)
def test_inferred_scales_have_the_largest_step(low: int, parts: int, steps: list[int]) -> None:
    values = (low + np.array(steps)) / parts
    scale = infer_scale(values)
    grid = scale.array()
    levels, on_scale = scale.levels_of(values)
    assert on_scale.all()
    np.testing.assert_allclose(grid[levels], values, atol=1e-9)
    assert (grid[0], grid[-1]) == (pytest.approx(values.min()), pytest.approx(values.max()))
    common = np.gcd.reduce(np.diff(np.sort(steps)))
    assert len(scale) == (max(steps) - min(steps)) // common + 1


@settings(max_examples=80)
@given(
    st.lists(st.floats(-100, 100), min_size=2, max_size=MAX_LEVELS, unique=True),
    st.lists(st.floats(-120, 120), max_size=30),
)
def test_values_between_points_are_off_the_scale(points: list[float], values: list[float]) -> None:
    grid = np.array(sorted({round(p, 3) for p in points}))
    if len(grid) < 2:
        return
    scale = Scale(tuple(grid.tolist()))
    tried = np.concatenate([np.array(values, np.float64), grid])
    levels, on_scale = scale.levels_of(tried)
    distance = np.abs(grid[None, :] - tried[:, None])
    np.testing.assert_allclose(distance[np.arange(len(tried)), levels], distance.min(1))
    assert not on_scale[distance.min(1) > 2e-4].any()
    np.testing.assert_array_equal(levels[len(values) :], np.arange(len(grid)))
    assert on_scale[len(values) :].all()


def test_float32_ratings_are_on_the_scale_of_tenths() -> None:
    levels, on_scale = parse_scale("0.1-1/0.1").levels_of(np.array([0.1, 0.7, 1.0], np.float32))
    assert levels.tolist() == [0, 6, 9]
    assert on_scale.all()


@pytest.mark.parametrize(
    "values", [[0.0, 1e-5, 1.0], [1e300, 2e300], [0.1234567, 2, 3], [0, 1000, 1001]]
)
def test_continuous_ratings_are_refused(
    values: list[float],
) -> None:
    with pytest.raises(DataError, match=r"look continuous: \d distinct .*bins=10, or give scale="):
        infer_scale(np.array(values))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1-5", STARS),
        (" 1–5 ", STARS),
        ("0.5-5/0.5", np.arange(0.5, 5.5, 0.5).tolist()),
        ("-5--1", [-5, -4, -3, -2, -1]),
        ("0.1-0.5/0.1", [0.1, 0.2, 0.3, 0.4, 0.5]),
    ],
)
def test_scales_are_parsed(text: str, expected: list[float]) -> None:
    assert list(parse_scale(text).values) == expected


def test_scales_can_be_given_as_values() -> None:
    scale = parse_scale([1, 2, 5])
    assert scale.values == (1.0, 2.0, 5.0)
    assert str(scale) == "1, 2, 5"
    assert parse_scale(scale) is scale


@pytest.mark.parametrize(
    ("given_as", "message"),
    [
        ("five", r"'five' is not understood; write \"1-5\" or \"0.5-5/0.5\""),
        ("5-1", r"from 5 to 1 is no whole number of steps"),
        ("1-5/0.3", r"no whole number of steps"),
        ("1-300", r"has 300 levels, at most 255; use bins="),
        ([3], r"needs 2 to 255 levels, got 1"),
        (list(range(256)), r"needs 2 to 255 levels, got 256"),
        ([2, 1], r"must be finite and ascending"),
        ([1, float("nan")], r"must be finite and ascending"),
    ],
)
def test_invalid_scales_are_refused(given_as: str | list[float], message: str) -> None:
    with pytest.raises(DataError, match=message):
        parse_scale(given_as)


@settings(max_examples=100)
@given(st.integers(2, MAX_LEVELS), st.lists(st.floats(-50, 50), min_size=2, max_size=40))
def test_values_fall_into_their_bins(bins: int, values: list[float]) -> None:
    low, high = min(values), max(values)
    if high - low < 1e-3:
        return
    scale = bin_scale(bins, low, high)
    edges = np.linspace(low, high, bins + 1)
    levels, on_scale = scale.levels_of(np.array(values))
    assert on_scale.all()
    assert len(scale) == bins
    for value, level in zip(values, levels.tolist(), strict=True):
        assert edges[level] <= value
        assert value < edges[level + 1] or level == bins - 1


def test_bins_can_be_given_by_edges() -> None:
    scale = bin_scale([0, 1, 3, 10], 0.0, 10.0)
    assert scale.values == (0.5, 2.0, 6.5)
    levels, on_scale = scale.levels_of(np.array([0, 0.99, 1, 3, 10, np.nan]))
    assert levels[:5].tolist() == [0, 0, 1, 2, 2]
    assert on_scale.tolist() == [True] * 5 + [False]
    assert str(scale) == "0.5–6.5 in 3 bins"


@pytest.mark.parametrize(
    ("bins", "message"),
    [
        (1, r"bins \(=1\) must be a whole number in 2\.\.255"),
        ([0, 5, 5, 10], "at least 3 ascending edges"),
        ([0, 5, 9], "ratings run from 0 to 10, beyond the edges"),
    ],
)
def test_invalid_bins_are_refused(bins: int | list[float], message: str) -> None:
    with pytest.raises(DataError, match=message):
        bin_scale(bins, 0.0, 10.0)


def test_equal_ratings_cannot_be_binned() -> None:
    with pytest.raises(DataError, match="every rating is 3, there is nothing to bin"):
        bin_scale(4, 3.0, 3.0)
    with pytest.raises(DataError, match="3 bins need 2 ascending edges"):
        Scale((1.0, 2.0, 3.0), (1.5,))


@pytest.mark.parametrize("low", [1e7, -3e6, 4e8])
def test_large_values_are_distinguished(low: float) -> None:
    scale = infer_scale(np.array([low, low + 0.5, low + 1]))
    assert scale.values == (low, low + 0.5, low + 1)
    levels, fits = scale.levels_of(np.array([low + 0.5, low + 0.25]))
    assert (levels[0], fits.tolist()) == (1, [True, False])
