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
    ComponentScorer,
    FitData,
    OutputTable,
    Pairs,
    RatingComponent,
    Trainer,
    other_axis,
)
from cfnade.components.registry import register
from cfnade.components.row_states import KEPT, PIECE, RowStates, ratings_of
from cfnade.config import TrainingConfig
from cfnade.data.csr import CsrRows
from cfnade.data.dataset import Dataset
from cfnade.exceptions import TrainingError
from cfnade.kernels import scoring
from cfnade.kernels.column_groups import Cells, RowRatings, group_by_column
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
        own = {
            field.name: options[field.name]
            for field in fields(CFNADEConfig)
            if field.name in options
        }
        return CFNADEConfig(**own | sizes)

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

        rows = NadeRows(self, CsrRows(*known[:1], *known[2:], *self.input_table.shape[:2]))
        sums = torch.from_numpy(rows.sums(known))
        group = self.group
        group.reduce_scatter_rows(sums)
        lo, hi = group.row_range(len(counts))
        states = torch.zeros(len(counts), self.output_table.shape[2])
        states[lo:hi] = torch.from_numpy(rows.states_of_sums(sums[lo:hi].numpy(), counts[lo:hi]))
        group.all_gather_rows(states)
        return rank_scores(group, rows.output, states.numpy(), cells, trained)

    # -- asked --------------------------------------------------------------------------------

    def scorer(self, rows: CsrRows) -> ComponentScorer:
        return NadeRows(self, rows)

    def vectors(self, context: Dataset, axis: Axis) -> Array | None:
        """Of a row its hidden state, of a column the output weights of its levels."""
        if axis != self.axis:
            return self.output_table.reshape(len(self.output_table), -1)
        return NadeRows(self, context.rows(axis)).hidden()


