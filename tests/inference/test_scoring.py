"""Scores that lists are made of: against the plain model, in pieces or at once."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.queries import NOTHING, known

from cfnade.components.base import Pairs
from cfnade.components.nade import NadeComponent
from cfnade.components.row_states import RowStates
from cfnade.inference.query import Entities, KnownRatings
from cfnade.inference.scorer import softmax
from cfnade.models.batch import Context
from cfnade.models.cfnade import CFNADENetwork
from cfnade.models.config import CFNADEConfig

ACTIVATIONS = ["tanh", "sigmoid", "relu"]


def make(**fields: object) -> CFNADENetwork:
    model = CFNADENetwork(CFNADEConfig(columns=11, levels=4, **{"hidden": (5,), **fields}))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.5, generator=generator)
    return model


ROWS = [
    known([3, 0, 7, 9], [1, 3, 0, 2]),
    NOTHING,
    known([10], [3]),
    *(known([c, 5], [2, 1]) for c in (0, 1, 2, 3)),
]
DATA = Entities.of_histories([-1] * len(ROWS), ROWS, 11, 4).rows


def rows_of(model: CFNADENetwork) -> RowStates:
    arrays = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    return NadeComponent(model.config, arrays).scorer(DATA)


@torch.no_grad()
def literal(
    model: CFNADENetwork, row: KnownRatings, column: int, *, leave_out: bool
) -> torch.Tensor:
    keep = (row[0] != column) | (not leave_out)
    columns, levels = (torch.from_numpy(a[keep].astype(np.int64)) for a in row)
    context = Context(torch.tensor([0, len(columns)]), columns, levels)
    return model.scores(model.hidden(context), torch.tensor([0]), torch.tensor([column]))[0]


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("size", [len(ROWS), 2])
def test_lists_are_the_models_own_one_by_one_or_as_a_product(shared: bool, size: int) -> None:
    model = make(shared=shared)
    some = Entities.of_histories([-1] * size, ROWS[:size], 11, 4).rows
    found = rows_of(model).score_columns(some)
    for row, scores in zip(ROWS[:size], found, strict=True):
        for column in range(11):
            expected = literal(model, row, column, leave_out=False)
            np.testing.assert_allclose(scores[column], expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_activation_is_the_models_own(activation: str) -> None:
    model = make(hidden=(6, 5), factors=3, activation=activation)
    for row, scores in zip(ROWS, rows_of(model).score_columns(DATA), strict=True):
        wanted = torch.stack([literal(model, row, c, leave_out=False) for c in range(11)])
        np.testing.assert_allclose(scores, wanted, atol=2e-5, rtol=2e-5)


def test_what_remains_of_a_lone_rating_is_nothing() -> None:
    """Not what rounding leaves of a large number less itself."""
    model = make()
    with torch.no_grad():
        model.W.mul_(1e4)
    # Row 2 has one rating, row 1 none.
    row, column, none = np.array([2, 1]), np.array([10, 10]), np.array([-1, -1])
    pairs = Pairs(DATA, row, column, none, levels=np.array([3, -1]), serial=True)
    lone, empty = rows_of(model).score_pairs(pairs)
    assert np.array_equal(lone, empty)


def test_distributions_are_softmax_in_double_precision() -> None:
    scores = np.array([[0, 1, 2], [500, 0, -500], [-1e30, 0, 0]], np.float32)
    expected = torch.from_numpy(scores).double().softmax(1).numpy()
    np.testing.assert_allclose(softmax(scores), expected, rtol=1e-14, atol=1e-300)
