"""One step: whatever a setting says, it changes. That steps are right is in tests/components."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from cfnade.components.optimizers import member_network
from cfnade.components.registry import new_member
from cfnade.config import TrainingConfig
from cfnade.data.splits import Split
from cfnade.training.steps import TorchStepper, make_stepper

BASE = TrainingConfig(batch_rows=20, batch_columns=15)


def after_steps(
    parts: Split, names: tuple[str, ...], settings: TrainingConfig, fields: dict[str, Any]
) -> torch.Tensor:
    member = new_member(names, parts.train, fields, settings)
    stepper = make_stepper(member, parts.train, fields, settings, device="cpu", threads=1)
    for step in range(3):
        stepper.step(stepper.sampler.sample(np.arange(10), step), rate=1.0)
    return torch.cat([p.detach().flatten() for p in member_network(member).parameters()])


@pytest.mark.parametrize(
    "change",
    [
        {"learning_rate": 1e-3},
        {"first_layer_factor": 2.0},
        {"dense_factor": 2.0},
        {"weight_decay": 0.1},
        {"output_decay": 9.0},
        {"optimizer": "sparse_adam"},
        {"context_rate": (0.5, 0.9)},
        {"context_rate": "paper"},
        {"smoothing": 1.0},
        {"seed": 1},
    ],
)
def test_every_setting_of_a_step_changes_the_result(parts: Split, change: dict[str, Any]) -> None:
    one, other = (
        after_steps(parts, ("item",), settings, {"hidden": (5,)})
        for settings in (BASE, replace(BASE, **change))
    )
    assert not torch.equal(one, other)


def test_the_size_of_a_block_changes_the_result(parts: Split) -> None:
    one, other = (
        after_steps(parts, ("user", "item"), replace(BASE, batch_columns=n), {"hidden": (5,)})
        for n in (15, 16)
    )
    assert not torch.equal(one, other)


@pytest.mark.parametrize("field", [{"target_weight": "unit"}, {"ordinal_weight": 0.5}])
def test_fields_of_the_cost_change_the_result(parts: Split, field: dict[str, Any]) -> None:
    for names in (("user",), ("user", "time"), ("user", "item")):
        if len(names) == 2 and "target_weight" in field and "item" in names:
            continue  # targets of a block count the same
        timed = replace(
            parts, train=parts.train.replace(times=np.arange(len(parts.train), dtype=np.int64))
        )
        one, other = (
            after_steps(timed, names, BASE, {"hidden": (5,), **fields}) for fields in ({}, field)
        )
        assert not torch.equal(one, other)


def test_another_device_takes_plain_torch(parts: Split) -> None:
    member = new_member(("user",), parts.train, {"hidden": (5,)}, BASE)
    stepper = make_stepper(member, parts.train, {}, BASE, device="meta", threads=1)
    assert isinstance(stepper, TorchStepper)
