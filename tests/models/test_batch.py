"""A batch that a model cannot read is refused, by name, value and rule."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from cfnade.exceptions import ModelError
from cfnade.models import Context, ModelBatch, Targets

CONTEXT = Context(torch.tensor([0, 2, 2]), torch.tensor([0, 3]), torch.tensor([1, 0]))
TARGETS = Targets(
    torch.tensor([0, 1, 1]), torch.tensor([2, 0, 3]), torch.tensor([0, 1, 2]), torch.ones(3)
)


def check(context: Context = CONTEXT, targets: Targets = TARGETS) -> None:
    ModelBatch(context, targets).check(columns=4, levels=3)


def test_a_sound_batch_passes_and_knows_its_rows() -> None:
    check()
    assert CONTEXT.size == 2
    assert CONTEXT.counts().tolist() == [2, 0]
    assert CONTEXT.rows().tolist() == [0, 0]
    moved = ModelBatch(CONTEXT, TARGETS).to("cpu")
    assert torch.equal(moved.targets.rows, TARGETS.rows)
    assert torch.equal(moved.context.levels, CONTEXT.levels)


def test_a_cell_may_not_be_both_known_and_predicted() -> None:
    leaking = replace(TARGETS, columns=torch.tensor([3, 0, 3]))  # row 0 knows column 3
    message = r"targets overlap the context in 1 cells, first row 0 column 3; a cell must be either"
    with pytest.raises(ModelError, match=message):
        check(targets=leaking)


@pytest.mark.parametrize(
    ("name", "bad", "message"),
    [
        ("offsets", [0, 3, 2], r"context offsets \(=\[0, 3, 2\]\) must rise from 0 to .* 2"),
        ("offsets", [0, 2, 3], r"context offsets .* must rise from 0"),
        ("offsets", [1, 2, 2], r"context offsets .* must rise from 0"),
        ("columns", [0, 4], r"context columns contains 4; it must lie in 0\.\.3 \(columns = 4\)"),
        ("levels", [1, 3], r"context levels contains 3; it must lie in 0\.\.2 \(levels = 3\)"),
        ("levels", [-1, 0], r"context levels contains -1; it must lie in 0\.\.2"),
        ("levels", [1], r"context levels has shape \(1,\); it must have shape \(2,\)"),
        ("levels", [0.0, 1.0], r"context levels has dtype torch.float32; it must hold integers"),
    ],
)
def test_a_bad_context_is_refused(name: str, bad: list[float], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        check(context=replace(CONTEXT, **{name: torch.tensor(bad)}))


@pytest.mark.parametrize(
    ("name", "bad", "message"),
    [
        ("rows", [0, 1, 2], r"target rows contains 2; it must lie in 0\.\.1 \(rows = 2\)"),
        ("columns", [2, 0, 9], r"target columns contains 9; it must lie in 0\.\.3"),
        ("levels", [0, 1, 3], r"target levels contains 3; it must lie in 0\.\.2"),
        ("levels", [0, 1], r"target levels has shape \(2,\); it must have shape \(3,\)"),
        ("weights", [1.0], r"target weights has shape \(1,\); it must have shape \(3,\)"),
    ],
)
def test_bad_targets_are_refused(name: str, bad: list[float], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        check(targets=replace(TARGETS, **{name: torch.tensor(bad)}))
