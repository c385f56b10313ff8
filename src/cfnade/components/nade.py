"""The CF-NADE side: the paper's model (models/cfnade.py) on rows of users or of items."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from cfnade._typing import IntArray
from cfnade.components.base import Array, Axis, Before, other_axis
from cfnade.components.batches import Batch
from cfnade.components.nade_rows import NadeWeights
from cfnade.components.rank_scores import OutputTable, rank_scores
from cfnade.components.trainable import TorchComponent, TorchRowComponent, Trainer, tables_of
from cfnade.config import TrainingConfig
from cfnade.data.dataset import Dataset
from cfnade.exceptions import TrainingError
from cfnade.kernels.adam import AdamRule
from cfnade.kernels.column_groups import Cells, RowRatings
from cfnade.kernels.column_groups import group_by_column as grouped
from cfnade.kernels.engine import Engine
from cfnade.kernels.sampling import GroupedBatch
from cfnade.kernels.scoring import context_sum
from cfnade.models.cfnade import CFNADENetwork
from cfnade.models.config import CFNADEConfig
from cfnade.models.initialization import level_steps, smoothed_log_frequencies

_TABLES = {"W": "input_table", "A": "input_table", "V": "output_table", "P": "output_table"}


class NadeComponent(TorchRowComponent):
    """A CF-NADE whose rows are users (columns items) or items (columns users)."""

    network: CFNADENetwork
    by_column = ("W", "V", "A", "P", "b")

    def __init__(self, axis: Axis, network: CFNADENetwork) -> None:
        super().__init__(axis, network)
        self._has_biases = True

    # -- made, saved, taken over --------------------------------------------------------------

    @classmethod
    def sized(cls, axis: Axis | None, ratings: Dataset, fields: Mapping[str, Any]) -> Self:
        assert axis is not None
        rows = ratings.rows(axis)
        sizes: dict[str, Any] = {"columns": rows.n_columns, "levels": rows.n_levels}
        if fields.get("context_scale") == "sqrt" and fields.get("mean_context") is None:
            count, rated = ratings.row_totals(axis)
            sizes["mean_context"] = count / max(1, rated)
        return cls(axis, CFNADENetwork(**{**_own(fields), **sizes}))

    def start(
        self, ratings: Dataset, generator: torch.Generator, settings: TrainingConfig, before: Before
    ) -> None:
        """Random weights; biases from how often each column got each level.

        After another side a column starts from how it differs from all columns; after one that has
        weights for the same columns it starts by saying nothing, and leaves biases to that one. A
        column without training ratings says nothing, where it would say its random start.
        """
        network = self.network
        network.initialise(generator, self.part and self.part.kept)
        counts = torch.from_numpy(ratings.level_counts(other_axis(self.axis)))  # (M, K)
        total = counts.sum(0) if self.part is None else torch.from_numpy(self.part.totals)
        network.initialise_biases(counts, smoothing=settings.smoothing, total=total)
        with torch.no_grad():
            if before:
                nobody = torch.zeros(1, counts.shape[1], dtype=counts.dtype)
                everyone = smoothed_log_frequencies(nobody, settings.smoothing, total)  # (1, K)
                network.b.sub_(level_steps(everyone) if network.config.shared else everyone)
            self._has_biases = self.axis not in before
            if not self._has_biases:
                network.b.zero_()
                network.output_table.zero_()
            unseen = counts.sum(1) == 0
            network.input_table[unseen] = 0.0
            network.output_table[unseen] = 0.0

    def weights(self) -> NadeWeights:
        return NadeWeights(self.axis, self.network.config, tables_of(self.network))

    @staticmethod
    def empty(fields: Mapping[str, Any]) -> CFNADENetwork:
        return CFNADENetwork.from_config(CFNADEConfig.from_dict(fields))

    def take_over(
        self, earlier: TorchComponent, ratings: Dataset, earlier_ratings: Dataset
    ) -> None:
        assert isinstance(earlier, NadeComponent)
        old, new = earlier.network, self.network
        same = ("levels", "hidden", "factors", "shared", "activation")
        differ = [n for n in same if getattr(old.config, n) != getattr(new.config, n)]
        if differ:
            raise TrainingError(
                f"the earlier model cannot be continued: its {', '.join(differ)} differs"
            )
        _, ours, theirs = np.intersect1d(
            ratings.ids(other_axis(self.axis)),
            earlier_ratings.ids(other_axis(self.axis)),
            assume_unique=True,
            return_indices=True,
        )
        with torch.no_grad():
            for name, weight in new.named_parameters():
                source = old.get_parameter(name)
                if name in self.by_column:
                    weight[torch.from_numpy(ours)] = source[torch.from_numpy(theirs)]
                else:
                    weight.copy_(source)

    # -- trained ------------------------------------------------------------------------------

    def rules(
        self, ratings: Dataset, settings: TrainingConfig, *, share: float
    ) -> dict[str, AdamRule]:
        """The paper's L2 is Σ w² beside the mean cost of a row.

        The mean cost of a block's target is that of a row divided by the ratings of a row. A
        touched column's output weights are met in one of 1/share steps only, so each time the pull
        is that much stronger.
        """
        names = [name for name, _ in self.network.named_parameters()]
        count, rated = ratings.row_totals(self.axis)
        per_target = rated / max(1, count) if share else 1.0
        rules = {}
        for name in names:
            often = share if share and name in ("V", "P") and settings.touched_only else 1.0
            decay = _decay(name, settings) * per_target / often
            rate = _rate(name, settings) if name != "b" or self._has_biases else 0.0
            rules[name] = AdamRule(rate=rate, decay=decay)
        return rules

    def stepper(
        self, ratings: Dataset, settings: TrainingConfig, *, share: float, threads: int
    ) -> Trainer:
        return NadeTrainer(self, self.rules(ratings, settings, share=share), settings, threads)

    @torch.no_grad()
    def shared_scores(
        self, known: RowRatings, counts: IntArray, cells: Cells, trained: IntArray
    ) -> Array:
        net, group = self.network, self.group
        M, K, _ = net.input_table.shape
        parts, rows = (known.rows, known.columns, known.levels), len(counts)
        context = grouped(*parts, n_rows=rows, n_columns=M, n_levels=K)
        sums = torch.from_numpy(
            context_sum(net.input_table.detach().numpy(), context, shared=net.config.shared)
        )
        group.reduce_scatter_rows(sums)
        lo, hi = group.row_range(rows)
        states = torch.zeros(rows, net.output_table.shape[2])
        hidden = net.hidden_from_sums(sums[lo:hi], torch.from_numpy(counts[lo:hi]))
        states[lo:hi] = net.output_state(hidden)
        group.all_gather_rows(states)
        output = OutputTable(
            net.output_table.detach().numpy(), net.b.detach().numpy(), net.config.shared
        )
        return rank_scores(group, output, states.numpy(), cells, trained)


def _own(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that are a CF-NADE's."""
    others = ("gains", "ridge", "spread")
    return {name: value for name, value in fields.items() if name not in others}


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
        side: NadeComponent,
        rules: Mapping[str, AdamRule],
        settings: TrainingConfig,
        threads: int,
    ) -> None:
        network = side.network
        self._axis, self._mean = side.axis, network.config.mean_context
        self._engine = Engine(
            network.config,
            engine_arrays(network),
            {_engine_name(name): rule for name, rule in rules.items()},
            rowwise=settings.rowwise,
            touched_only=settings.touched_only,
            threads=threads,
            group=side.group,
        )

    def add_scores(self, draw: Batch, scores: Array) -> None:
        batch = draw.batches[self._axis]
        self._engine.encode(batch.context, self._scale(batch))
        self._engine.add_scores(draw.targets(self._axis), scores)

    def fit(self, draw: Batch, slopes: Array, rate: float) -> None:
        self._engine.start_step(rate)
        self._engine.fit_scores(draw.targets(self._axis), slopes)
        self._engine.fit_context(draw.batches[self._axis].context)

    def step_at_once(self, draw: Batch, rate: float) -> float | None:
        batch = draw.batches[self._axis]
        return self._engine.step(batch, scale=self._scale(batch), rate=rate)

    def _scale(self, batch: GroupedBatch) -> Array | None:
        """What multiplies the summed context of each row. Returns (B,)."""
        if self._mean is None:
            return None
        return np.asarray(np.sqrt(self._mean / np.maximum(batch.context_sizes, 1)))

    def state(self) -> dict[str, Tensor]:
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


def engine_arrays(network: CFNADENetwork) -> dict[str, Array]:
    """The memory of the network's parameters under the engine's names."""
    return {_engine_name(name): p.detach().numpy() for name, p in network.named_parameters()}


def _engine_name(name: str) -> str:
    return (_TABLES | {"b": "bias"}).get(name, name)
