"""CF-NADE: the paper's model (models/cfnade.py) on rows of users or of items."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from cfnade._typing import IntArray
from cfnade.components.base import (
    Array,
    Arrays,
    ArraySpec,
    Axis,
    FitData,
    OutputTable,
    Trainer,
    other_axis,
)
from cfnade.components.registry import register
from cfnade.components.row_states import AdditiveComponent, ratings_of
from cfnade.config import TrainingConfig
from cfnade.data.dataset import Dataset
from cfnade.kernels import scoring
from cfnade.kernels.column_groups import RowRatings, group_by_column
from cfnade.models.config import CFNADEConfig

if TYPE_CHECKING:
    from torch import Tensor, nn

    from cfnade.components.batches import Batch
    from cfnade.kernels.adam import AdamRule
    from cfnade.kernels.sampling import GroupedBatch

_ENGINE_NAMES = {
    **{"W": "input_table", "A": "input_table", "V": "output_table", "P": "output_table"},
    "b": "bias",
}


_ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "tanh": lambda x: np.tanh(x, out=x),
    "sigmoid": lambda x: 0.5 * np.tanh(0.5 * x) + 0.5,
    "relu": lambda x: np.maximum(x, 0, out=x),
}
"""Activations, which may overwrite their argument."""


@register("user", axis="user")
@register("item", axis="item")
class NadeComponent(AdditiveComponent):
    """A CF-NADE whose rows are users (columns items) or items (columns users).

    Arrays have the names of models/cfnade.py, which has the equations.
    """

    config: CFNADEConfig
    config_type = CFNADEConfig
    partitionable = True
    _has_biases = True

    @classmethod
    def spec(cls, config: CFNADEConfig) -> dict[str, ArraySpec]:
        M, K, J, sizes = config.columns, config.levels, config.factors, config.hidden
        if J is None:
            tables = {"W": ArraySpec((M, K, sizes[0])), "V": ArraySpec((M, K, sizes[-1]))}
        else:
            tables = {
                "A": ArraySpec((M, K, J)),
                "B": ArraySpec((sizes[0], J), None),
                "P": ArraySpec((M, K, J)),
                "Q": ArraySpec((J, sizes[-1]), None),
            }
        deep = {
            f"deep_W.{n}": ArraySpec((out, inner), None)
            for n, (inner, out) in enumerate(pairwise(sizes))
        }
        biases = {f"deep_c.{n}": ArraySpec((size,), None) for n, size in enumerate(sizes[1:])}
        first = {"b": ArraySpec((M, K)), "c": ArraySpec(sizes[:1], None)}
        return {**tables, **first, **deep, **biases}

    @property
    def input_table(self) -> Array:
        """What a known rating adds. (M, K, D)."""
        return self.arrays["W" if self.config.factors is None else "A"]

    @property
    def output_table(self) -> Array:
        """What the state is compared with. (M, K, D)."""
        return self.arrays["V" if self.config.factors is None else "P"]

    # -- fitted -------------------------------------------------------------------------------

    @classmethod
    def config_for(
        cls, axis: Axis | None, ratings: Dataset, options: Mapping[str, Any]
    ) -> CFNADEConfig:
        assert axis is not None
        rows = ratings.rows(axis)
        sizes: dict[str, Any] = {"columns": rows.n_columns, "levels": rows.n_levels}
        if options.get("context_scale") == "sqrt" and options.get("mean_context") is None:
            count, rated = ratings.row_totals(axis)
            sizes["mean_context"] = count / max(1, rated)
        names = {field.name for field in fields(CFNADEConfig)} & set(options)
        return CFNADEConfig(**{name: options[name] for name in names} | sizes)

    @classmethod
    def fit(cls, axis: Axis | None, data: FitData, options: Mapping[str, Any]) -> Self:
        """Return random weights, with biases from how often each column got each level.

        After another component a column starts from how it differs from all columns; after one
        that has weights for the same columns it starts with scores of 0, and leaves biases to that
        one. A column without training ratings has weights of 0.
        """
        import torch

        from cfnade.models.initialization import level_steps, smoothed_log_frequencies

        assert axis is not None
        new = cls(cls.config_for(axis, data.dataset, options), axis=axis)
        network, partition, smoothing = new.network, data.partition, data.training.smoothing
        network.initialise(data.generator, partition and partition.initialized_columns)
        counts = torch.from_numpy(data.dataset.level_counts(other_axis(axis)))  # (M, K)
        total = counts.sum(0) if partition is None else torch.from_numpy(partition.totals)
        network.initialise_biases(counts, smoothing=smoothing, total=total)
        with torch.no_grad():
            if data.preceding:
                no_ratings = torch.zeros(1, counts.shape[1], dtype=counts.dtype)
                overall = smoothed_log_frequencies(no_ratings, smoothing, total)  # (1, K)
                network.b.sub_(level_steps(overall) if new.config.shared else overall)
            new._has_biases = axis not in (earlier.axis for earlier in data.preceding)
            if not new._has_biases:
                network.b.zero_()
                network.output_table.zero_()
            unseen = counts.sum(1) == 0
            network.input_table[unseen] = 0.0
            network.output_table[unseen] = 0.0
        return new

    # -- trained ------------------------------------------------------------------------------

    def rules(
        self, ratings: Dataset, settings: TrainingConfig, *, share: float
    ) -> dict[str, AdamRule]:
        """Return rates and L2. The paper's L2 is Σ w² beside the mean cost of a row.

        The mean cost of a block's target is that of a row divided by the ratings of a row. A
        touched column's output weights take part in one of 1/share steps only, so each time the
        pull is that much stronger.
        """
        from cfnade.kernels.adam import AdamRule

        count, rated = ratings.row_totals(self.axis)
        per_target = rated / max(1, count) if share else 1.0
        rules = {}
        for name in self.trained:
            often = share if share and name in ("V", "P") and settings.is_sparse else 1.0
            decay = _decay(name, settings) * per_target / often
            rate = _rate(name, settings) if name != "b" or self._has_biases else 0.0
            rules[name] = AdamRule(rate=rate, decay=decay)
        return rules

    def trainer(
        self, ratings: Dataset, settings: TrainingConfig, *, share: float, threads: int
    ) -> Trainer:
        return NadeTrainer(self, self.rules(ratings, settings, share=share), settings, threads)

    def module(self) -> nn.Module:
        from cfnade.models.cfnade import CFNADENetwork

        return CFNADENetwork(self.config)

    def torch_scores(self, network: Any, batch: Batch) -> Tensor:
        from cfnade.components.optimizers import network_scores

        return network_scores(network, batch, self.axis)

    # -- scores -------------------------------------------------------------------------------

    def row_sums(self, ratings: RowRatings, *, serial: bool = True) -> Array:
        """Return the summed embeddings of each row, (B, D)."""
        table, shared = self.input_table, self.config.shared
        if serial:
            return scoring.sum_ratings(ratings, table, shared=shared)
        (M, K, _), B = table.shape, len(ratings.offsets) - 1
        cells = ratings.rows, ratings.columns, ratings.levels
        context = group_by_column(*cells, n_rows=B, n_columns=M, n_levels=K)
        return scoring.context_sum(table, context, shared=shared)

    def entry_terms(self, columns: IntArray, levels: IntArray) -> Array:
        return scoring.embed(columns, levels, self.input_table, shared=self.config.shared)

    def project(self, sums: Array, *, serial: bool = True) -> Array:
        """Return what enters the first activation up to scale and bias, (B, H)."""
        B = self.arrays.get("B")
        if B is None:
            return sums
        return _affine(sums, B, np.zeros_like(self.arrays["c"]), serial=serial)

    def states(self, projected: Array, counts: IntArray, *, serial: bool = True) -> Array:
        h = self._last_layer(projected, counts, serial=serial)
        Q = self.arrays.get("Q")
        return h if Q is None else _affine(h, Q, np.zeros(len(Q), h.dtype), serial=serial)

    def _last_layer(self, projected: Array, counts: IntArray, *, serial: bool) -> Array:
        arrays, g = self.arrays, _ACTIVATIONS[self.config.activation]
        # What remains of a lone rating is nothing, not a rounding error.
        if (counts <= 0).any():
            projected = np.where((counts > 0)[:, None], projected, 0)
        projected, c = projected.astype(arrays["c"].dtype, copy=False), arrays["c"]
        mean = self.config.mean_context
        out = projected if "B" in arrays else None  # a product, which is not cached
        if mean is not None:
            # √(n̄/n): a sum of n independent terms grows with √n. No ratings, no sum to scale.
            ratio = mean / np.maximum(counts, 1).astype(c.dtype)
            projected = out = np.multiply(projected, np.sqrt(ratio)[:, None], out=out)
        h = g(np.add(projected, c, out=out))
        for n in range(len(self.config.hidden) - 1):
            h = g(_affine(h, arrays[f"deep_W.{n}"], arrays[f"deep_c.{n}"], serial=serial))
        return h

    def output(self) -> OutputTable:
        return OutputTable(self.output_table, self.arrays["b"], self.config.shared)

    def vectors(self, context: Dataset, axis: Axis) -> Array | None:
        """Return the hidden state of each row, or the output weights of each column."""
        if axis != self.axis:
            return super().vectors(context, axis)
        ratings = ratings_of(context.rows(axis))
        projected = self.project(self.row_sums(ratings, serial=False), serial=False)
        return self._last_layer(projected, np.diff(ratings.offsets), serial=False)


def _affine(rows: Array, weights: Array, bias: Array, *, serial: bool) -> Array:
    """Return bias + rows @ weights.T, on the calling thread or as a matrix product."""
    if serial:
        return scoring.affine(rows, weights, bias)
    out: Array = rows @ weights.T
    out += bias
    return out


def _rate(name: str, settings: TrainingConfig) -> float:
    rate = settings.learning_rate
    if name in ("W", "A", "B", "c"):
        rate *= settings.first_layer_factor
    if name in ("B", "Q", "c") or name.startswith("deep"):
        rate *= settings.dense_factor
    return rate


def _decay(name: str, settings: TrainingConfig) -> float:
    """The penalty is decay · Σw², so its gradient is 2 · decay · w; biases have none."""
    if name in ("b", "c") or name.startswith("deep_c"):
        return 0.0
    return 2.0 * settings.weight_decay * (settings.output_decay if name in ("V", "P") else 1.0)


class NadeTrainer(Trainer):
    """Gradients and Adam of a CF-NADE in compiled kernels."""

    def __init__(
        self,
        component: NadeComponent,
        rules: Mapping[str, AdamRule],
        settings: TrainingConfig,
        threads: int,
    ) -> None:
        from cfnade.distributed.engine import DistributedEngine
        from cfnade.kernels.engine import Engine

        self._axis, self._mean = component.axis, component.config.mean_context
        arrays = engine_arrays(component.arrays)
        named = {_ENGINE_NAMES.get(name, name): rule for name, rule in rules.items()}
        options: dict[str, Any] = {"sparse": settings.is_sparse, "threads": threads}
        self._engine = (
            Engine(component.config, arrays, named, **options)
            if component.group.size == 1
            else DistributedEngine(
                component.config, arrays, named, group=component.group, **options
            )
        )

    def add_scores(self, draw: Batch, scores: Array) -> None:
        batch = draw.batches[self._axis]
        self._engine.encode(batch.context, self._scale(batch))
        self._engine.add_scores(draw.targets(self._axis), scores)

    def backward(self, draw: Batch, gradient: Array, rate: float) -> None:
        self._engine.start_step(rate)
        self._engine.fit_scores(draw.targets(self._axis), gradient)
        self._engine.fit_context(draw.batches[self._axis].context)

    def fused_step(self, draw: Batch, rate: float) -> float | None:
        batch = draw.batches[self._axis]
        return self._engine.step(batch, scale=self._scale(batch), rate=rate)

    def _scale(self, batch: GroupedBatch) -> Array | None:
        """What multiplies the summed context of each row. Returns (B,)."""
        if self._mean is None:
            return None
        return np.asarray(np.sqrt(self._mean / np.maximum(batch.context_sizes, 1)))

    def state(self) -> dict[str, Tensor]:
        from cfnade.components.optimizers import moment_tensors

        return moment_tensors(self._engine.parameters)

    def restore(self, state: Mapping[str, Tensor], steps: int) -> None:
        for name, tensor in self.state().items():
            tensor.copy_(state[name])
        self._engine.parameters.steps = steps


def engine_arrays(arrays: Arrays) -> dict[str, Array]:
    """Return a CF-NADE's arrays under the engine's names."""
    return {_ENGINE_NAMES.get(name, name): array for name, array in arrays.items()}
