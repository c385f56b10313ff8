"""The same trainings on the CPU's kernels and on a device that is not the CPU, as JSON.

Run in a process of its own: a device, once known to torch, stays.
"""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tests.training.far import NAME, FarDevice, register

from cfnade.config import TrainingConfig
from cfnade.data.splits import Split, split
from cfnade.data.synthetic import synthetic
from cfnade.training.options import RunOptions
from cfnade.training.plan import plan_side
from cfnade.training.state import StateStore
from cfnade.training.train import train

CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "one layer": ("user", {"hidden": (5,)}, {}),
    "deep, factored, averaged": ("item", {"hidden": (5, 4), "factors": 3}, {"average": 0.9}),
    "ridge": ("user", {"hidden": (5,), "ridge": 2}, {}),
    "both": ("both", {"hidden": (5,)}, {"context_rate": (0.5, 1.0)}),
    "time": ("user", {"hidden": (5,), "time": True}, {}),
    "refit": ("item", {"hidden": (5,)}, {"refit": True}),
}


def curve(parts: Split, case: str, device: str, folder: Path) -> list[float]:
    """Validation RMSE of three epochs, the last after the run was interrupted and resumed."""
    side, fields, training = CASES[case]
    settings = TrainingConfig.from_dict({"epochs": 3} | training)
    place = folder / f"{case} {device}"
    place.mkdir()
    plan = plan_side(side, fields, settings)
    done: list[int] = []

    def after_two() -> bool:
        done.append(1)
        return len(done) == 2

    there: Any = FarDevice if device == NAME else nullcontext
    with there():
        options = RunOptions(n_threads=1, device=device, store=StateStore(place))
        train(parts, plan, replace(options, should_stop=after_two))
        trained = train(parts, plan, replace(options, store=StateStore(place, resume=True)))
    first = next(iter(trained.model.members[0].state_dict().values()))
    assert first.device.type == "cpu"
    return [line["valid_rmse"] for line in trained.history]


def main(folder: Path) -> None:
    register()
    # Parameters become tensors of another class there, which the older way of moving cannot do.
    torch.__future__.set_swap_module_params_on_conversion(True)
    ratings = synthetic(30, 20, 250, seed=2).ratings
    ratings = ratings.replace(times=np.arange(len(ratings), dtype=np.int64))
    parts = split(ratings, "paper:1")
    found = {
        case: {device: curve(parts, case, device, folder) for device in ("cpu", NAME)}
        for case in CASES
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