class NadeRows(RowStates):
    """A CF-NADE's numbers (no copies), and the rows that it reads."""

    def __init__(self, component: NadeComponent, rows: CsrRows) -> None:
        tables, self._config = component.arrays, component.config
        self.shared = self._config.shared
        output = OutputTable(component.output_table, tables["b"], self.shared)
        super().__init__(component.axis, rows, output)
        self._input, self._c = component.input_table, tables["c"]
        self._g = _ACTIVATIONS[self._config.activation]
        self._B, self._Q = tables.get("B"), tables.get("Q")  # (H, J), (J, H) if factored
        layers = range(len(self._config.hidden) - 1)
        self._deep = [(tables[f"deep_W.{n}"], tables[f"deep_c.{n}"]) for n in layers]

    def states(self, ratings: RowRatings, *, serial: bool = True) -> Array:
        sums, counts = self.sums(ratings, serial=serial), np.diff(ratings.offsets)
        return self._states(sums, counts, scoring.affine if serial else _product)

    def states_without(
        self,
        ratings: RowRatings,
        rows: Array,
        columns: Array,
        levels: Array,
        *,
        serial: bool = True,
    ) -> Array:
        sums, counts = self.sums(ratings, serial=serial), np.diff(ratings.offsets)
        return self._less(sums, counts, rows, (columns, levels), serial=serial)

    def _less(
        self, sums: Array, counts: Array, rows: Array, cells: tuple[Array, Array], *, serial: bool
    ) -> Array:
        """Return the states of rows without a rating each, (n, S)."""
        out = np.empty((len(rows), self.output.table.shape[2]), self.dtype)
        step = max(1, PIECE // self._input.shape[2])
        for first in range(0, len(out), step):
            part = slice(first, first + step)
            own = self._embed(*(array[part] for array in cells))
            rest, counted = sums[rows[part]], counts[rows[part]] - 1
            rest -= own
            out[part] = self._states(rest, counted, scoring.affine if serial else _product)
        return out

    def _without_two(
        self, ratings: RowRatings, rows: IntArray, pairs: Pairs, further: IntArray, also: IntArray
    ) -> Array:
        """What enters the first activation is linear, so it is computed once for each rating."""
        sums, counts = self.sums(ratings), np.diff(ratings.offsets)
        total = self._projected_in(sums)  # (B, H)
        number, cells = _distinct(pairs, further, also)
        terms = self._projected_in(self._embed(*cells))
        out = np.empty((len(rows), self.output.table.shape[2]), self.dtype)
        step = max(1, PIECE // total.shape[1])
        for first in range(0, len(out), step):
            check_cancelled()
            part = slice(first, first + step)
            rest, counted = total[rows[part]], counts[rows[part]]
            for one in number:  # of each pair the ratings that it leaves out, -1 for none
                held = np.flatnonzero(one[part] >= 0)
                rest[held] -= terms[one[part][held]]
                counted[held] -= 1
            h = self._g(self._c + self._scaled(rest, counted))
            out[part] = self._projected(self._later_layers(h, scoring.affine), scoring.affine)
        return out

    def sums(self, ratings: RowRatings, *, serial: bool = False) -> Array:
        """Return summed embeddings of rows given by their ratings, (B, D)."""
        if serial:
            return scoring.sum_ratings(ratings, self._input, shared=self.shared)
        M, K, _ = self._input.shape
        cells, size = (ratings.rows, ratings.columns, ratings.levels), len(ratings.offsets) - 1
        context = group_by_column(*cells, n_rows=size, n_columns=M, n_levels=K)
        return context_sum(self._input, context, shared=self.shared)

    def _embed(self, columns: Array, levels: Array) -> Array:
        return scoring.embed(columns, levels, self._input, shared=self.shared)

    # -- all rows: their sums are kept, so that a rating can be taken off -----------------------

    def reads_all(self, pairs: Pairs) -> bool:
        return super().reads_all(pairs) and len(self.rows) <= KEPT

    def states_left(self, pairs: Pairs) -> Array:
        if pairs.rows is not self.rows or len(self.rows) > KEPT or pairs.left_out is not None:
            return super().states_left(pairs)
        cells = pairs.column, pairs.levels
        return self._less(*self._every, pairs.row, cells, serial=pairs.serial)

    @locked_cached_property
    def _every_state(self) -> Array:
        return self._states(*self._every, _product)

    @locked_cached_property
    def _every(self) -> tuple[Array, IntArray]:
        """Summed contexts of all rows, and how many ratings each has: (N, D) and (N,)."""
        ratings = ratings_of(self.rows)
        return self.sums(ratings), np.diff(ratings.offsets)

    def states_of_sums(self, sums: Array, counts: IntArray) -> Array:
        """Return what meets the output table, (B, S)."""
        return self._states(sums, counts, _product)

    def hidden(self) -> Array:
        """Return the last layer of every row, (N, H)."""
        return self._hidden(*self._every, _product)

    # -- pieces -------------------------------------------------------------------------------

    def _states(self, sums: Array, counts: IntArray, affine: Affine) -> Array:
        """What meets the output table, for sums (B, D) of counts (B,) ratings each: (B, S)."""
        return self._projected(self._hidden(sums, counts, affine), affine)

    def _projected(self, h: Array, affine: Affine) -> Array:
        """What meets the output table, for a last layer (B, H): (B, S)."""
        if self._Q is None:
            return h
        return affine(h, self._Q, np.zeros(len(self._Q), h.dtype))

    def _hidden(self, sums: Array, counts: IntArray, affine: Affine) -> Array:
        """The last layer for the same. Returns (B, H)."""
        sums = self._scaled(sums, counts)
        h = self._g(self._c + sums if self._B is None else affine(sums, self._B, self._c))
        return self._later_layers(h, affine)

    def _projected_in(self, sums: Array) -> Array:
        """What enters the first activation, up to scale and bias: (B, H)."""
        if self._B is None:
            return sums
        return scoring.affine(sums, self._B, np.zeros_like(self._c))

    def _scaled(self, sums: Array, counts: IntArray) -> Array:
        # What remains of a lone rating is nothing, not a rounding error.
        if (counts <= 0).any():
            sums = np.where((counts > 0)[:, None], sums, 0)
        sums = sums.astype(self._c.dtype, copy=False)
        mean = self._config.mean_context
        if mean is not None:
            # √(n̄/n): a sum of n independent terms grows with √n. No ratings, no sum to scale.
            ratio = mean / np.maximum(counts, 1).astype(sums.dtype)
            sums = sums * np.sqrt(ratio, dtype=sums.dtype)[:, None]
        return np.asarray(sums)

    def _later_layers(self, h: Array, affine: Affine) -> Array:
        for W, c in self._deep:
            h = self._g(affine(h, W, c))
        return h


def _distinct(
    pairs: Pairs, further: IntArray, also: IntArray
) -> tuple[list[IntArray], tuple[IntArray, IntArray]]:
    """Return which rating each pair leaves out as its own, and which besides; and these ratings."""
    assert pairs.left_out is not None
    own = pairs.levels >= 0
    more = np.zeros(len(own), bool)
    more[further] = ~own[further] | (also != pairs.column[further])
    besides = np.zeros(len(own), np.int64)
    besides[further] = also
    levels = pairs.rows.levels[np.maximum(pairs.left_out, 0)].astype(np.int64)
    K, parts = pairs.rows.n_levels, ((own, pairs.column, pairs.levels), (more, besides, levels))
    keys = [np.where(held, column * K + level, -1) for held, column, level in parts]
    found, which = np.unique(np.concatenate(keys), return_inverse=True)
    known = int(found[0] < 0)
    numbers = [np.asarray(one) for one in np.split(which - known, 2)]
    return numbers, (found[known:] // K, found[known:] % K)


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
