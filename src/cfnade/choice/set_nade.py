"""CF-NADE of sets as a side of the choice: models/choice_network.py, asked by matrix products."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cfnade.choice.choice_side import ChoiceSide, ScoreArray
from cfnade.choice.picks import Picks
from cfnade.errors import ModelError
from cfnade.group import ALONE, Group
from cfnade.kernels.ragged_sums import sum_rows
from cfnade.models.choice_network import ChoiceNetwork
from cfnade.models.config import ChoiceConfig
from cfnade.options import checked, whole

_MOST = 100
"""Networks; a saved model that names more is not ours."""


class ChoiceNade(ChoiceSide):
    """Networks of one size from several seeds, whose scores are averaged."""

    def __init__(self, networks: list[ChoiceNetwork]) -> None:
        self.networks = networks
        self.config = networks[0].config

    def scores(self, known: Picks) -> ScoreArray:
        total = score_all(self.networks[0], known)
        for network in self.networks[1:]:
            total += score_all(network, known)
        return total.div_(len(self.networks)).numpy()

    def add_scores(self, total: ScoreArray, weight: float, known: Picks) -> None:
        share = weight / len(self.networks)
        with torch.no_grad():
            sums = torch.from_numpy(total)
            for network in self.networks:
                state = hidden_of(network, known).state
                sums.add_(network.b, alpha=share).addmm_(state, network.V.T, alpha=share)

    def vectors(self) -> ScoreArray | None:
        return self.networks[0].V.detach().numpy()

    def to_dict(self) -> dict[str, Any]:
        return self.config.to_dict() | {"networks": len(self.networks)}

    def tensors(self) -> dict[str, Tensor]:
        return {
            f"{number}.{name}": tensor
            for number, network in enumerate(self.networks)
            for name, tensor in network.state_dict().items()
        }

    @classmethod
    def shapes(cls, fields: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        with torch.device("meta"):
            return {name: tuple(t.shape) for name, t in cls(_networks(fields)).tensors().items()}

    @classmethod
    def from_saved(cls, fields: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> ChoiceNade:
        with torch.device("meta"):
            networks = _networks(fields)
        for number, network in enumerate(networks):
            own = {name: tensors[f"{number}.{name}"] for name in network.state_dict()}
            network.load_state_dict(own, assign=True)
        return cls(networks)

    @property
    def levels(self) -> int:
        return self.config.levels

    @property
    def n_items(self) -> int:
        return self.config.columns


def _networks(fields: Mapping[str, Any]) -> list[ChoiceNetwork]:
    rest = {name: value for name, value in fields.items() if name != "networks"}
    count = checked("networks", fields["networks"], whole(1, _MOST), ModelError)
    return [ChoiceNetwork(ChoiceConfig.from_dict(rest)) for _ in range(count)]


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
    places = places_of(known) if network.config.levels > 1 else known.columns
    data = known.offsets, places, known.weights
    sums = torch.from_numpy(sum_rows(*data, table_of(network).numpy()))
    total = np.bincount(known.rows, known.weights, minlength=len(known)).astype(np.float64)
    group.scatter_sum(sums)
    group.gather(sums)
    group.sum_(total)
    factor = np.sqrt(np.divide(network.config.usual, total, out=0 * total, where=total > 0))
    scale = torch.from_numpy(factor.astype(np.float32)).unsqueeze(1)
    return Hidden(sums.mul_(scale).add_(network.c.detach()).tanh_(), scale, places)


def places_of(known: Picks) -> Any:
    """The row of W, levels one below the other, that each pick reads. Returns (n,)."""
    return known.columns + known.levels.astype(np.int32) * np.int32(known.n_columns)


def table_of(network: ChoiceNetwork) -> Tensor:
    """W as such rows (K·M, H)."""
    return network.W.detach().view(-1, network.config.hidden)
