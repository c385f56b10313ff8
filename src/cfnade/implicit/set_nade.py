"""CF-NADE over sets as an implicit component; models/set_nade.py has the equations."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from cfnade._typing import IntArray
from cfnade.components.base import ArraySpec
from cfnade.components.registry import register
from cfnade.implicit.base import (
    DataShape,
    FitCache,
    ImplicitComponent,
    Options,
    ScoreArray,
    SearchSpace,
)
from cfnade.implicit.rows import InteractionRows, weigh
from cfnade.implicit.weighted import FloatArray, multiply, times_transpose
from cfnade.models.config import SetNADEConfig

if TYPE_CHECKING:
    from cfnade.models.set_nade import SetNADENetwork

EXACT_ITEMS = 8_000
"""Catalogs of up to this size always have an exact softmax."""
DENSE = 100
"""Interactions per item from which on a larger catalog has a sampled softmax, as Netflix (3,200).
With fewer, the network learns little from samples: NDCG@20 .045 alone on 8,700 items and 64,000
interactions, where EASE has .169."""
MOST_EPOCHS = 60
LEAST = 200_000
"""On fewer interactions the network earned no weight beside the least-squares components: 0 to .12
on 45,000 to 107,000. On the 460,000 likes of MovieLens 1M it has .27 to .64."""


def binary(rows: InteractionRows) -> InteractionRows:
    """Return the rows with a weight of 1 for each interaction."""
    return weigh(rows, "binary")


def samples_softmax(items: int, interactions: int) -> bool:
    """Return whether training samples the softmax."""
    return items > EXACT_ITEMS and interactions >= DENSE * items


@register("set-nade")
class SetNade(ImplicitComponent):
    """Arrays W (M, H), c (H,), V (M, H) and b (M,)."""

    gives_item_vectors = True
    config_type = SetNADEConfig
    config: SetNADEConfig

    @classmethod
    def of_network(cls, network: SetNADENetwork) -> Self:
        """Take the arrays of a network, in its memory."""
        arrays = {name: tensor.detach().numpy() for name, tensor in network.state_dict().items()}
        return cls(network.config, arrays | {"W": arrays["W"][0]})

    @classmethod
    def search_space(cls, shape: DataShape) -> SearchSpace | None:
        if shape.interactions < LEAST:
            return None
        return SearchSpace({}, {"epochs": MOST_EPOCHS}, 1)

    @classmethod
    def seconds(cls, shape: DataShape, options: Options) -> float:
        from cfnade.implicit.set_nade_training import settings_for

        plan = settings_for(shape.users, shape.items, shape.interactions, seed=0)
        wide = (
            min(shape.items, plan.head + plan.tail + 3 * plan.batch) if plan.head else shape.items
        )
        a_step = 6e-11 * plan.batch * wide * plan.hidden + 4e-9 * shape.items * plan.hidden
        steps = shape.users / plan.batch
        epochs = min(plan.epochs, options.get("epochs", plan.epochs), 35)  # most stop by then
        return float(epochs * (steps * a_step + 2e-10 * shape.interactions * plan.hidden))

    @classmethod
    def fit(cls, rows: InteractionRows, options: Options, *, seed: int, cache: FitCache) -> Self:
        return cls._trained(rows, options, seed, None)[0]

    @classmethod
    def fit_validated(
        cls,
        rows: InteractionRows,
        options: Options,
        *,
        seed: int,
        cache: FitCache,
        value: Callable[[Self], float],
    ) -> tuple[Self, Options]:
        return cls._trained(rows, options, seed, value)

    @classmethod
    def _trained(
        cls,
        rows: InteractionRows,
        options: Options,
        seed: int,
        value: Callable[[Self], float] | None,
    ) -> tuple[Self, Options]:
        from cfnade.implicit.set_nade_training import settings_for, training_loop

        shape = len(rows), rows.n_columns, len(rows.columns)
        settings = settings_for(*shape, seed=seed, epochs=options["epochs"])

        def validate(network: SetNADENetwork) -> dict[str, float] | None:
            return None if value is None else {"ndcg": value(cls.of_network(network))}

        loop = training_loop(binary(rows), settings, validate=validate)
        loop.run()
        return cls.of_network(loop.model), {"epochs": loop.selected_epochs}

    def scores(self, rows: InteractionRows) -> ScoreArray:
        total = times_transpose(self._states(*self._sums(rows)), self.arrays["V"])
        total += self.arrays["b"]
        return total

    def scores_without(self, row: InteractionRows, places: IntArray) -> ScoreArray:
        sums, counts = self._sums(row)
        sums_of_each, counts_of_each = self._sums(row.singly(places))
        several = np.float32(len(row.columns) > 1)  # exact zeros remain of a single interaction
        states = self._states(several * (sums - sums_of_each), several * (counts - counts_of_each))
        return np.asarray(states @ self.arrays["V"].T + self.arrays["b"])

    def _sums(self, rows: InteractionRows) -> tuple[ScoreArray, FloatArray]:
        """Return the summed embeddings of each row, (B, H), and its interactions, (B,)."""
        return multiply(binary(rows), self.arrays["W"]), rows.counts.astype(np.float64)

    def _states(self, sums: ScoreArray, counts: FloatArray) -> ScoreArray:
        """Return h(C) of each row, (B, H)."""
        safe = np.maximum(counts, 1e-12)
        factor = np.where(counts > 0, np.sqrt(self.config.mean_count / safe), 0.0)
        return np.asarray(np.tanh(sums * factor.astype(np.float32)[:, None] + self.arrays["c"]))

    def item_vectors(self) -> ScoreArray | None:
        return self.arrays["V"]

    @classmethod
    def spec(cls, config: Any) -> dict[str, ArraySpec]:
        M, H = config.columns, config.hidden
        columns = {"W": (M, H), "V": (M, H), "b": (M,)}
        return {name: ArraySpec(shape) for name, shape in columns.items()} | {
            "c": ArraySpec((H,), None)
        }
