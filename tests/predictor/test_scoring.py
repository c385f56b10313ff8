"""Scores of whole lines: against the plain model, in pieces or at once."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cfnade.models.batch import Context
from cfnade.models.cfnade import CFNADE
from cfnade.predictor import scoring
from cfnade.predictor.scoring import NOTHING, Row, embeddings, score_rows, states


def make(*, shared: bool = True) -> CFNADE:
    model = CFNADE(columns=11, levels=4, hidden=(5,), shared=shared)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.5, generator=torch.Generator().manual_seed(1))
    return model


ROWS = [
    Row(np.array([3, 0, 7, 9], np.int32), np.array([1, 3, 0, 2], np.uint8)),
    NOTHING,
    Row(np.array([10], np.int32), np.array([3], np.uint8)),
    *(Row(np.array([c, 5], np.int32), np.array([2, 1], np.uint8)) for c in (0, 1, 2, 3)),
]


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("piece", [1, 60, 1 << 22])
@torch.no_grad()
def test_scores_are_the_models_own_however_they_are_cut(
    shared: bool, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scoring, "PIECE", piece)
    model = make(shared=shared)
    for leave_out in (False, True):
        found = list(score_rows(model, ROWS, leave_out=leave_out))
        assert len(found) == len(ROWS)
        for row, scores in zip(ROWS, found, strict=True):
            for column in range(11):
                keep = (row.columns != column) | (not leave_out)
                columns, levels = (torch.from_numpy(a[keep].astype(np.int64)) for a in row)
                context = Context(torch.tensor([0, len(columns)]), columns, levels)
                expected = model.scores(
                    model.hidden(context), torch.tensor([0]), torch.tensor([column])
                )
                torch.testing.assert_close(scores[column], expected[0], atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_what_remains_of_a_lone_rating_is_nothing() -> None:
    model = make()
    rest = torch.full((1, 5), 1e-4)  # as if rounding had left it
    none = torch.tensor([0])
    assert torch.equal(states(model, rest, none), states(model, torch.zeros(1, 5), none))


@pytest.mark.parametrize("shared", [True, False])
@torch.no_grad()
def test_embeddings_add_up_to_the_context_sum(shared: bool) -> None:
    model = make(shared=shared)
    columns, levels = (torch.from_numpy(a.astype(np.int64)) for a in ROWS[0])
    total = sum(own.sum(0) for _, own in embeddings(model, columns, levels))
    torch.testing.assert_close(total, scoring.row_sum(model, ROWS[0]))
