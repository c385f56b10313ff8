"""Drawn ratings have the frequencies that the exact likelihood gives them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
import torch
from scipy.stats import chisquare
from torch import Tensor

from cfnade.exceptions import ModelError
from cfnade.models import CFNADENetwork, Context
from cfnade.models.generate import sample
from cfnade.models.likelihood import log_conditionals

ContextMaker = Callable[..., Context]


def test_frequencies_match_joint_probabilities(
    model: CFNADENetwork, make_context: ContextMaker, generator: torch.Generator
) -> None:
    known, wanted, draws = [(1, 2), (4, 0)], [3, 0], 6000
    ends, columns = torch.arange(draws + 1) * 2, torch.tensor(wanted * draws)
    levels = sample(model, make_context([known] * draws), ends, columns, generator).reshape(-1, 2)
    seen = torch.bincount(levels[:, 0] * 3 + levels[:, 1], minlength=9)

    rows = make_context([[*known, (3, a), (0, b)] for a, b in product(range(3), repeat=2)])
    p = log_conditionals(model, rows).reshape(9, 4)[:, 2:].sum(1).exp()
    assert p.sum().item() == pytest.approx(1.0)
    expected = (draws * p).detach().numpy()
    enough = expected > 5  # χ² wants a few in every class; the rest is one class
    pooled = [*expected[enough], expected[~enough].sum()]
    counted = [*seen.numpy()[enough], seen.numpy()[~enough].sum()]
    used = slice(None) if pooled[-1] > 0 else slice(-1)
    assert chisquare(counted[used], pooled[used]).pvalue > 0.001


def test_each_draw_knows_the_draws_before_it(
    model: CFNADENetwork,
    make_context: ContextMaker,
    generator: torch.Generator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain, states = model.hidden_from_sums, []

    def watched(sums: Tensor, counts: Tensor) -> Tensor:
        states.append(plain(sums, counts))
        return states[-1]

    known, wanted = [(1, 2)], [3, 0, 4]
    with monkeypatch.context() as patch:
        patch.setattr(model, "hidden_from_sums", watched)
        ends, columns = torch.tensor([0, 3]), torch.tensor(wanted)
        levels = sample(model, make_context([known]), ends, columns, generator)
    for column, level, state in zip(wanted, levels.tolist(), states, strict=True):
        torch.testing.assert_close(state, model.hidden(make_context([known])).detach())
        known.append((column, level))


def test_rows_may_ask_for_different_columns(
    make_model: Callable[..., CFNADENetwork], make_context: ContextMaker, generator: torch.Generator
) -> None:
    # Biases of ±50 decide every draw, so the answer is known.
    model = make_model(shared=False)
    with torch.no_grad():
        model.V.zero_()
        model.b.fill_(-50.0)
        for column, level in enumerate([2, 0, 1, 1, 0]):
            model.b[column, level] = 50.0
    context = make_context([[(0, 1)], [], [(2, 2), (3, 0)]])
    ends, columns = torch.tensor([0, 1, 1, 4]), torch.tensor([3, 4, 0, 1])
    levels = sample(model, context, ends, columns, generator)
    assert levels.tolist() == [1, 0, 2, 0]
    assert sample(model, context, torch.zeros(4).long(), columns[:0], generator).numel() == 0


def test_the_same_generator_draws_the_same_ratings(
    model: CFNADENetwork, make_context: ContextMaker
) -> None:
    ends, columns = torch.arange(31) * 3, torch.tensor([0, 1, 2] * 30)
    context = make_context([[]] * 30)
    one, same, other = (
        sample(model, context, ends, columns, torch.Generator().manual_seed(seed))
        for seed in (0, 0, 1)
    )
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_bad_wishes_are_refused(
    make_model: Callable[..., CFNADENetwork], make_context: ContextMaker, generator: torch.Generator
) -> None:
    model, context = make_model(), make_context([[(0, 1)]])
    for ends, columns, message in [
        ([0, 1], [0], "targets overlap the context in 1 cells, first row 0 column 0"),
        ([0, 2], [1, 1], "columns name a column twice for one row"),
        ([0, 1], [5], r"columns contains 5; it must lie in 0\.\.4"),
        ([0, 1, 1], [1], "offsets describe 2 rows; the context has 1"),
        ([0, 2], [1], r"offsets \(=\[0, 2\]\) must rise from 0 to the number of entries, 1"),
    ]:
        with pytest.raises(ModelError, match=message):
            sample(model, context, torch.tensor(ends), torch.tensor(columns), generator)
