"""Training options: invalid values and unknown names are refused."""

from __future__ import annotations

from typing import Any

import pytest

from cfnade.config import TrainingConfig
from cfnade.exceptions import TrainingError


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"epochs": -1}, r"epochs \(=-1\) must be a whole number of at least 0"),
        ({"batch_rows": -1}, r"batch_rows \(=-1\) must be a whole number of at least 1, or None"),
        ({"learning_rate": 0.0}, r"learning_rate \(=0.0\) must be a number above 0"),
        ({"weight_decay": -0.1}, r"weight_decay \(=-0.1\) must be a number of at least 0"),
        ({"average": 1.0}, r"average \(=1.0\) must be a number of at least 0 and below 1"),
        ({"schedule": "sine"}, r"schedule \(='sine'\) must be one of cosine, linear"),
        ({"schedule": "plateau"}, r"patience \(=None\) must be given for the schedule plateau"),
        ({"patience": 0}, r"patience \(=0\) must be a whole number of at least 1, or None"),
        ({"context_rate": (0.9, 0.5)}, r"context_rate .* must be two rising numbers"),
        ({"context_rate": (0.9,)}, r"context_rate .* must be two rising numbers"),
        ({"context_rate": 5}, r"context_rate \(=5\) must be two rising numbers"),
        ({"context_rate": ["a", "b"]}, r"context_rate .* must be two rising numbers"),
        ({"context_rate": "all"}, r"context_rate .* must be .* or .paper"),
        ({"epochs": "5"}, r"epochs \(='5'\) must be a whole number"),
        ({"epochs": 2.5}, r"epochs \(=2.5\) must be a whole number"),
        ({"batch_rows": True}, r"batch_rows \(=True\) must be a whole number"),
        ({"average": "x"}, r"average \(='x'\) must be a number"),
        ({"refit": "yes"}, r"refit \(='yes'\) must be true or false"),
        ({"seed": 2**63}, r"seed .* must be a whole number in 0..2\*\*63-1"),
        (
            {"refit": True, "schedule": "plateau", "patience": 2},
            r"refit \(=True\) needs another schedule than plateau",
        ),
        ({"seed": -1}, r"seed \(=-1\) must be a whole number"),
    ],
)
def test_invalid_options_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(TrainingError, match=message):
        TrainingConfig(**given)


def test_options_are_read_from_json_and_unknown_names_refused() -> None:
    config = TrainingConfig(context_rate=(0.5, 1.0), epochs=7)
    given = config.to_dict() | {"context_rate": [0.5, 1.0]}
    assert TrainingConfig.from_dict(given) == config
    with pytest.raises(TrainingError, match=r"'learning_rat'; did you mean 'learning_rate'\?"):
        TrainingConfig.from_dict({"learning_rat": 1})
