"""The switch between compiled kernels and plain torch."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from cfnade.models import Context, Targets, ops, plain

M, K, D, ROWS = 9, 4, 5, 3


def drawn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    values = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    return values.requires_grad_()


@pytest.fixture
def context() -> Context:
    columns = torch.tensor([1, 4, 7, 0])
    return Context(torch.tensor([0, 2, 2, 4]), columns, torch.tensor([3, 0, 1, 2]))


@pytest.fixture
def targets() -> Targets:
    cells = torch.tensor([0, 0, 1, 2, 2]), torch.tensor([2, 8, 2, 5, 1])
    return Targets(*cells, torch.tensor([0, 1, 2, 3, 1]), torch.tensor([1.0, 2.0, 0.5, 1.0, 3.0]))


def answers(context: Context, targets: Targets, dtype: torch.dtype) -> list[Tensor]:
    """Results of every operation and all their gradients."""
    table, state = drawn(M, K, D, dtype=dtype), drawn(ROWS, D, seed=1, dtype=dtype)
    bias = drawn(M, K, seed=2, dtype=dtype)
    sums = ops.context_sum(table, context, shared=True)
    scores = ops.cell_scores(state, table, bias, targets.rows, targets.columns, shared=True)
    cost = ops.target_cost(state, table, bias, targets, shared=True, ordinal_weight=0.4)
    whole = sums.square().sum() + scores.sin().sum() + cost
    whole.backward()  # type: ignore[no-untyped-call]
    return [sums, scores, cost, *(t.grad for t in (table, state, bias) if t.grad is not None)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_both_paths_give_the_same_values_and_gradients(
    context: Context, targets: Targets, dtype: torch.dtype
) -> None:
    found = []
    for path in ("kernels", "plain"):
        with ops.forced(path):
            found.append(answers(context, targets, dtype))
    assert len(found[0]) == 6
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def test_a_cpu_takes_the_kernels_and_others_plain_torch(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(name: str) -> Callable[..., Tensor]:
        def called(*_: object, **__: object) -> Tensor:
            raise AssertionError(name)

        return called

    monkeypatch.setattr(plain, "context_sum", refuse("plain"))
    ops.context_sum(drawn(M, K, D), context, shared=True)
    with pytest.raises(AssertionError, match="plain"), ops.forced("plain"):
        ops.context_sum(drawn(M, K, D), context, shared=True)
    with pytest.raises(AssertionError, match="plain"):  # a type that the kernels do not have
        ops.context_sum(drawn(M, K, D, dtype=torch.bfloat16), context, shared=True)
    with pytest.raises(AssertionError, match="plain"):
        ops.context_sum(torch.empty(M, K, D, device="meta"), context, shared=True)
