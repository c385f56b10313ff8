"""The exact likelihood: a probability, read one rating after another, by the paper's equations."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise, permutations, product
from typing import Any

import pytest
import torch
from scipy.stats import chisquare

from cfnade.exceptions import ModelError
from cfnade.models import CFNADEConfig, CFNADENetwork, Context, ModelBatch, Targets, likelihood
from cfnade.models.likelihood import (
    arrange,
    conditional_scores,
    ensemble_log_probability,
    joint_log_probability,
    log_conditionals,
    ordered_cost,
    random_order,
)
from cfnade.models.losses import regular_cost

PaperScores = Callable[[CFNADENetwork, Sequence[tuple[int, int]], int], list[float]]
COLUMNS = (3, 0, 4)


def prefix_batch(rows: Context) -> ModelBatch:
    """Return a batch with one row per rating of each row, its context the ratings before it."""
    row_of = rows.rows()
    position = torch.arange(row_of.numel()) - rows.offsets[row_of]  # (n,)
    n = position.numel()
    number = torch.arange(n)
    row = number.repeat_interleave(position)  # the batch row of each known rating
    offsets = torch.cat([position.new_zeros(1), position.cumsum(0)])
    # Batch row t, at its row's position p, knows the ratings t-p..t-1.
    places = torch.arange(row.numel()) - offsets[row] + (number - position)[row]
    # The batch has n rows, the mean is to be over the rows they came from.
    weights = torch.full((n,), n / max(rows.size, 1), dtype=torch.float64)
    return ModelBatch(
        Context(offsets, rows.columns[places], rows.levels[places]),
        Targets(number, rows.columns, rows.levels, weights),
    )


@pytest.fixture
def every_vector() -> Context:
    """All 3³ ratings of three columns, each a row."""
    vectors = torch.tensor(list(product(range(3), repeat=3)))
    ends = torch.arange(len(vectors) + 1) * 3
    return Context(ends, torch.tensor(COLUMNS).repeat(len(vectors)), vectors.flatten())


def test_conditionals_are_the_paper_equations(
    model: CFNADENetwork, some_rows: Context, paper_scores: PaperScores
) -> None:
    scores = conditional_scores(model, some_rows).tolist()
    ratings = list(zip(some_rows.columns.tolist(), some_rows.levels.tolist(), strict=True))
    ends = some_rows.offsets.tolist()
    for start, end in pairwise(ends):
        for i in range(start, end):
            expected = paper_scores(model, ratings[start:i], ratings[i][0])
            assert scores[i] == pytest.approx(expected, abs=1e-12)


def test_probabilities_of_all_rating_vectors_sum_to_one(
    model: CFNADENetwork, every_vector: Context
) -> None:
    log_p = joint_log_probability(model, every_vector)
    assert log_p.shape == (27,)
    assert log_p.exp().sum().item() == pytest.approx(1.0, abs=1e-12)


def test_no_rating_depends_on_itself_or_a_later_one(model: CFNADENetwork) -> None:
    # A column's block of the input table speaks only through that column's own rating.
    rows = Context(torch.tensor([0, 4]), torch.tensor([3, 0, 4, 1]), torch.tensor([1, 2, 0, 1]))
    for i in range(4):
        (grad,) = torch.autograd.grad(log_conditionals(model, rows)[i], model.input_table)
        felt = grad.flatten(1).any(1)[rows.columns].tolist()
        assert felt == [j < i for j in range(4)]


def test_rows_do_not_feel_each_other(model: CFNADENetwork, some_rows: Context) -> None:
    (grad,) = torch.autograd.grad(joint_log_probability(model, some_rows)[0], model.input_table)
    assert not grad[[1, 3]].any()  # rated in row 2 alone


def test_groups_of_rows_do_not_change_the_result(
    model: CFNADENetwork, some_rows: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = conditional_scores(model, some_rows)
    monkeypatch.setattr(likelihood, "PADDED", 1)  # one row at a time
    torch.testing.assert_close(conditional_scores(model, some_rows), whole)


def test_an_empty_row_is_certain(model: CFNADENetwork, some_rows: Context) -> None:
    assert joint_log_probability(model, some_rows)[1].item() == 0.0
    nothing = torch.zeros(0, dtype=torch.int64)
    empty = Context(torch.zeros(3, dtype=torch.int64), nothing, nothing)
    assert joint_log_probability(model, empty).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("ordinal_weight", [0.0, 0.4, 1.0])
def test_training_in_order_equals_a_context_per_rating(
    make_model: Callable[..., CFNADENetwork],
    variant: dict[str, Any],
    some_rows: Context,
    ordinal_weight: float,
) -> None:
    model = make_model(**variant, ordinal_weight=ordinal_weight)
    batch = prefix_batch(some_rows)
    batch.check(columns=5, levels=3)
    one, other = ordered_cost(model, some_rows), model.cost(batch)
    torch.testing.assert_close(one, other)
    parameters = list(model.parameters())
    for a, b in zip(
        torch.autograd.grad(one, parameters), torch.autograd.grad(other, parameters), strict=True
    ):
        torch.testing.assert_close(a, b)


def test_the_regular_ordered_cost_is_the_negative_log_likelihood(
    make_model: Callable[..., CFNADENetwork], some_rows: Context
) -> None:
    model = make_model(ordinal_weight=0.0)
    expected = -joint_log_probability(model, some_rows).mean()
    torch.testing.assert_close(ordered_cost(model, some_rows), expected)


@pytest.mark.parametrize("ordinal_weight", [0.0, 1.0])
def test_gradients_of_the_ordered_cost(
    make_model: Callable[..., CFNADENetwork],
    variant: dict[str, Any],
    some_rows: Context,
    ordinal_weight: float,
) -> None:
    model = make_model(**variant, ordinal_weight=ordinal_weight)
    parameters = tuple(model.parameters())
    assert torch.autograd.gradcheck(
        lambda *_: ordered_cost(model, some_rows), parameters, fast_mode=True
    )


def test_an_ensemble_of_orders_is_the_mean_of_their_probabilities(
    model: CFNADENetwork, every_vector: Context
) -> None:
    n = every_vector.size
    starts = (torch.arange(n) * 3).unsqueeze(1)
    orders = [(starts + torch.tensor(p)).flatten() for p in permutations(range(3))]
    each = torch.stack([joint_log_probability(model, arrange(every_vector, o)) for o in orders])
    assert (each[0] - each[1]).abs().max().item() > 1e-3  # orders do disagree
    mixed = ensemble_log_probability(model, every_vector, orders)
    torch.testing.assert_close(mixed.exp(), each.exp().mean(0))
    assert mixed.exp().sum().item() == pytest.approx(1.0, abs=1e-12)
    with pytest.raises(ModelError, match=r"orders \(=\[\]\) must hold at least one order"):
        ensemble_log_probability(model, every_vector, [])


def test_every_order_agrees_on_the_next_rating(
    model: CFNADENetwork, make_context: Callable[..., Context]
) -> None:
    known, new = [(3, 1), (0, 2), (4, 0)], (1, 1)
    rows = make_context([[*order, new] for order in permutations(known)])
    last = log_conditionals(model, rows).reshape(6, 4)[:, 3]
    torch.testing.assert_close(last, last[:1].expand(6))


def test_basic_training_learns_the_rows_it_sees(generator: torch.Generator) -> None:
    # Columns 0 and 1 are coin flips, column 2 says whether they agree: ln 2 twice, then certainty.
    cases = torch.tensor([[a, b, int(a == b)] for a in (0, 1) for b in (0, 1)])
    rows = Context(torch.arange(5) * 3, torch.arange(3).repeat(4), cases.flatten())
    model = CFNADENetwork(CFNADEConfig(columns=3, levels=2, hidden=(8,), ordinal_weight=0.0))
    model.initialise(generator)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(300):
        optimiser.zero_grad()
        cost = ordered_cost(model, rows)
        cost.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    assert cost.item() == pytest.approx(2 * math.log(2), abs=0.02)


def test_bad_rows_are_refused(model: CFNADENetwork, make_context: Callable[..., Context]) -> None:
    with pytest.raises(ModelError, match=r"context levels contains 3; it must lie in 0\.\.2"):
        joint_log_probability(model, make_context([[(0, 3)]]))
    with pytest.raises(ModelError, match="there are 0 rows; a cost needs at least one"):
        ordered_cost(model, make_context([]))


def test_a_random_order_gives_the_same_likelihood_machinery(
    model: CFNADENetwork, some_rows: Context, generator: torch.Generator
) -> None:
    arranged = arrange(some_rows, random_order(some_rows, generator))
    scores = model.scores(
        model.hidden(prefix_batch(arranged).context), torch.arange(8), arranged.columns
    )
    expected = -regular_cost(scores, arranged.levels)
    torch.testing.assert_close(log_conditionals(model, arranged), expected)


@pytest.mark.parametrize("ordinal_weight", [0.0, 0.6])
@pytest.mark.parametrize("D", [1, 3])
def test_eq_19_over_all_orders_and_splits_is_the_mean_exact_cost(
    make_model: Callable[..., CFNADENetwork],
    make_context: Callable[..., Context],
    variant: dict[str, Any],
    D: int,
    ordinal_weight: float,
) -> None:
    model = make_model(**variant, ordinal_weight=ordinal_weight)
    ratings = [(2, 0), (0, 2), (4, 1)][:D]
    orders = list(permutations(ratings))
    flat = torch.tensor(orders).reshape(-1, 2)
    rows = Context(torch.arange(len(orders) + 1) * D, flat[:, 0], flat[:, 1])
    exact = ordered_cost(model, rows)  # the mean over all orders of Eq. 5 (18)

    # Every order at every split point is a row of one batch, and the cost is the mean over rows.
    known: list[list[tuple[int, int]]] = []
    targets: list[tuple[int, int, int, float]] = []
    for order in orders:
        for i in range(1, D + 1):
            targets += [(len(known), m, k, D / (D - i + 1)) for m, k in order[i - 1 :]]
            known.append(list(order[: i - 1]))
    table = torch.tensor(targets, dtype=torch.float64)
    row, column, level = table[:, :3].long().unbind(1)
    cost = model.cost(ModelBatch(make_context(known), Targets(row, column, level, table[:, 3])))
    torch.testing.assert_close(cost, exact, rtol=1e-12, atol=0.0)


def test_arrange_keeps_rows_and_pairs(some_rows: Context) -> None:
    order = torch.tensor([1, 2, 0, 5, 3, 4, 6, 7])
    arranged = arrange(some_rows, order)
    assert arranged.columns.tolist() == [0, 4, 2, 0, 1, 3, 2, 4]
    assert arranged.levels.tolist() == [2, 1, 0, 1, 1, 0, 2, 2]
    assert torch.equal(arranged.offsets, some_rows.offsets)


def test_random_orders_are_permutations_and_even() -> None:
    n = 3000
    rows = Context(torch.arange(n + 1) * 3, torch.arange(3).repeat(n), torch.zeros(3 * n).long())
    order = random_order(rows, torch.Generator().manual_seed(0))
    seen = Counter(map(tuple, arrange(rows, order).columns.reshape(n, 3).tolist()))
    assert len(seen) == 6
    assert chisquare(list(seen.values())).pvalue > 0.001
    assert torch.equal(order, random_order(rows, torch.Generator().manual_seed(0)))


@pytest.mark.parametrize(
    "order", [[0, 0, 1, 3, 4, 5, 6, 7], [3, 1, 2, 0, 4, 5, 6, 7]], ids=["twice", "across rows"]
)
def test_what_is_no_order_is_refused(some_rows: Context, order: list[int]) -> None:
    with pytest.raises(ModelError, match="order must name every rating once and keep it within"):
        arrange(some_rows, torch.tensor(order))
    with pytest.raises(ModelError, match=r"order contains 8; it must lie in 0\.\.7"):
        arrange(some_rows, torch.tensor([8, 1, 2, 3, 4, 5, 6, 7]))
