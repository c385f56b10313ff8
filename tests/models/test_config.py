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
        ({"columns": 0}, r"columns \(=0\) must be a whole number of at least 1"),
        ({"hidden": ()}, r"hidden \(=\(\)\) must be a list of at least 1 value"),
        ({"hidden": 500}, r"hidden \(=500\) must be a list of at least 1 value"),
        ({"hidden": (8, 0)}, r"hidden \(=\(8, 0\)\) must be .* each a whole number of at least 1"),
        ({"factors": 9}, r"factors \(=9\) must not exceed the 8 hidden units"),
        ({"hidden": (8, 4), "factors": 5}, r"factors \(=5\) must not exceed the 4 hidden units"),
        ({"factors": 0}, r"factors \(=0\) must be a whole number of at least 1, or None"),
        ({"activation": "tahn"}, r"activation \(='tahn'\) must be one of tanh, sigmoid"),
        ({"context_scale": "mean"}, r"context_scale \(='mean'\) must be one of sum, sqrt"),
        ({"target_weight": "one"}, r"target_weight \(='one'\) must be one of paper, unit"),
        ({"ordinal_weight": 1.5}, r"ordinal_weight \(=1.5\) must be a number in 0..1"),
        ({"context_scale": "sqrt"}, r"mean_context must be given with context_scale"),
        (
            {"context_scale": "sqrt", "mean_context": 0.0},
            r"mean_context \(=0.0\) must be a number above 0",
        ),
        ({"hidden": (8.0,)}, r"hidden \(=\(8.0,\)\) must be a list of at least 1 value"),
        ({"hidden": ("8",)}, r"hidden \(=\('8',\)\) must be a list of at least 1 value"),
        ({"hidden": (True,)}, r"hidden \(=\(True,\)\) must be a list of at least 1 value"),
        ({"hidden": "88"}, r"hidden \(='88'\) must be a list of at least 1 value"),
        ({"factors": 2.0}, r"factors \(=2.0\) must be a whole number"),
        ({"factors": True}, r"factors \(=True\) must be a whole number"),
        ({"levels": "5"}, r"levels \(='5'\) must be a whole number"),
        ({"columns": None}, r"columns \(=None\) must be a whole number"),
        ({"shared": "no"}, r"shared \(='no'\) must be true or false"),
        ({"ordinal_weight": "1"}, r"ordinal_weight \(='1'\) must be a number"),
        ({"ordinal_weight": None}, r"ordinal_weight \(=None\) must be a number"),
        (
            {"context_scale": "sqrt", "mean_context": [2]},
            r"mean_context \(=\[2\]\) must be a number",
        ),
        ({"activation": ["tanh"]}, r"activation \(=\['tanh'\]\) must be one of tanh"),
        (
            {"hidden": (10**12,)},
            r"hidden \(=\(1000000000000,\)\).* 30,000,000,000,000 weights, 120,000 GB, too large",
        ),
        ({"hidden": (8, 10**9, 10**9)}, r"too large for any machine"),
        ({"mean_context": 3.0}, r"mean_context \(=3.0\) has no effect with context_scale \"sum\""),
    ],
)
def test_senseless_fields_are_refused(bad: dict[str, Any], message: str) -> None:
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
