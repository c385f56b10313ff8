"""Compare numbers of different code paths, which are equal except for rounding.

Another batch size, entry point, process or memory address adds numbers in another order, so the
last bits of float32 may differ. Compare bits only where the design promises them: the same query to
the same model, and the same seed and number of threads in training.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from polars.testing import assert_frame_equal

RELATIVE, ABSOLUTE = 1e-5, 1e-6


def assert_close(actual: Any, expected: Any) -> None:
    """Compare frames, arrays or JSON values: numbers with a tolerance, everything else exactly."""
    if isinstance(expected, pl.DataFrame):
        assert_frame_equal(actual, expected, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
    elif isinstance(expected, np.ndarray):
        np.testing.assert_allclose(actual, expected, rtol=RELATIVE, atol=ABSOLUTE)
    elif isinstance(expected, dict):
        assert actual.keys() == expected.keys()
        for key, value in expected.items():
            assert_close(actual[key], value)
    elif isinstance(expected, list | tuple):
        assert len(actual) == len(expected)
        for value, expected_value in zip(actual, expected, strict=True):
            assert_close(value, expected_value)
    elif isinstance(expected, float) and isinstance(actual, int | float):
        np.testing.assert_allclose(actual, expected, rtol=RELATIVE, atol=ABSOLUTE)
    else:
        assert actual == expected
