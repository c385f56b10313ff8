"""CF-NADE of sets in torch, as it is trained: what is known of people, without its gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from cfnade.choice.picks import Picks
from cfnade.choice.set_nade import places_of
from cfnade.group import ALONE, Group
from cfnade.kernels.ragged_sums import sum_rows
from cfnade.models.choice_network import ChoiceNetwork


def score_all(network: ChoiceNetwork, known: Picks) -> Tensor:
    """s_i of every item for each person. Returns (B, M)."""
    with torch.no_grad():
        return torch.addmm(network.b, hidden_of(network, known).state, network.V.T)


class Hidden:
    """h(C) of some people, and what a gradient needs of it."""

    def __init__(self, state: Tensor, factor: Tensor, places: Any) -> None:
        self.state, self.factor, self.places = state, factor, places


def hidden_of(network: ChoiceNetwork, known: Picks, group: Group = ALONE) -> Hidden:
    """As ChoiceNetwork.hidden, without its gradient; of picks that a group's ranks share."""
    places = places_of(known, network.config.levels)
    data = known.offsets, places, known.weights
    sums = torch.from_numpy(sum_rows(*data, table_of(network).numpy()))
    total = np.bincount(known.rows, known.weights, minlength=len(known)).astype(np.float64)
    group.scatter_sum(sums)
    group.gather(sums)
    group.sum_(total)
    factor = np.sqrt(np.divide(network.config.usual, total, out=0 * total, where=total > 0))
    scale = torch.from_numpy(factor.astype(np.float32)).unsqueeze(1)
    return Hidden(sums.mul_(scale).add_(network.c.detach()).tanh_(), scale, places)


def table_of(network: ChoiceNetwork) -> Tensor:
    """W as such rows (K·M, H)."""
    return network.W.detach().view(-1, network.config.hidden)
