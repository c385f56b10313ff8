"""The space that `cfnade tune` searches, and the recipe that it writes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from cfnade.config import TrainingConfig
from cfnade.recipes import Recipe
from cfnade.utils.files import write_text


class Trial(Protocol):
    """The part of an Optuna trial that is used here."""

    def suggest_float(self, name: str, low: float, high: float, *, log: bool = False) -> float: ...


def sampler_seed(seed: int, trials: int) -> int:
    """A seed for the trials after so many: a search that goes on must not repeat its first."""
    return int(np.random.SeedSequence((seed, trials)).generate_state(1)[0])


def try_settings(trial: Trial, base: TrainingConfig) -> TrainingConfig:
    """TrainingConfig around a recipe's: rate, decay and smoothing, each on a logarithmic scale."""
    return replace(
        base,
        learning_rate=trial.suggest_float(
            "learning_rate", base.learning_rate / 4, base.learning_rate * 4, log=True
        ),
        weight_decay=trial.suggest_float(
            "weight_decay",
            max(base.weight_decay, 1e-6) / 30,
            max(base.weight_decay, 1e-6) * 10,
            log=True,
        ),
        smoothing=trial.suggest_float("smoothing", 1.0, 50.0, log=True),
    )


def write_best(path: Path, base: Recipe, found: dict[str, Any], rmse: float, split: str) -> None:
    """The best recipe so far, as a file that `cfnade train --recipe` takes."""
    training = base.training.to_dict() | found
    lines = [f'side = "{base.side}"', "", "[model]"]
    lines += [f"{name} = {_toml(value)}" for name, value in base.model.items()]
    lines += ["", "[training]"]
    lines += [f"{name} = {_toml(value)}" for name, value in training.items() if value is not None]
    lines += ["", "[measured]", f"valid_rmse = {rmse:.5f}", f'split = "{split}"']
    write_text(path, "\n".join(lines) + "\n")


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, tuple | list):
        return f"[{', '.join(_toml(part) for part in value)}]"
    return f"{value!r}"
