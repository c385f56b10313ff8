"""What the moment adds to the scores is the formula of models/time.py."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cfnade.exceptions import ModelError
from cfnade.models.config import TIME_UNITS
from cfnade.models.time import TimeNetwork


@pytest.mark.parametrize("shared", [True, False])
def test_what_time_adds_is_the_formula(shared: bool) -> None:
    network, generator = TimeNetwork(7, 3, shared=shared), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.normal_(generator=generator)
    network.requires_grad_(False)
    x = torch.randn(5, 7, generator=generator)
    A, M1, m1, M2 = (network.get_parameter(name) for name in ("A", "M1", "m1", "M2"))
    for t, answer in enumerate(network(x)):
        steps = []
        for k in range(3):
            step = sum(float(x[t, f] * A[f, k]) for f in range(7))
            for u in range(TIME_UNITS):
                before = sum(float(x[t, f] * M1[f, u]) for f in range(7)) + float(m1[u])
                step += np.tanh(before) * float(M2[u, k])
            steps.append(step)
        expected = np.cumsum(steps) if shared else steps
        assert answer.tolist() == pytest.approx(list(expected), rel=1e-4, abs=1e-4)


def test_at_the_start_the_moment_says_nothing(generator: torch.Generator) -> None:
    network = TimeNetwork(7, 3, shared=True)
    network.initialise(generator)
    assert network.M1.detach().abs().min() > 0.0
    assert not network(torch.ones(4, 7)).any()


def test_features_of_another_number_are_refused() -> None:
    with pytest.raises(ModelError, match=r"shape \(5, 6\); it must be \(cells, 7\)"):
        TimeNetwork(7, 3, shared=True)(torch.zeros(5, 6))
