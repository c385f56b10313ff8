"""Sets drawn without replacement, by enumeration: their chances add up, and what training costs on
average is what they cost exactly."""

from __future__ import annotations

from itertools import chain, combinations, permutations, product
from math import comb, factorial
from typing import Any

import pytest
import torch
from torch import Tensor

from cfnade.exceptions import ModelError
from cfnade.models.batch import Context
from cfnade.models.config import SetNADEConfig
from cfnade.models.set_nade import SetNADENetwork, SetTargets, set_nade_cost

M = 5


def network(levels: int = 1, *, usual: float = 2.5, columns: int = M) -> SetNADENetwork:
    torch.manual_seed(levels)
    config = SetNADEConfig(columns=columns, levels=levels, hidden=4, mean_count=usual)
    made = SetNADENetwork(config).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_(0.0, 0.8)
    return made.requires_grad_(False)


def context_of(rows: list[list[int]], levels: list[list[int]] | None = None) -> Context:
    sizes = torch.tensor([0, *(len(row) for row in rows)])
    kinds = [[0] * len(row) for row in rows] if levels is None else levels
    flat = torch.tensor([one for row in rows for one in row], dtype=torch.int64)
    return Context(sizes.cumsum(0), flat, torch.tensor([*chain(*kinds)], dtype=torch.int64))


def chances(model: SetNADENetwork, known: list[int], levels: list[int]) -> Tensor:
    """p(i | C) from the formula, an item at a time. Returns (M,)."""
    total = torch.zeros(model.config.hidden, dtype=torch.float64)
    for item, level in zip(known, levels, strict=True):
        total += model.W[level, item]
    if known:
        total *= (model.config.mean_count / len(known)) ** 0.5
    h = torch.tanh(model.c + total)
    odds = torch.stack([(model.b[i] + model.V[i] @ h).exp() for i in range(model.config.columns)])
    odds[known] = 0.0
    return odds / odds.sum()


@pytest.mark.parametrize("levels", [1, 3])
@pytest.mark.parametrize("length", range(1, M + 1))
def test_chances_of_all_draws_without_replacement_add_up_to_one(length: int, levels: int) -> None:
    model = network(levels)
    total = 0.0
    for order in permutations(range(M), length):
        kinds = torch.tensor(order) % levels
        total += float(model.ordered_log_likelihood(torch.tensor(order), kinds).exp())
    assert total == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("levels", [1, 3])
def test_every_chance_is_the_formulas_and_what_is_known_has_none(levels: int) -> None:
    model = network(levels)
    rows = [list(one) for size in range(M) for one in combinations(range(M), size)]
    kinds = [[(2 * item + 1) % levels for item in row] for row in rows]
    found = model.log_choices(context_of(rows, kinds)).exp()
    for row, own, line in zip(rows, kinds, found, strict=True):
        torch.testing.assert_close(line, chances(model, row, own))
        assert not line[row].any()
        assert float(line.sum()) == pytest.approx(1.0)


def test_a_pick_that_counts_twice_is_two_in_the_sum_and_in_the_count() -> None:
    model, context = network(), context_of([[0, 2]])
    weights = torch.tensor([2.0, 0.5], dtype=torch.float64)
    sums = 2.0 * model.W[0, 0] + 0.5 * model.W[0, 2]
    expected = torch.tanh(model.c + (2.5 / 2.5) ** 0.5 * sums)
    torch.testing.assert_close(model.hidden(context, weights)[0], expected)
    even = torch.full((2,), 3.0, dtype=torch.float64)
    expected = torch.tanh(model.c + (2.5 / 6) ** 0.5 * 3 * (model.W[0, 0] + model.W[0, 2]))
    torch.testing.assert_close(model.hidden(context, even)[0], expected)
    with pytest.raises(ModelError, match="context weights"):
        model.hidden(context, even[:1])


def drawn(rows: list[list[int]], targets: list[list[int]], weights: list[float]) -> SetTargets:
    """People with these contexts, whose targets count so much each."""
    context = context_of(rows)
    whose = [row for row, own in enumerate(targets) for _ in own]
    each = [weight for weight, own in zip(weights, targets, strict=True) for _ in own]
    return SetTargets(
        context,
        torch.ones(len(context.columns), dtype=torch.float64),
        torch.tensor(whose),
        torch.tensor([*chain(*targets)]),
        torch.tensor(each, dtype=torch.float64),
    )


@pytest.mark.parametrize("picked", [[1], [0, 3], [4, 1, 2], [0, 1, 2, 3, 4]])
def test_orderless_cost_has_the_mean_of_the_exact_one(picked: list[int]) -> None:
    """Eq. 19 for sets: |C| even on 0..D-1, every C of that size as likely, weight D / |T|."""
    model, D = network(), len(picked)
    orders = [torch.tensor(order) for order in permutations(picked)]
    exact = -sum(float(model.ordered_log_likelihood(order)) for order in orders) / factorial(D)
    mean = 0.0
    for size in range(D):
        for known in combinations(picked, size):
            targets = [item for item in picked if item not in known]
            one = drawn([list(known)], [targets], [D / len(targets)])
            mean += float(set_nade_cost(model, one)) / (D * comb(D, size))
    assert mean == pytest.approx(exact, rel=1e-12)


def test_a_cost_is_the_mean_over_people_with_the_weights_of_targets() -> None:
    model = network()
    found = set_nade_cost(model, drawn([[0], [], [2, 3]], [[1, 4], [2], []], [0.5, 2.0, 9.0]))
    first, second = chances(model, [0], [0]), chances(model, [], [])
    expected = -(0.5 * (first[1].log() + first[4].log()) + 2.0 * second[2].log()) / 3
    torch.testing.assert_close(found, expected)


def test_what_is_known_does_not_depend_on_its_order() -> None:
    model = network(3)
    for order in permutations([0, 1, 4]):
        kinds = [[0, 2, 1][[0, 1, 4].index(item)] for item in order]
        line = model.log_choices(context_of([list(order)], [kinds]))
        torch.testing.assert_close(line, model.log_choices(context_of([[0, 1, 4]], [[0, 2, 1]])))


def test_wrong_fields_are_refused() -> None:
    good: dict[str, Any] = {"columns": 3, "levels": 1, "hidden": 2, "mean_count": 1.0}
    for name, value in product(good, (0, -1, "x")):
        with pytest.raises(ModelError, match=name):
            SetNADEConfig(**good | {name: value})
