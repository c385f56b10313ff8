"""What the authors' released code does beside the paper's text, where it is no product option.

slope       hidden states also receive r_i · S_i: a direction per column that grows with the rating.
            It equals W_{i,j} + S_i for every level j, so the trained S is folded into W.
adam        Adam without the correction of its first steps, which makes early steps up to 6.5 times
            as long: the same as a schedule that multiplies the rate.
flat_start  output biases start at zero instead of the data's frequencies.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

from cfnade.errors import CfnadeError
from cfnade.models.cfnade import CFNADE
from cfnade.settings import Settings
from cfnade.training import member, start
from cfnade.training.steppers import CpuStepper, RowIds, TorchStepper


@contextmanager
def variant(name: str | None) -> Iterator[None]:
    """Training inside is the variant; None is the product as it is."""
    known = {"slope": _SLOPE, "adam": _ADAM, "flat_start": _FLAT_START}
    if name is not None and name not in known:
        raise CfnadeError(f"unknown variant {name!r}; known: {', '.join(known)}")
    with ExitStack() as stack:
        for target, attribute, value in known[name] if name else []:
            stack.enter_context(patch.object(target, attribute, value))
        yield


class SlopeCFNADE(CFNADE):
    """CF-NADE whose context embeddings have the slope S of each column added at every level."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        self.S = nn.Parameter(torch.zeros(self.config.columns, self.W.shape[2]))  # (M, H)

    @property
    def input_table(self) -> Tensor:
        return self.W + self.S[:, None, :]  # (M, K, H)


class SlopeStepper(TorchStepper):
    """Gradients by autograd: the compiled step knows nothing of S."""

    def __init__(self, model: CFNADE, rows: Any, settings: Settings, _: int | None) -> None:
        with patch("cfnade.training.steppers._engine_names", _names_with_slope):
            super().__init__(model, rows, settings)


def _names_with_slope(model: CFNADE) -> dict[str, str]:
    tables = {"W": "input_table", "S": "input_table", "V": "output_table", "b": "bias"}
    return {name: tables.get(name, name) for name, _ in model.named_parameters()}


class UncorrectedStepper(CpuStepper):
    """Adam as the authors' code has it: decay rates 0.9 and 0.999, corrected for 0.1 and 0.001."""

    def step(self, rows: RowIds, *, step: int, rate: float) -> float:
        return super().step(rows, step=step, rate=rate * uncorrected_factor(step + 1))


def uncorrected_factor(t: int) -> float:
    """How much longer the uncorrected step t is than the corrected one; t counts from 1."""
    theirs = math.sqrt(1 - 0.001**t) / (1 - 0.1**t)
    right = math.sqrt(1 - 0.999**t) / (1 - 0.9**t)
    return theirs / right


def _start_flat(self: CFNADE, counts: Tensor, *, smoothing: float) -> None:  # noqa: ARG001
    nn.init.zeros_(self.b)


_Patch = tuple[Any, str, Any]  # where, which name, by what

_SLOPE: list[_Patch] = [(start, "CFNADE", SlopeCFNADE), (member, "CpuStepper", SlopeStepper)]
_ADAM: list[_Patch] = [(member, "CpuStepper", UncorrectedStepper)]
_FLAT_START: list[_Patch] = [(CFNADE, "initialise_biases", _start_flat)]
