"""CF-NADE of sets in torch, as it is trained: what is known of people, without its gradient."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
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


class Hidden(NamedTuple):
    """h(C) of some people, and what a gradient needs of it."""

    state: Tensor  # (B, H)
    factor: Tensor  # (B, 1)
    places: Any  # (n,) the row of W that each pick reads


def largest_of(scores: Tensor, group: Group) -> npt.NDArray[Any]:
    """The largest score of each row (B, S), of all ranks. Returns (B,)."""
    tops = np.zeros((group.size, len(scores)), scores.numpy().dtype)
    tops[group.rank] = scores.max(1).values.numpy()
    return np.asarray(group.sum_(tops).max(0))


def hidden_of(network: ChoiceNetwork, known: Picks, group: Group = ALONE) -> Hidden:
    """As ChoiceNetwork.hidden, without its gradient; of picks that a group's ranks share."""
    places = places_of(known, network.config.levels)
    table = network.W.detach().view(-1, network.config.hidden)  # (K·M, H)
    sums = torch.from_numpy(sum_rows(known.offsets, places, known.weights, table.numpy()))
    total = np.bincount(known.rows, known.weights, minlength=len(known)).astype(np.float64)
    group.scatter_sum(sums)
    group.gather(sums)
    group.sum_(total)
    factor = np.sqrt(np.divide(network.config.usual, total, out=0 * total, where=total > 0))
    scale = torch.from_numpy(factor.astype(np.float32)).unsqueeze(1)
    return Hidden(sums.mul_(scale).add_(network.c.detach()).tanh_(), scale, places)
