"""Scores of whole lines: against the plain model, in pieces or at once."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.predictor.given import VARIANTS

from cfnade.models.batch import Context
from cfnade.models.cfnade import CFNADE
from cfnade.predictor import scoring
from cfnade.predictor.scoring import NOTHING, Net, Row, distributions, score_rows

ACTIVATIONS = ["tanh", "sigmoid", "relu", "softplus", "elu"]


def make(**fields: object) -> CFNADE:
    model = CFNADE(columns=11, levels=4, **({"hidden": (5,)} | fields))  # type: ignore[arg-type]
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.5, generator=generator)
    return model


ROWS = [
    Row(np.array([3, 0, 7, 9], np.int32), np.array([1, 3, 0, 2], np.uint8)),
    NOTHING,
    Row(np.array([10], np.int32), np.array([3], np.uint8)),
    *(Row(np.array([c, 5], np.int32), np.array([2, 1], np.uint8)) for c in (0, 1, 2, 3)),
]


@torch.no_grad()
def literal(model: CFNADE, row: Row, column: int, *, leave_out: bool) -> torch.Tensor:
    keep = (row.columns != column) | (not leave_out)
    columns, levels = (torch.from_numpy(a[keep].astype(np.int64)) for a in row)
    context = Context(torch.tensor([0, len(columns)]), columns, levels)
    return model.scores(model.hidden(context), torch.tensor([0]), torch.tensor([column]))[0]


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("piece", [1, 60, 1 << 22])
def test_scores_are_the_models_own_however_they_are_cut(
    shared: bool, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scoring, "PIECE", piece)
    model = make(shared=shared)
    for leave_out in (False, True):
        found = list(score_rows(Net(model), ROWS, leave_out=leave_out))
        assert len(found) == len(ROWS)
        for row, scores in zip(ROWS, found, strict=True):
            for column in range(11):
                expected = literal(model, row, column, leave_out=leave_out)
                np.testing.assert_allclose(scores[column], expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_states_are_the_models_own(variant: str, activation: str) -> None:
    model = make(**(VARIANTS[variant] | {"activation": activation}))
    D = model.input_table.shape[2]
    sums = np.random.default_rng(0).normal(size=(6, D)).astype(np.float32) * 8
    counts = np.array([1, 2, 3, 50, 7, 1])
    found = Net(model).states(sums, counts)
    with torch.no_grad():
        hidden = model.hidden_from_sums(torch.from_numpy(sums), torch.from_numpy(counts))
        expected = model.output_state(hidden).numpy()
    np.testing.assert_allclose(found, expected, atol=2e-5, rtol=2e-5)


def test_what_remains_of_a_lone_rating_is_nothing() -> None:
    net = Net(make())
    rest = np.full((1, 5), 1e-4, np.float32)  # as if rounding had left it
    none = np.array([0])
    assert np.array_equal(net.states(rest, none), net.states(np.zeros_like(rest), none))


@pytest.mark.parametrize("piece", [1, 1 << 22])
def test_given_cells_are_those_of_the_line(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "PIECE", piece)
    net = Net(make())
    columns = np.array([9, 1, 1, 3, 10, 9, 0])  # known ones and others, some twice
    for row in ROWS:
        (line,) = score_rows(net, [row], leave_out=True)
        np.testing.assert_allclose(net.row_cells(row, columns), line[columns], atol=1e-6)


def test_distributions_are_softmax_in_double_precision() -> None:
    scores = np.array([[0, 1, 2], [500, 0, -500], [-1e30, 0, 0]], np.float32)
    expected = torch.from_numpy(scores).double().softmax(1).numpy()
    np.testing.assert_allclose(distributions(scores), expected, rtol=1e-14, atol=1e-300)
