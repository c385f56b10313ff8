"""The ridge part is Bayes' rule: compared with numerical integration and with closed forms."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cfnade.exceptions import ModelError
from cfnade.models.batch import Context
from cfnade.models.config import RidgeConfig
from cfnade.models.ridge import RidgeNetwork

M, K = 5, 3


def some_network(D: int, *, seed: int = 0, W: float = 0.0, noise: float = 0.7) -> RidgeNetwork:
    """Random, in double precision; with W = 0 a rating says just what Bayes' rule takes it for."""
    config = RidgeConfig(columns=M, levels=K, ridge=D, spread=1.0, noise=noise)
    network = RidgeNetwork(config).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in [*network.named_parameters(), *network.named_buffers()]:
            drawn = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
            tensor.copy_(drawn.abs() + 0.1 if name in ("q", "importance") else 0.7 * drawn)
        network.W.mul_(W)
    return network


def context(*rows: list[tuple[int, int]]) -> Context:
    """Rows as lists of (column, level)."""
    cells = [cell for row in rows for cell in row]
    offsets = np.cumsum([0, *map(len, rows)])
    columns, levels = (torch.tensor([c[part] for c in cells]).long() for part in (0, 1))
    return Context(torch.from_numpy(offsets), columns, levels)


ROW = [(0, 2), (3, 1), (4, 0)]


def log_density(network: RidgeNetwork, row: list[tuple[int, int]], z: np.ndarray) -> np.ndarray:
    """Prior and likelihood of points z (n, D), written out: u·z is e up to noise of variance 1."""
    u, e, q = (t.detach().numpy() for t in (network.u, network.e, network.q))
    total = -0.5 * (network.log_prior.exp().detach().numpy() * z**2).sum(1)
    for column, level in row:
        total -= 0.5 * (e[column, level] - z @ u[column]) ** 2 + 0.5 * (q[column] * z**2).sum(1)
    return np.asarray(total)


@pytest.mark.parametrize("D", [1, 2])
@pytest.mark.parametrize("row", [[], ROW[:1], ROW])
def test_the_posterior_is_what_integration_over_a_grid_says(
    D: int, row: list[tuple[int, int]]
) -> None:
    network = some_network(D, seed=D)
    axis = np.linspace(-9, 9, 1501 if D == 1 else 601)
    z = np.stack(np.meshgrid(*[axis] * D), -1).reshape(-1, D)
    logs = log_density(network, row, z)
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    mean = weights @ z
    covariance = (z - mean).T @ ((z - mean) * weights[:, None])
    precision, found = network.posterior(context(row))
    np.testing.assert_allclose(found[0].detach(), mean, atol=2e-3)
    np.testing.assert_allclose(torch.linalg.inv(precision[0]).detach(), covariance, atol=2e-3)


@pytest.mark.parametrize("D", [1, 4])
def test_the_mean_solves_a_ridge_regression(D: int) -> None:
    """Least squares in which the prior and q are rows of data too."""
    network = some_network(D, seed=3)
    u, e, q = (t.detach().numpy() for t in (network.u, network.e, network.q))
    columns, levels = zip(*ROW, strict=True)
    penalty = network.log_prior.exp().detach().numpy() + q[list(columns)].sum(0)
    design = np.vstack([u[list(columns)], np.diag(np.sqrt(penalty))])
    values = np.concatenate([e[list(columns), list(levels)], np.zeros(D)])
    expected = np.linalg.lstsq(design, values, rcond=None)[0]
    np.testing.assert_allclose(network.posterior(context(ROW))[1][0].detach(), expected, atol=1e-10)


def test_nothing_known_is_the_prior_and_all_of_it_unknown() -> None:
    network = some_network(2)
    with torch.no_grad():
        network.log_prior.zero_()
    state = network.hidden(context([]))
    torch.testing.assert_close(state, torch.tensor([[0.0, 0.0, 1.0]], dtype=torch.float64))


def test_a_rating_more_never_makes_less_known() -> None:
    network = some_network(3, W=1.0)
    before, unknown = None, np.inf
    for count in range(len(ROW) + 1):
        known = context(ROW[:count])
        precision, share = (
            network.posterior(known)[0][0],
            float(network.hidden(known).detach()[0, -1]),
        )
        if before is not None:
            assert torch.linalg.eigvalsh(precision - before).min() > -1e-12
            assert share < unknown
        before, unknown = precision, share


def test_the_order_of_a_history_changes_nothing() -> None:
    network = some_network(3, W=1.0)
    states = network.hidden(context(ROW, ROW[::-1], [ROW[1], ROW[2], ROW[0]]))
    torch.testing.assert_close(states[1:], states[:1].expand(2, -1), rtol=0, atol=1e-12)


def test_predictions_get_sharper_as_more_is_known() -> None:
    network = some_network(2, noise=0.5)
    assert float(network.config.gain(torch.tensor(1.0))) == 1.0
    assert float(network.config.gain(torch.tensor(0.0))) == 2.0


def test_gradients_are_those_of_finite_differences() -> None:
    """Without ω in the scores, through which no gradient goes."""
    network = some_network(2, W=1.0, noise=1.0)  # σ² = τ²: γ = 1
    with torch.no_grad():
        network.V[:, :, -1] = 0.0
    known, rows = context(ROW, ROW[:1], []), torch.tensor([0, 1, 1, 2])
    columns = torch.tensor([1, 2, 1, 0])
    weights = torch.randn(4, K, dtype=torch.float64, generator=torch.Generator().manual_seed(1))

    def cost() -> torch.Tensor:
        return (weights * network.scores(network.hidden(known), rows, columns)).sum()

    cost().backward()  # type: ignore[no-untyped-call]
    for name, parameter in network.named_parameters():
        flat, slope = parameter.data.view(-1), parameter.grad
        assert slope is not None
        for place in range(flat.numel()):
            if name == "V" and place % 3 == 2:
                continue  # ω's column: not moved here
            ends = []
            for step in (1e-6, -2e-6):
                flat[place] += step
                ends.append(float(cost().detach()))
            flat[place] += 1e-6
            numeric = (ends[0] - ends[1]) / 2e-6
            assert float(slope.view(-1)[place]) == pytest.approx(numeric, abs=1e-6), (name, place)


def test_wrong_fields_are_refused() -> None:
    with pytest.raises(ModelError, match="noise"):
        RidgeConfig(columns=3, levels=2, ridge=1, spread=1.0, noise=0.0)
