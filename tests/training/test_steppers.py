"""The fused kernels and plain torch are the same training."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from cfnade.data.splits import Split
from cfnade.models.batch import Batch
from cfnade.models.cfnade import CFNADE
from cfnade.settings import Settings
from cfnade.training import steppers
from cfnade.training.start import new_model
from cfnade.training.steppers import CpuStepper, TorchStepper

VARIANTS: list[dict[str, Any]] = [
    {"hidden": (9,)},
    {"hidden": (9, 7), "shared": False},
    {"hidden": (8,), "factors": 3, "context_scale": "sqrt", "target_weight": "unit"},
    {"hidden": (8, 6), "factors": 3, "ordinal_weight": 0.3, "activation": "relu"},
]


def weights(model: CFNADE) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


@pytest.mark.parametrize("fields", VARIANTS)
def test_both_steppers_move_a_model_alike(
    parts: Split, fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both get the same draws: those of the compiled sampler, handed to torch as a batch."""
    settings = Settings(
        learning_rate=5e-3, first_layer_factor=2.0, dense_factor=0.5, weight_decay=0.01
    )
    rows = parts.train.rows("item")
    # In double precision: Adam turns a rounding error in a gradient of zero into a whole step.
    ours = new_model(parts.train, "item", fields, settings).double()
    theirs = new_model(parts.train, "item", fields, settings).double()
    fused, plain = CpuStepper(ours, rows, settings, 1), TorchStepper(theirs, rows, settings)
    ids = np.arange(len(rows))
    for step in range(6):
        drawn = fused._sampler.draw(ids, seed=settings.seed, step=step)
        monkeypatch.setattr(
            "cfnade.models.orderless.draw_batch", lambda *_, d=drawn, **__: as_batch(d)
        )
        costs = [s.step(ids, step=step, rate=0.7) for s in (fused, plain)]
        assert costs[0] == pytest.approx(costs[1], rel=1e-9)
    assert torch.allclose(weights(ours), weights(theirs), rtol=1e-6, atol=1e-8)


def as_batch(drawn: Any) -> Batch:
    """The compiled sampler's batch in the form of the plain path."""
    from cfnade.models.batch import Context, Targets

    def cells(grouped: Any) -> tuple[Any, Any, Any]:
        columns = np.repeat(np.arange(len(grouped.starts) - 1), np.diff(grouped.starts))
        return grouped.rows.astype(np.int64), columns, grouped.levels.astype(np.int64)

    rows, columns, levels = cells(drawn.context)
    order = np.argsort(rows, kind="stable")
    offsets = np.concatenate([[0], np.cumsum(drawn.counts)])
    known = [torch.from_numpy(a) for a in (offsets, columns[order], levels[order])]
    asked = (*cells(drawn.targets), drawn.targets.weights)
    return Batch(Context(*known), Targets(*(torch.from_numpy(a) for a in asked)))


def test_a_restored_stepper_goes_on_as_if_nothing_had_happened(parts: Split) -> None:
    settings, rows = Settings(), parts.train.rows("user")
    ids = np.arange(len(rows))
    for kind in ("cpu", "torch"):
        ends = []
        for interrupted in (False, True):
            model = new_model(parts.train, "user", {"hidden": (6,)}, settings)
            stepper = make(kind, model, rows, settings)
            for step in range(6):
                if interrupted and step == 3:
                    kept = {name: t.clone() for name, t in stepper.state().items()}
                    stepper = make(kind, model, rows, settings)
                    stepper.restore(kept, 3)
                stepper.step(ids, step=step, rate=1.0)
            ends.append(weights(model))
        assert torch.equal(*ends)


def make(kind: str, model: CFNADE, rows: Any, settings: Settings) -> steppers.Stepper:
    if kind == "cpu":
        return CpuStepper(model, rows, settings, 1)
    return TorchStepper(model, rows, settings)


@pytest.mark.parametrize(
    "change",
    [
        {"learning_rate": 1e-3},
        {"first_layer_factor": 2.0},
        {"dense_factor": 2.0},
        {"weight_decay": 0.1},
        {"rowwise": True},
        {"touched_only": True},
        {"context_rate": (0.5, 0.9)},
        {"context_rate": "paper"},
        {"smoothing": 1.0},
        {"seed": 1},
    ],
)
def test_every_setting_of_a_step_changes_the_result(parts: Split, change: dict[str, Any]) -> None:
    ends = []
    for settings in (Settings(), replace(Settings(), **change)):
        model = new_model(parts.train, "item", {"hidden": (5,)}, settings)
        stepper = CpuStepper(model, parts.train.rows("item"), settings, 1)
        for step in range(3):
            stepper.step(np.arange(10), step=step, rate=1.0)
        ends.append(weights(model))
    assert not torch.equal(*ends)
