"""The sparse sums and products equal loops over single ratings, in any number of pieces."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from cfnade.models import Context, table_ops

M, K, D = 6, 3, 4


def table(seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(M, K, D, generator=generator, dtype=torch.float64).requires_grad_()


def cells() -> tuple[Tensor, Tensor]:
    return torch.tensor([0, 2, 2, 1, 0]), torch.tensor([5, 0, 3, 3, 5])


def states() -> Tensor:
    generator = torch.Generator().manual_seed(9)
    return torch.randn(3, D, generator=generator, dtype=torch.float64).requires_grad_()


@pytest.mark.parametrize("shared", [True, False])
def test_context_sum_is_a_loop_over_ratings(some_rows: Context, shared: bool) -> None:
    W = table()
    expected = torch.zeros(some_rows.size, D, dtype=torch.float64)
    ends = some_rows.offsets.tolist()
    for row in range(some_rows.size):
        for i in range(ends[row], ends[row + 1]):
            m, level = int(some_rows.columns[i]), int(some_rows.levels[i])
            for k in range(level + 1) if shared else [level]:
                expected[row] += W.detach()[m, k]
    torch.testing.assert_close(table_ops.context_sum(W, some_rows, shared=shared), expected)
    assert not table_ops.context_sum(W, some_rows, shared=shared)[
        1
    ].any()  # the row without ratings


@pytest.mark.parametrize("shared", [True, False])
def test_context_sum_takes_the_data_set_own_integers(some_rows: Context, shared: bool) -> None:
    narrow = Context(some_rows.offsets, some_rows.columns.int(), some_rows.levels.byte())
    expected = table_ops.context_sum(table(), some_rows, shared=shared)
    assert torch.equal(table_ops.context_sum(table(), narrow, shared=shared), expected)


@pytest.mark.parametrize("shared", [True, False])
def test_context_sum_of_nothing_is_zero_with_zero_gradient(shared: bool) -> None:
    nothing = torch.zeros(0, dtype=torch.int64)
    W = table()
    sums = table_ops.context_sum(
        W, Context(torch.zeros(3, dtype=torch.int64), nothing, nothing), shared=shared
    )
    assert torch.equal(sums, torch.zeros(2, D, dtype=torch.float64))
    (grad,) = torch.autograd.grad(sums.sum(), W)
    assert not grad.any()


@pytest.mark.parametrize("shared", [True, False])
def test_cell_scores_are_dot_products(shared: bool) -> None:
    h, V, b = states(), table(), table(1).detach()[:, :, 0]
    rows, columns = cells()
    scores = table_ops.cell_scores(h, V, b, rows, columns, shared=shared)
    for t, (r, m) in enumerate(zip(rows.tolist(), columns.tolist(), strict=True)):
        for k in range(K):
            up_to = range(k + 1) if shared else [k]
            expected = sum(float(b[m, j]) + (V[m, j] @ h[r]).item() for j in up_to)
            assert scores[t, k].item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("shared", [True, False])
def test_gradients_of_both(some_rows: Context, shared: bool) -> None:
    rows, columns = cells()
    b = table(1).detach()[:, :, 0].clone().requires_grad_()

    def scores(h: Tensor, V: Tensor, b: Tensor) -> Tensor:
        return table_ops.cell_scores(h, V, b, rows, columns, shared=shared)

    def sums(W: Tensor) -> Tensor:
        return table_ops.context_sum(W, some_rows, shared=shared)

    assert torch.autograd.gradcheck(scores, (states(), table(), b))
    assert torch.autograd.gradcheck(sums, (table(),))


def test_pieces_do_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, columns = cells()
    b = table(1).detach()[:, :, 0]

    def run() -> tuple[Tensor, ...]:
        h, V = states(), table()
        scores = table_ops.cell_scores(h, V, b, rows, columns, shared=True)
        return (scores, *torch.autograd.grad(scores.square().sum(), (h, V)))

    whole = run()
    monkeypatch.setattr(table_ops, "PIECE", 2 * K * D)  # two targets at a time
    for in_pieces, at_once in zip(run(), whole, strict=True):
        torch.testing.assert_close(in_pieces, at_once)


def test_no_gather_of_targets_by_levels_by_width_is_kept() -> None:
    T = 500
    kept: list[int] = []

    def pack(saved: Tensor) -> Tensor:
        kept.append(saved.numel())
        return saved

    rows, columns = torch.arange(T) % 3, torch.arange(T) % M
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda saved: saved):
        table_ops.cell_scores(states(), table(), table(1)[:, :, 0], rows, columns, shared=True)
    assert kept
    assert max(kept) <= max(T * K, M * K * D)
    assert max(kept) < T * K * D
