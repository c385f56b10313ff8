"""Fields of a model: refused when they make no sense, the same after a trip through JSON."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest

from cfnade.exceptions import ModelError
from cfnade.models import CFNADEConfig


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"levels": 1}, r"levels \(=1\) must be a whole number of at least 2"),
        ({"hidden": (8, 0)}, r"hidden \(=\(8, 0\)\) must be .* each a whole number of at least 1"),
        ({"factors": 9}, r"factors \(=9\) must not exceed the 8 hidden units"),
        ({"hidden": (8, 4), "factors": 5}, r"factors \(=5\) must not exceed the 4 hidden units"),
        ({"activation": "tahn"}, r"activation \(='tahn'\) must be one of tanh, sigmoid"),
        ({"ordinal_weight": 1.5}, r"ordinal_weight \(=1.5\) must be a number in 0..1"),
        ({"context_scale": "sqrt"}, r"mean_context must be given with context_scale"),
        ({"mean_context": 3.0}, r"mean_context \(=3.0\) has no effect with context_scale \"sum\""),
        (
            {"hidden": (10**12,)},
            r"hidden \(=\(1000000000000,\)\).* 30,000,000,000,000 weights, 120,000 GB, too large",
        ),
        ({"hidden": (8, 10**9, 10**9)}, r"too large for any machine"),
    ],
)
def test_senseless_fields_are_refused(bad: dict[str, Any], message: str) -> None:
    """Types and bounds of single fields are tested with the option classes."""
    fields = {"columns": 3, "levels": 5, "hidden": (8,), **bad}
    with pytest.raises(ModelError, match=message):
        CFNADEConfig(**fields)


def test_numbers_of_numpy_become_plain_ones() -> None:
    config = CFNADEConfig(
        columns=np.int64(3),  # type: ignore[arg-type]
        levels=np.int32(5),  # type: ignore[arg-type]
        hidden=np.array([8, 6]).tolist(),
        factors=np.int64(2),  # type: ignore[arg-type]
        ordinal_weight=np.float32(0.25),  # type: ignore[arg-type]
    )
    assert CFNADEConfig(**json.loads(json.dumps(asdict(config)))) == config


def test_the_largest_published_set_is_not_too_large() -> None:
    config = CFNADEConfig(columns=500_000, levels=10, hidden=(2_000,))
    assert (config.columns, config.hidden) == (500_000, (2_000,))
