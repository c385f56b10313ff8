"""Training options: invalid values and unknown names are refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cfnade.config import TrainingConfig
from cfnade.exceptions import TrainingError


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"epochs": -1}, "epochs"),
        ({"average": 1.0}, "average"),
        ({"seed": 2**63}, "seed"),
        ({"context_rate": (0.9, 0.5)}, "context_rate"),
        ({"context_rate": (0.9,)}, "context_rate"),
        ({"context_rate": (0.5, 2)}, "context_rate"),
        ({"context_rate": "all"}, "context_rate"),
        ({"schedule": "plateau"}, "patience"),
        ({"refit": True, "schedule": "plateau", "patience": 2}, "refit"),
    ],
)
def test_invalid_options_are_refused(given: dict[str, Any], field: str) -> None:
    with pytest.raises(TrainingError, match=rf"training setting {field} \(=") as refusal:
        TrainingConfig(**given)
    assert refusal.value.field == field


def test_options_are_read_from_json_and_unknown_names_refused() -> None:
    config = TrainingConfig(context_rate=(0.5, 1.0), epochs=7)
    assert TrainingConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    with pytest.raises(TrainingError, match=r"'learning_rat'; did you mean 'learning_rate'\?"):
        TrainingConfig.from_dict({"learning_rat": 1})
