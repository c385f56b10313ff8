"""CF-NADE of sets as a side of the choice: what models/choice_network.py says, from its numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from annotated_types import Ge, Le

from cfnade._typing import IntArray
from cfnade.choice.choice_side import FEW, ChoiceSide, ScoreArray, Tables
from cfnade.choice.picks import Picks
from cfnade.exceptions import ModelError
from cfnade.kernels.ragged_sums import sum_rows
from cfnade.kernels.request import affine
from cfnade.models.config import ChoiceConfig
from cfnade.utils.validation import check_scalar

if TYPE_CHECKING:
    from cfnade.models.choice_network import ChoiceNetwork

_MOST = 100
"""Networks; a saved model that names more is not ours."""

FloatArray = npt.NDArray[np.float64]


class ChoiceNade(ChoiceSide):
    """Networks of one size from several seeds, whose scores are averaged."""

    def __init__(self, config: ChoiceConfig, networks: Sequence[Tables]) -> None:
        self.config, self._networks = config, networks

    @classmethod
    def of(cls, networks: Sequence[ChoiceNetwork]) -> ChoiceNade:
        """The numbers of trained networks, in their memory."""
        named = [network.state_dict().items() for network in networks]
        return cls(networks[0].config, [{name: t.numpy() for name, t in one} for one in named])

    def scores(self, known: Picks) -> ScoreArray:
        total = np.zeros((len(known), self.n_items), np.float32)
        self.add_scores(total, 1.0, known)
        return total

    def add_scores(self, total: ScoreArray, weight: float, known: Picks) -> None:
        share = np.float32(weight / len(self._networks))
        for one in self._networks:
            state = self._state(one, *self._sums(one, known))
            if len(known) <= FEW:
                total += share * affine(state, one["V"], one["b"])
                continue
            from cfnade.kernels.products import add_product

            total += share * one["b"]
            add_product(total, state, one["V"], float(share))

    def scores_without(self, known: Picks, places: IntArray) -> ScoreArray:
        total = np.zeros((len(places), self.n_items), np.float32)
        for one in self._networks:
            sums, weights = self._sums(one, known)
            own, own_weights = self._sums(one, known.singly(places))
            left = np.float32(len(known.columns) > 1)  # of a lone one nothing is left
            state = self._state(one, left * (sums - own), left * (weights - own_weights))
            total += state @ one["V"].T + one["b"]
        return np.asarray(total / np.float32(len(self._networks)))

    def _sums(self, one: Tables, known: Picks) -> tuple[ScoreArray, FloatArray]:
        """What each person's interactions add up to, (B, H), and their weights, (B,)."""
        data = known.offsets, places_of(known, self.config.levels), known.weights
        sums = sum_rows(*data, one["W"].reshape(-1, self.config.hidden))
        total = np.bincount(known.rows, known.weights, minlength=len(known)).astype(np.float64)
        return sums, total

    def _state(self, one: Tables, sums: ScoreArray, total: FloatArray) -> ScoreArray:
        """h(C) of each person. Returns (B, H)."""
        factor = np.sqrt(np.divide(self.config.usual, total, out=0 * total, where=total > 0))
        return np.asarray(np.tanh(sums * factor.astype(np.float32)[:, None] + one["c"]))

    def vectors(self) -> ScoreArray | None:
        return self._networks[0]["V"]

    def to_dict(self) -> dict[str, Any]:
        return self.config.to_dict() | {"networks": len(self._networks)}

    def tables(self) -> Tables:
        return {
            f"{number}.{name}": table
            for number, one in enumerate(self._networks)
            for name, table in one.items()
        }

    @classmethod
    def shapes(cls, fields: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        config, count = _config_of(fields)
        M, K, H = config.columns, config.levels, config.hidden
        one = {"W": (K, M, H), "c": (H,), "V": (M, H), "b": (M,)}
        return {f"{n}.{name}": shape for n in range(count) for name, shape in one.items()}

    @classmethod
    def from_saved(cls, fields: Mapping[str, Any], tables: Tables) -> ChoiceNade:
        config, count = _config_of(fields)
        return cls(config, [{name: tables[f"{n}.{name}"] for name in "WcVb"} for n in range(count)])

    @property
    def levels(self) -> int:
        return self.config.levels

    @property
    def n_items(self) -> int:
        return self.config.columns


def _config_of(fields: Mapping[str, Any]) -> tuple[ChoiceConfig, int]:
    """The fields of each network, and how many there are."""
    rest = {name: value for name, value in fields.items() if name != "networks"}
    count = check_scalar("networks", fields["networks"], int, Ge(1), Le(_MOST), error=ModelError)
    return ChoiceConfig.from_dict(rest), count


def places_of(known: Picks, levels: int) -> Any:
    """The row of W, levels one below the other, that each pick reads. Returns (n,)."""
    if levels == 1:
        return known.columns
    return known.columns + known.levels.astype(np.int32) * np.int32(known.n_columns)
