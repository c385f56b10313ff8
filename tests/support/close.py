"""Numbers that come through different code paths: equal but for rounding.

Another batch size, entry point, process or place in memory takes sums in another order, so the last
bits of float32 may differ. Bits are compared only where the design promises them: the same question
to one model, the same seed and threads in training.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from polars.testing import assert_frame_equal

RELATIVE, ABSOLUTE = 1e-5, 1e-6


def assert_close(found: Any, expected: Any) -> None:
    """Compare frames, arrays, or what JSON holds: numbers nearly, everything else exactly."""
    if isinstance(expected, pl.DataFrame):
        assert_frame_equal(found, expected, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
    elif isinstance(expected, np.ndarray):
        np.testing.assert_allclose(found, expected, rtol=RELATIVE, atol=ABSOLUTE)
    elif isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            assert_close(found[key], value)
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_close(one, other)
    elif isinstance(expected, float) and isinstance(found, int | float):
        np.testing.assert_allclose(found, expected, rtol=RELATIVE, atol=ABSOLUTE)
    else:
        assert found == expected
