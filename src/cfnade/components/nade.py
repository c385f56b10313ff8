"""CF-NADE: the paper's model (models/cfnade.py) on rows of users or of items."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
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
    RatingComponent,
    Reading,
    Row,
    Trainer,
    other_axis,
)
from cfnade.components.readings import reading_of
from cfnade.components.registry import register
from cfnade.components.row_states import StateRows, as_ratings
from cfnade.config import TrainingConfig
from cfnade.data.csr import CsrRows
from cfnade.data.dataset import Dataset
from cfnade.exceptions import TrainingError
from cfnade.kernels import scoring
from cfnade.kernels.column_groups import Cells, RowRatings, group_by_column, take_rows
from cfnade.kernels.scoring import context_sum
from cfnade.models.config import CFNADEConfig
from cfnade.utils.caching import locked_cached_property
from cfnade.utils.cancellation import check_cancelled

if TYPE_CHECKING:
    from torch import Tensor, nn

    from cfnade.components.batches import Batch
    from cfnade.kernels.adam import AdamRule
    from cfnade.kernels.sampling import GroupedBatch

_ENGINE_NAMES = {
    **{"W": "input_table", "A": "input_table", "V": "output_table", "P": "output_table"},
    "b": "bias",
}


PIECE = 1 << 22
"""How many numbers a temporary array may hold."""

KEPT = 1 << 16
"""Summed contexts of so many rows are kept once they are made; of more, each time what is asked."""

_ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "tanh": np.tanh,
    "sigmoid": lambda x: 0.5 * np.tanh(0.5 * x) + 0.5,
    "relu": lambda x: np.maximum(x, 0),
}


@register("user", axis="user")
@register("item", axis="item")
class NadeComponent(RatingComponent):
    """A CF-NADE whose rows are users (columns items) or items (columns users).

    Arrays have the names of models/cfnade.py, which has the equations.
    """

    axis: Axis
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
        own = {"b": ArraySpec((M, K)), "c": ArraySpec(sizes[:1], None)}
        return {**tables, **own, **deep, **biases}

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
        others = ("gains", "ridge", "spread")
        own = {name: value for name, value in options.items() if name not in others}
        return CFNADEConfig(**{**own, **sizes})

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
                nobody = torch.zeros(1, counts.shape[1], dtype=counts.dtype)
                everyone = smoothed_log_frequencies(nobody, smoothing, total)  # (1, K)
                network.b.sub_(level_steps(everyone) if new.config.shared else everyone)
            new._has_biases = axis not in (one.axis for one in data.preceding)
            if not new._has_biases:
                network.b.zero_()
                network.output_table.zero_()
            unseen = counts.sum(1) == 0
            network.input_table[unseen] = 0.0
            network.output_table[unseen] = 0.0
        return new

    def take_over(self, earlier: Self, places: IntArray) -> None:
        same = ("levels", "hidden", "factors", "shared", "activation")
        differ = [n for n in same if getattr(earlier.config, n) != getattr(self.config, n)]
        if differ:
            raise TrainingError(
                f"the earlier model cannot be continued: its {', '.join(differ)} differs"
            )
        super().take_over(earlier, places)

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

        return CFNADENetwork.from_config(self.config)

    def torch_scores(self, network: Any, batch: Batch) -> Tensor:
        from cfnade.components.optimizers import network_scores

        return network_scores(network, batch, self.axis)

    def shared_scores(
        self, known: RowRatings, counts: IntArray, cells: Cells, trained: IntArray
    ) -> Array:
        import torch

        from cfnade.components.rank_scores import rank_scores
        from cfnade.components.row_states import OutputTable

        rows = NadeRows(self, CsrRows(*known[:1], *known[2:], *self.input_table.shape[:2]))
        sums = torch.from_numpy(rows.sums(known))
        group = self.group
        group.reduce_scatter_rows(sums)
        lo, hi = group.row_range(len(counts))
        states = torch.zeros(len(counts), self.output_table.shape[2])
        states[lo:hi] = torch.from_numpy(rows.states_of_sums(sums[lo:hi].numpy(), counts[lo:hi]))
        group.all_gather_rows(states)
        output = OutputTable(self.output_table, self.arrays["b"], self.config.shared)
        return rank_scores(group, output, states.numpy(), cells, trained)

    # -- asked --------------------------------------------------------------------------------

    def reading(self, context: Dataset) -> Reading:
        return reading_of(self.axis, NadeRows(self, context.rows(self.axis)), context)

    def vectors(self, context: Dataset, axis: Axis) -> Array | None:
        """Of a row its hidden state, of a column the output weights of its levels."""
        if axis != self.axis:
            return self.output_table.reshape(len(self.output_table), -1)
        return NadeRows(self, context.rows(axis)).hidden()


class NadeRows(StateRows):
    """A CF-NADE's numbers (no copies), and the rows that it reads."""

    def __init__(self, component: NadeComponent, rows: CsrRows) -> None:
        tables, self._config = component.arrays, component.config
        super().__init__(rows, component.output_table, tables["b"], shared=self._config.shared)
        self._input, self._c = component.input_table, tables["c"]
        self._g = _ACTIVATIONS[self._config.activation]
        self._B, self._Q = tables.get("B"), tables.get("Q")  # (H, J), (J, H) if factored
        layers = range(len(self._config.hidden) - 1)
        self._deep = [(tables[f"deep_W.{n}"], tables[f"deep_c.{n}"]) for n in layers]

    def states(self, ratings: RowRatings) -> Array:
        sums = scoring.sum_ratings(ratings, self._input, shared=self.shared)  # (B, D)
        return self._states(sums, np.diff(ratings.offsets))

    def states_without(
        self, ratings: RowRatings, rows: Array, columns: Array, levels: Array
    ) -> Array:
        out = np.empty((len(rows), self._output.shape[2]), self.dtype)
        sums = scoring.sum_ratings(ratings, self._input, shared=self.shared)
        counts = np.diff(ratings.offsets)
        step = max(1, PIECE // self._input.shape[2])
        for first in range(0, len(out), step):
            part = slice(first, first + step)
            own = scoring.embed(columns[part], levels[part], self._input, shared=self.shared)
            out[part] = self._states(sums[rows[part]] - own, counts[rows[part]] - 1)
        return out

    def some_without(self, row: Row, left_out: IntArray, columns: IntArray) -> Array:
        """Leave pairs of ratings out of a row: `LeavesPairsOut` in readings.py. (b, n, K)."""
        level = np.zeros(len(self._bias), np.int64)
        level[row.columns] = row.levels
        embed = partial(scoring.embed, table=self._input, shared=self.shared)
        whole = scoring.sum_ratings(as_ratings([row]), self._input, shared=self.shared)
        counts = np.full(max(len(left_out), len(columns)), len(row.columns) - 2)
        # What comes before the first activation is linear in the sum, so it is computed once for
        # each rating, not for each pair.
        rest = self._before_activation(
            whole - embed(left_out, level[left_out]),
            counts[: len(left_out)],
            self._c,
            scoring.affine,
        )
        terms = self._before_activation(
            embed(columns, level[columns]),
            counts[: len(columns)],
            np.zeros_like(self._c),
            scoring.affine,
        )
        out = np.empty((len(columns), len(left_out), self._bias.shape[1]), self.dtype)
        for column, term, scores in zip(columns.tolist(), terms, out, strict=True):
            check_cancelled()
            h = self._later_layers(self._g(rest - term), scoring.affine)
            states = self._projected(h, scoring.affine)
            scores[:] = scoring.affine(states, self._output[column], self._bias[column])
        if self.shared:
            np.cumsum(out, axis=2, out=out)
        return out.swapaxes(0, 1)

    def _many_states(self, ratings: RowRatings) -> Array:
        return self._states(self.sums(ratings), np.diff(ratings.offsets), _product)

    def _many_without(
        self, ratings: RowRatings, rows: Array, columns: Array, levels: Array
    ) -> Array:
        own = scoring.embed(columns, levels, self._input, shared=self.shared)
        sums = self.sums(ratings)[rows] - own
        return self._states(sums, np.diff(ratings.offsets)[rows] - 1, _product)

    def sums(self, ratings: RowRatings) -> Array:
        """Return summed embeddings of rows given by their ratings, (B, D)."""
        M, K, _ = self._input.shape
        cells, size = (ratings.rows, ratings.columns, ratings.levels), len(ratings.offsets) - 1
        context = group_by_column(*cells, n_rows=size, n_columns=M, n_levels=K)
        return context_sum(self._input, context, shared=self.shared)

    # -- rows by number: what is summed is kept, so that a rating can be taken off -------------

    def _without_column(self, column: int, rows: IntArray, levels: IntArray) -> Array:
        sums, counts = self._sums_by_number(rows)
        own = np.full(len(rows), column), levels
        return self._states(sums - scoring.embed(*own, self._input, shared=self.shared), counts - 1)

    def _by_number(self, rows: IntArray) -> Array:
        if len(self.rows) <= KEPT:
            return super()._by_number(rows)
        return self._states(*self._sums_by_number(rows))

    def _all_states(self) -> Array:
        if len(self.rows) <= KEPT:
            return super()._all_states()
        return self._by_number(np.arange(len(self.rows)))

    @locked_cached_property
    def _every_state(self) -> Array:
        return self._states(*self._every)

    def _sums_by_number(self, rows: IntArray) -> tuple[Array, IntArray]:
        """Summed contexts of rows, and how many ratings each has: (n, D) and (n,)."""
        if len(self.rows) <= KEPT:
            sums, counts = self._every
            return sums[rows], counts[rows]
        numbers, local = np.unique(rows, return_inverse=True)
        sums, counts = self._some(numbers)
        return sums[local], counts[local]

    @locked_cached_property
    def _every(self) -> tuple[Array, IntArray]:
        """Of all rows, and last of one of which nothing is known."""
        return self._some(np.append(np.arange(len(self.rows)), -1))

    def _some(self, numbers: IntArray) -> tuple[Array, IntArray]:
        data = self.rows
        ratings = take_rows(data.offsets, data.columns, data.levels, numbers)
        return self.sums(ratings), np.diff(ratings.offsets)

    def states_of_sums(self, sums: Array, counts: IntArray) -> Array:
        """Return what meets the output table, (B, S)."""
        return self._states(sums, counts, _product)

    def hidden(self) -> Array:
        """The last layer of every row. Returns (N, H)."""
        sums, counts = self._every
        return self._hidden(sums[:-1], counts[:-1], _product)

    # -- pieces -------------------------------------------------------------------------------

    def _states(self, sums: Array, counts: IntArray, affine: Affine = scoring.affine) -> Array:
        """What meets the output table, for sums (B, D) of counts (B,) ratings each: (B, S)."""
        return self._projected(self._hidden(sums, counts, affine), affine)

    def _projected(self, h: Array, affine: Affine) -> Array:
        """What meets the output table, for a last layer (B, H): (B, S)."""
        if self._Q is None:
            return h
        return affine(h, self._Q, np.zeros(len(self._Q), h.dtype))

    def _hidden(self, sums: Array, counts: IntArray, affine: Affine) -> Array:
        """The last layer for the same. Returns (B, H)."""
        h = self._g(self._before_activation(sums, counts, self._c, affine))
        return self._later_layers(h, affine)

    def _before_activation(
        self, sums: Array, counts: IntArray, bias: Array, affine: Affine
    ) -> Array:
        """What enters the first activation, linear in the sums: (B, H)."""
        # What remains of a lone rating is nothing, not a rounding error.
        sums = np.where((counts > 0)[:, None], sums, 0).astype(self._c.dtype)
        mean = self._config.mean_context
        if mean is not None:
            # √(n̄/n): a sum of n independent terms grows with √n. No ratings, no sum to scale.
            ratio = mean / np.maximum(counts, 1).astype(sums.dtype)
            sums = sums * np.sqrt(ratio, dtype=sums.dtype)[:, None]
        return bias + sums if self._B is None else affine(sums, self._B, bias)

    def _later_layers(self, h: Array, affine: Affine) -> Array:
        for W, c in self._deep:
            h = self._g(affine(h, W, c))
        return h


Affine = Callable[[Array, Array, Array], Array]
"""bias + rows @ weights.T, for rows, weights and bias."""


def _product(rows: Array, weights: Array, bias: Array) -> Array:
    """The same as scoring.affine of many rows: a matrix product, for which threads may help."""
    out = rows @ weights.T
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


class NadeTrainer:
    """Gradients and Adam of a CF-NADE in compiled kernels."""

    def __init__(
        self,
        component: NadeComponent,
        rules: Mapping[str, AdamRule],
        settings: TrainingConfig,
        threads: int,
    ) -> None:
        from cfnade.kernels.engine import Engine

        self._axis, self._mean = component.axis, component.config.mean_context
        self._engine = Engine(
            component.config,
            engine_arrays(component.arrays),
            {_ENGINE_NAMES.get(name, name): rule for name, rule in rules.items()},
            rowwise=settings.is_sparse,
            touched_only=settings.is_sparse,
            threads=threads,
            group=component.group,
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
        import torch

        pairs = self._engine.moments.items()
        return {
            f"{name}.{i}": torch.from_numpy(moment)
            for name, pair in pairs
            for i, moment in enumerate(pair)
        }

    def restore(self, state: Mapping[str, Tensor], steps: int) -> None:
        for name, tensor in self.state().items():
            tensor.copy_(state[name])
        self._engine.steps = steps


def engine_arrays(arrays: Arrays) -> dict[str, Array]:
    """Return a CF-NADE's arrays under the engine's names."""
    return {_ENGINE_NAMES.get(name, name): array for name, array in arrays.items()}
