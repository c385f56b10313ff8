"""Fields of a model: refused when they make no sense, the same after a trip through JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cfnade.errors import ModelError
from cfnade.models import CFNADE, CFNADEConfig


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"levels": 1}, r"levels \(=1\) must be at least 2"),
        ({"columns": 0}, r"columns \(=0\) must be at least 1"),
        ({"hidden": ()}, r"hidden \(=\(\)\) must name at least one hidden layer"),
        ({"hidden": 500}, r"hidden \(=500\) must be a sequence of layer sizes, such as \(500,\)"),
        ({"hidden": (8, 0)}, r"hidden \(=\(8, 0\)\) must hold sizes of at least 1"),
        ({"factors": 9}, r"factors \(=9\) must not exceed the 8 hidden units"),
        ({"hidden": (8, 4), "factors": 5}, r"factors \(=5\) must not exceed the 4 hidden units"),
        ({"factors": 0}, r"factors \(=0\) must be at least 1, or None"),
        ({"activation": "tahn"}, r"activation \(='tahn'\) must be one of tanh, sigmoid"),
        ({"context_scale": "mean"}, r"context_scale \(='mean'\) must be one of sum, sqrt"),
        ({"target_weight": "one"}, r"target_weight \(='one'\) must be one of paper, unit"),
        ({"ordinal_weight": 1.5}, r"ordinal_weight \(=1.5\) must lie between 0 and 1"),
        ({"context_scale": "sqrt"}, r"mean_context \(=None\) must be a positive number"),
        (
            {"context_scale": "sqrt", "mean_context": 0.0},
            r"mean_context \(=0.0\) must be a positive number",
        ),
        ({"mean_context": 3.0}, r"mean_context \(=3.0\) has no effect with context_scale \"sum\""),
    ],
)
def test_senseless_fields_are_refused(bad: dict[str, Any], message: str) -> None:
    fields = {"columns": 3, "levels": 5, "hidden": (8,), **bad}
    with pytest.raises(ModelError, match=message):
        CFNADEConfig(**fields)
    with pytest.raises(ModelError, match=message):
        CFNADE(**fields)


def test_a_config_survives_json() -> None:
    config = CFNADEConfig(
        columns=3,
        levels=5,
        hidden=(8, 6),
        factors=2,
        shared=False,
        activation="relu",
        context_scale="sqrt",
        mean_context=2.5,
        target_weight="unit",
        ordinal_weight=0.25,
    )
    assert CFNADEConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_an_unknown_or_missing_field_is_refused() -> None:
    with pytest.raises(ModelError, match="unknown field 'factor' of a CF-NADE; known: "):
        CFNADEConfig.from_dict({"columns": 3, "levels": 5, "factor": 2})
    with pytest.raises(ModelError, match="the field 'levels' of a CF-NADE is missing"):
        CFNADEConfig.from_dict({"columns": 3})
