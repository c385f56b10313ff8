"""The model computes the paper's equations, and its variants meet where they should."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from cfnade.exceptions import ModelError
from cfnade.models import CFNADEConfig, CFNADENetwork, Context, ModelBatch, Targets

ModelMaker = Callable[..., CFNADENetwork]
ContextMaker = Callable[[Sequence[Sequence[tuple[int, int]]]], Context]
PaperScores = Callable[[CFNADENetwork, Sequence[tuple[int, int]], int], list[float]]


def cells_of(size: int, columns: int) -> tuple[Tensor, Tensor]:
    return torch.arange(size).repeat_interleave(columns), torch.arange(columns).repeat(size)


def every_score(model: CFNADENetwork, context: Context) -> Tensor:
    return model.scores(model.hidden(context), *cells_of(context.size, model.config.columns))


@pytest.fixture
def batch() -> ModelBatch:
    """Three rows, the first without context; weights as Eq. 19 gives them."""
    return ModelBatch(
        Context(torch.tensor([0, 0, 1, 3]), torch.tensor([4, 0, 2]), torch.tensor([2, 1, 0])),
        Targets(
            torch.tensor([0, 0, 1, 1, 2]),
            torch.tensor([1, 3, 0, 2, 3]),
            torch.tensor([0, 2, 1, 1, 2]),
            torch.tensor([1.0, 1.0, 1.5, 1.5, 3.0], dtype=torch.float64),
        ),
    )


def test_scores_are_the_paper_equations(
    model: CFNADENetwork, some_rows: Context, paper_scores: PaperScores
) -> None:
    scores = every_score(model, some_rows).reshape(some_rows.size, -1, 3)
    ends = some_rows.offsets.tolist()
    ratings = list(zip(some_rows.columns.tolist(), some_rows.levels.tolist(), strict=True))
    for row in range(some_rows.size):
        for column in range(model.config.columns):
            expected = paper_scores(model, ratings[ends[row] : ends[row + 1]], column)
            assert scores[row, column].tolist() == pytest.approx(expected, abs=1e-12)


def test_the_order_of_a_context_does_not_matter(
    model: CFNADENetwork, make_context: ContextMaker
) -> None:
    ratings = [(0, 1), (3, 2), (2, 0)]
    one, other = make_context([ratings]), make_context([ratings[::-1]])
    torch.testing.assert_close(model.hidden(one), model.hidden(other))


def test_an_empty_context_gives_g_of_c(make_model: ModelMaker, make_context: ContextMaker) -> None:
    for scale in ({}, {"context_scale": "sqrt", "mean_context": 9.0}):
        model = make_model(**scale)
        assert torch.equal(model.hidden(make_context([[]]))[0], model.c.tanh())


def test_cost_is_the_mean_over_rows_of_weighted_sums(
    model: CFNADENetwork, batch: ModelBatch, paper_scores: PaperScores
) -> None:
    known: list[list[tuple[int, int]]] = [[], [(4, 2)], [(0, 1), (2, 0)]]
    t = batch.targets
    total = 0.0
    for row, column, level, weight in zip(t.rows, t.columns, t.levels, t.weights, strict=True):
        s = paper_scores(model, known[int(row)], int(column))
        k, K = int(level), len(s)
        for j in range(k + 1):
            total -= float(weight) * math.log(math.exp(s[j]) / sum(map(math.exp, s[: j + 1])))
        for j in range(k, K):
            total -= float(weight) * math.log(math.exp(s[j]) / sum(map(math.exp, s[j:])))
    assert model.cost(batch).item() == pytest.approx(total / 3)


@pytest.mark.parametrize("ordinal_weight", [0.0, 0.4, 1.0])
def test_gradients_of_the_cost(
    make_model: ModelMaker, variant: dict[str, Any], batch: ModelBatch, ordinal_weight: float
) -> None:
    model = make_model(**variant, ordinal_weight=ordinal_weight)
    # gradcheck nudges its inputs in place, and these are the model's own parameters.
    parameters = tuple(model.parameters())
    assert torch.autograd.gradcheck(lambda *_: model.cost(batch), parameters, fast_mode=True)


def test_shared_equals_unshared_with_summed_weights(
    make_model: ModelMaker, some_rows: Context
) -> None:
    for factors, tables in ((None, ("W", "V")), (2, ("A", "P"))):
        shared = make_model(factors=factors)
        unshared = make_model(factors=factors, shared=False)
        unshared.load_state_dict(shared.state_dict())
        with torch.no_grad():
            for name in (*tables, "b"):
                getattr(unshared, name).copy_(getattr(shared, name).cumsum(1))
        torch.testing.assert_close(every_score(shared, some_rows), every_score(unshared, some_rows))


@pytest.mark.parametrize("shared", [True, False])
def test_factors_equal_the_unfactored_model_with_their_product(
    make_model: ModelMaker, some_rows: Context, shared: bool
) -> None:
    full = make_model(shared=shared)
    # Full rank: B and Q are any invertible matrices, A and P make up for them.
    factored = make_model(seed=1, factors=4, shared=shared)
    with torch.no_grad():
        factored.A.copy_(full.W @ torch.linalg.inv(factored.B).T)
        factored.P.copy_(full.V @ torch.linalg.inv(factored.Q))
        factored.b.copy_(full.b)
        factored.c.copy_(full.c)
    torch.testing.assert_close(every_score(factored, some_rows), every_score(full, some_rows))


def test_deep_equals_shallow_where_the_second_layer_does_nothing(
    make_model: ModelMaker, some_rows: Context
) -> None:
    shallow = make_model(activation="relu")
    deep = make_model(hidden=(4, 4), activation="relu")
    state = shallow.state_dict()
    deep.load_state_dict(
        state | {"deep_W.0": torch.eye(4).double(), "deep_c.0": torch.zeros(4).double()}
    )
    assert torch.equal(every_score(deep, some_rows), every_score(shallow, some_rows))
    one_layer = make_model(hidden=[4], activation="relu")
    assert [name for name, _ in one_layer.named_parameters()] == list(state)


def test_item_based_is_user_based_on_the_transpose(make_model: ModelMaker) -> None:
    # An item-based model read literally: to predict what user u gives item i, sum over the other
    # users who rated i. Ours sees a matrix whose rows are items and whose columns are users.
    ratings = {(0, 0): 2, (0, 1): 0, (1, 1): 1, (2, 0): 1, (3, 1): 2}  # (user, item) -> level
    model = make_model(columns=4, shared=False)
    items = sorted({item for _, item in ratings})
    transposed = [[(u, level) for (u, i), level in ratings.items() if i == item] for item in items]
    ends = torch.tensor([0, *map(len, transposed)]).cumsum(0)
    flat = torch.tensor([rating for row in transposed for rating in row])
    scores = every_score(model, Context(ends, flat[:, 0], flat[:, 1])).reshape(len(items), 4, 3)
    for item in items:
        h = model.c.clone()
        for (user, rated), level in ratings.items():
            if rated == item:
                h = h + model.W[user, level]
        for user in range(4):
            expected = model.b[user] + model.V[user] @ h.tanh()
            torch.testing.assert_close(scores[item, user], expected)


@pytest.mark.parametrize(
    "changed",
    [
        {"shared": False},
        {"activation": "sigmoid"},
        {"activation": "relu"},
        {"context_scale": "sqrt", "mean_context": 9.0},
        {"context_scale": "sqrt", "mean_context": 4.0},
        {"ordinal_weight": 0.5},
        {"ordinal_weight": 0.0},
    ],
)
def test_every_option_changes_the_cost(
    make_model: ModelMaker, batch: ModelBatch, changed: dict[str, Any]
) -> None:
    assert not torch.isclose(make_model().cost(batch), make_model(**changed).cost(batch))


def closed_form(M: int, K: int, H: int, L: int, J: int | None) -> int:
    tables = 2 * M * K * H if J is None else 2 * M * K * J + 2 * J * H
    return tables + M * K + H + (L - 1) * (H * H + H)


# (columns, levels, factors, layers, the count, the paper's Table 4 in millions)
TABLE_4: list[tuple[int, int, int | None, int, int, str]] = [
    (6040, 5, None, 1, 30_230_700, "30.2"),
    (6040, 5, None, 2, 30_481_200, "30.48"),
    (17770, 5, 50, 1, 9_024_350, "9.02"),
]
# Where the closed form and the paper differ; docs/concepts/model.md says so.
TABLE_4_DIFFERS: list[tuple[int, int, int | None, int, int, str]] = [
    (17770, 5, 50, 2, 9_274_850, "9.19"),
    (10677, 10, 50, 1, 10_834_270, "10.78"),
    (10677, 10, 50, 2, 11_084_770, "10.98"),
]


@pytest.mark.parametrize(("M", "K", "J", "L", "count", "paper"), TABLE_4 + TABLE_4_DIFFERS)
def test_parameter_counts(M: int, K: int, J: int | None, L: int, count: int, paper: str) -> None:
    with torch.device("meta"):  # shapes without memory
        model = CFNADENetwork(CFNADEConfig(columns=M, levels=K, hidden=(500,) * L, factors=J))
    assert sum(p.numel() for p in model.parameters()) == count == closed_form(M, K, 500, L, J)
    digits = len(paper.split(".")[1])
    assert (f"{count / 1e6:.{digits}f}" == paper) == ((M, K, J, L, count, paper) in TABLE_4)


def test_float32_agrees_with_float64(model: CFNADENetwork, batch: ModelBatch) -> None:
    exact = model.cost(batch).item()
    single = model.float().cost(batch)
    assert single.dtype == torch.float32
    assert single.item() == pytest.approx(exact, rel=1e-5)


def test_bad_cells_are_refused(make_model: ModelMaker, make_context: ContextMaker) -> None:
    model = make_model()
    h = model.hidden(make_context([[]]))
    zero, far = torch.tensor([0]), torch.tensor([5])
    with pytest.raises(ModelError, match=r"columns contains 5; it must lie in 0\.\.4"):
        model.scores(h, zero, far)
    with pytest.raises(ModelError, match=r"rows contains 5; it must lie in 0\.\.0"):
        model.scores(h, far, zero)
    with pytest.raises(ModelError, match=r"columns has shape \(2,\); it must have shape \(1,\)"):
        model.scores(h, zero, torch.tensor([0, 1]))
    with pytest.raises(ModelError, match=r"hidden has shape \(1, 3\); it must have shape \(1, 4\)"):
        model.scores(h[:, :3], zero, zero)
    with pytest.raises(ModelError, match=r"context levels contains 3; it must lie in 0\.\.2"):
        model.hidden(make_context([[(0, 3)]]))
    with pytest.raises(ModelError, match=r"context columns contains -1"):
        model.hidden(make_context([[(-1, 0)]]))
    with pytest.raises(ModelError, match=r"counts has shape \(2, 3\); it must have shape \(5, 3\)"):
        model.initialise_biases(torch.ones(2, 3), smoothing=1.0)
