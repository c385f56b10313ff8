"""Scores that lists are made of: against the plain model, in pieces or at once."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cfnade.components import nade_rows
from cfnade.components.base import NOTHING, Row
from cfnade.components.nade_rows import NadeRows, NadeWeights
from cfnade.components.trainable import tables_of
from cfnade.data.csr import CsrRows
from cfnade.inference.lists import distributions
from cfnade.models.batch import Context
from cfnade.models.cfnade import CFNADENetwork

ACTIVATIONS = ["tanh", "sigmoid", "relu"]


def make(**fields: object) -> CFNADENetwork:
    model = CFNADENetwork(columns=11, levels=4, **({"hidden": (5,)} | fields))  # type: ignore[arg-type]
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


def reading(model: CFNADENetwork) -> NadeRows:
    """ROWS as a data set."""
    offsets = np.cumsum([0, *(len(row.columns) for row in ROWS)])
    columns, levels = (np.concatenate([row[part] for row in ROWS]) for part in (0, 1))
    weights = NadeWeights("user", model.config, tables_of(model))
    return NadeRows(weights, CsrRows(offsets, columns, levels, n_columns=11, n_levels=4))


@torch.no_grad()
def literal(model: CFNADENetwork, row: Row, column: int, *, leave_out: bool) -> torch.Tensor:
    keep = (row.columns != column) | (not leave_out)
    columns, levels = (torch.from_numpy(a[keep].astype(np.int64)) for a in row)
    context = Context(torch.tensor([0, len(columns)]), columns, levels)
    return model.scores(model.hidden(context), torch.tensor([0]), torch.tensor([column]))[0]


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("piece", [1, 60, 1 << 22])
def test_scores_are_the_models_own_however_they_are_cut(
    shared: bool, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nade_rows, "PIECE", piece)
    model = make(shared=shared)
    for leave_out in (False, True):
        found = list(reading(model).all(ROWS, leave_out=leave_out))
        assert len(found) == len(ROWS)
        for row, scores in zip(ROWS, found, strict=True):
            for column in range(11):
                expected = literal(model, row, column, leave_out=leave_out)
                np.testing.assert_allclose(scores[column], expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_activation_is_the_models_own(activation: str) -> None:
    model = make(hidden=(6, 5), factors=3, activation=activation)
    for row, scores in zip(ROWS, reading(model).all(ROWS, leave_out=False), strict=True):
        wanted = torch.stack([literal(model, row, c, leave_out=False) for c in range(11)])
        np.testing.assert_allclose(scores, wanted, atol=2e-5, rtol=2e-5)


def test_what_remains_of_a_lone_rating_is_nothing() -> None:
    """Not what rounding leaves of a large number less itself."""
    model = make()
    with torch.no_grad():
        model.W.mul_(1e4)
    lone = Row(np.array([10], np.int32), np.array([3], np.uint8))
    rows = reading(model)
    (without,) = rows.without_each(lone, 2)
    assert np.array_equal(without, rows.some(NOTHING, np.array([2]))[0])


@pytest.mark.parametrize("piece", [1, 1 << 22])
def test_given_cells_and_columns_are_those_of_the_line(
    piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nade_rows, "PIECE", piece)
    rows = reading(make())
    columns = np.array([9, 1, 1, 3, 10, 9, 0])  # known ones and others, some twice
    lines = [rows.all([row], leave_out=True)[0] for row in ROWS]
    for row, line in zip(ROWS, lines, strict=True):
        np.testing.assert_allclose(rows.some(row, columns), line[columns], atol=1e-6)
    for column in range(11):
        held = [
            (number, row.levels[row.columns == column][0])
            for number, row in enumerate(ROWS)
            if column in row.columns
        ]
        raters = Row(
            np.array([number for number, _ in held], np.int32),
            np.array([level for _, level in held], np.uint8),
        )
        expected = [line[column] for line in lines]
        down = rows.down(column, np.arange(len(ROWS)), raters)
        np.testing.assert_allclose(down, expected, atol=1e-5)
        for times in (1, 9):  # one by one, and as a product
            columns = np.full(times, column)
            across = rows.across(columns, [raters] * times, leave_out=True)
            np.testing.assert_allclose(across, [expected] * times, atol=1e-5)


def test_distributions_are_softmax_in_double_precision() -> None:
    scores = np.array([[0, 1, 2], [500, 0, -500], [-1e30, 0, 0]], np.float32)
    expected = torch.from_numpy(scores).double().softmax(1).numpy()
    np.testing.assert_allclose(distributions(scores), expected, rtol=1e-14, atol=1e-300)
