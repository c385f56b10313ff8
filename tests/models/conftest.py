"""Tiny models of every variant, and a literal reading of the paper to hold them against."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from cfnade.models import CFNADEConfig, CFNADENetwork, Context

COLUMNS, LEVELS = 5, 3

VARIANTS: dict[str, dict[str, Any]] = {
    "basic": {"hidden": (4,), "shared": False},
    "shared": {"hidden": (4,)},
    "factored": {"hidden": (4,), "factors": 2},
    "factored-basic": {"hidden": (4,), "factors": 2, "shared": False},
    "deep": {"hidden": (4, 3)},
    "deep-factored": {"hidden": (4, 3, 4), "factors": 3},
    "sqrt": {"hidden": (4,), "context_scale": "sqrt", "mean_context": 2.5},
    "sigmoid": {"hidden": (4,), "activation": "sigmoid"},
}

ModelMaker = Callable[..., CFNADENetwork]
Rating = tuple[int, int]


def random_model(seed: int = 0, **fields: Any) -> CFNADENetwork:
    """A float64 model whose parameters, biases too, are all of order one."""
    config = {"columns": COLUMNS, "levels": LEVELS, "hidden": (4,), **fields}
    model = CFNADENetwork(CFNADEConfig(**config)).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.7, generator=generator)
    return model


def context_of(rows: Sequence[Sequence[Rating]]) -> Context:
    """A Context from lists of (column, level)."""
    flat = [rating for row in rows for rating in row]
    ends = torch.tensor([0, *(len(row) for row in rows)]).cumsum(0)
    columns = torch.tensor([column for column, _ in flat], dtype=torch.int64)
    levels = torch.tensor([level for _, level in flat], dtype=torch.int64)
    return Context(ends, columns, levels)


def literal_scores(model: CFNADENetwork, known: Sequence[Rating], column: int) -> list[float]:
    """Eq. 2, 4, 9-12, 20 with loops over the paper's indices k = 1..K; numbers, no tensors."""
    config, K = model.config, model.config.levels
    W, V = _weights(model)
    g: Callable[[float], float] = {
        "tanh": math.tanh,
        "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
    }[config.activation]
    scale = math.sqrt(config.mean_context / max(len(known), 1)) if config.mean_context else 1.0
    h = []
    for i in range(config.hidden[0]):
        total = 0.0
        for m, level in known:
            r = level + 1
            for k in range(1, r + 1) if config.shared else [r]:
                total += float(W[m, k - 1, i])
        h.append(g(float(model.c.detach()[i]) + scale * total))
    for weights, bias in zip(*_deep(model), strict=True):
        h = [
            g(float(bias[i]) + sum(float(weights[i, j]) * h[j] for j in range(len(h))))
            for i in range(len(bias))
        ]
    scores = []
    for k in range(1, K + 1):
        total = 0.0
        for j in range(1, k + 1) if config.shared else [k]:
            total += float(model.b.detach()[column, j - 1])
            total += sum(float(V[column, j - 1, i]) * h[i] for i in range(len(h)))
        scores.append(total)
    return scores


def _weights(model: CFNADENetwork) -> tuple[Tensor, Tensor]:
    """W and V, multiplied out if factored (Eq. 11, 12). (M, K, H)."""
    if model.config.factors is None:
        return model.W.detach(), model.V.detach()
    W = [model.A[:, k] @ model.B.T for k in range(model.config.levels)]
    V = [model.P[:, k] @ model.Q for k in range(model.config.levels)]
    return torch.stack(W, 1).detach(), torch.stack(V, 1).detach()


def _deep(model: CFNADENetwork) -> tuple[list[Tensor], list[Tensor]]:
    return [W.detach() for W in model.deep_W], [c.detach() for c in model.deep_c]


@pytest.fixture(autouse=True, scope="package")
def one_thread() -> Iterator[None]:
    """Tensors this small only make threads wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=list(VARIANTS))
def variant(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The fields of one variant of the model."""
    return VARIANTS[request.param]


@pytest.fixture
def make_model() -> ModelMaker:
    return random_model


@pytest.fixture
def model(variant: dict[str, Any]) -> CFNADENetwork:
    return random_model(**variant)


@pytest.fixture
def make_context() -> Callable[[Sequence[Sequence[Rating]]], Context]:
    return context_of


@pytest.fixture
def paper_scores() -> Callable[[CFNADENetwork, Sequence[Rating], int], list[float]]:
    return literal_scores


@pytest.fixture
def some_rows() -> Context:
    """Four rows of 3, 0, 4 and 1 ratings."""
    return context_of(
        [[(2, 0), (0, 2), (4, 1)], [], [(1, 1), (3, 0), (0, 1), (2, 2)], [(4, 2)]],
    )


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(1)
