"""The ridge side: a Bayesian fold-in (models/ridge.py) on rows of users or of items.

It starts from variational factor analysis (factors.py), which is a good model by itself, and is
then trained by the same cost as the other sides. u and e stay near their start.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from cfnade._typing import IntArray
from cfnade.components.base import Array, Axis, Before, other_axis
from cfnade.components.batches import Batch
from cfnade.components.gaussian import posteriors_of
from cfnade.components.optimizers import Adam
from cfnade.components.rank_posteriors import posteriors_of_ranks, solved_by_ranks
from cfnade.components.rank_scores import OutputTable, rank_scores
from cfnade.components.ridge_rows import SETTLED_SMOOTHING, RidgeWeights
from cfnade.components.trainable import Member, TorchComponent, TorchRowComponent, tables_of
from cfnade.components.variational_bayes import (
    Factors,
    continue_factor_analysis,
    fit_factor_analysis,
)
from cfnade.config import TrainingConfig
from cfnade.data.dataset import Dataset
from cfnade.distributed.process_group import SINGLE_PROCESS, ProcessGroup
from cfnade.exceptions import TrainingError
from cfnade.kernels.adam import AdamRule
from cfnade.kernels.column_groups import Cells, RowRatings
from cfnade.kernels.posterior import (
    Evidence,
    Posteriors,
    RaggedRows,
    add_state_scores,
    posterior_gradients,
    state_gradients,
)
from cfnade.kernels.sampling import GroupedBatch
from cfnade.kernels.threads import single_torch_thread, thread_count
from cfnade.models.batch import Context
from cfnade.models.config import RidgeConfig
from cfnade.models.initialization import level_steps, smoothed_log_frequencies
from cfnade.models.ridge import RidgeNetwork

DIMENSIONS = 20
NOISE = 0.71
"""σ² over τ²: how much narrower ratings are where all is known of a row."""
EVIDENCE_NOISE = 0.94
"""The least noise of a rating as evidence, over τ²: factor analysis trusts ratings too much."""
DECAY = {"u_added": 0.05, "e_added": 0.1, "W": 0.2}
"""The pull of u and e towards where they started, and of W towards zero."""
MORE_SWEEPS = 2
"""Of the analysis when ratings have come."""
PRIOR_FACTOR = 3.0
"""The prior's rate over that of the rest."""


class RidgeComponent(TorchRowComponent):
    """Loadings, evidence and output weights of columns; a row is its posterior."""

    network: RidgeNetwork
    starts_well = True
    by_column = ("u_added", "e_added", "W", "V", "b", "u_start", "e_start", "q")

    # -- made, saved, taken over --------------------------------------------------------------

    @classmethod
    def sized(cls, axis: Axis | None, ratings: Dataset, fields: Mapping[str, Any]) -> Self:
        assert axis is not None
        counts = ratings.level_counts(other_axis(axis))
        spread = fields.get("spread") or spread_of(counts)
        config = RidgeConfig(
            columns=len(counts),
            levels=counts.shape[1],
            ridge=fields.get("ridge") or DIMENSIONS,
            spread=spread,
            noise=NOISE * spread,
        )
        return cls(axis, RidgeNetwork(config))

    def start(
        self, ratings: Dataset, generator: torch.Generator, settings: TrainingConfig, before: Before
    ) -> None:
        del generator
        if before:
            raise TrainingError("a ridge side must be the first of a member")
        rows = ratings.rows(self.axis)
        D, threads = self.network.config.ridge, thread_count(None)
        factors = fit_factor_analysis(rows, D, seed=settings.seed, threads=threads, part=self.part)
        self.fill(factors, ratings.level_counts(other_axis(self.axis)), settings.smoothing)

    @torch.no_grad()
    def fill(self, factors: Factors, counts: Array, smoothing: float) -> None:
        """Parameters that say what the factors say, and of an empty row the level frequencies.

        The likelihood of a level around a prediction is Gaussian with variance σ²; scores are its
        logarithm, linear in γ m, with the column's own frequencies in place of the prior's.
        """
        net, config = self.network, self.network.config
        noise = self._evidence_noise(factors.noise)
        k = np.arange(config.levels)
        net.u_start.copy_(torch.from_numpy(factors.a / np.sqrt(noise)))
        net.q.copy_(torch.from_numpy(factors.c / noise))
        net.e_start.copy_(torch.from_numpy((k - factors.mean[:, None]) / np.sqrt(noise)))
        net.importance.copy_(torch.from_numpy(factors.importance))
        net.start_noise.fill_(factors.noise)
        total = None if self.part is None else torch.from_numpy(self.part.totals)
        means, variances = _moments(counts, smoothing, total)
        net.V[:, 1:, :-1] = torch.from_numpy(factors.a / variances[:, None]).unsqueeze(1).float()
        gap = (factors.mean - means) / variances * net.config.gain(0.0)
        sharper = 0.5 * (1 / config.noise - 1 / config.spread)
        sharpened = k * gap[:, None] - sharper * np.square(k - factors.mean[:, None])
        steps_known = level_steps(torch.from_numpy(sharpened)).float()
        steps_known[:, 0] = 0.0
        frequencies = smoothed_log_frequencies(torch.from_numpy(counts), smoothing, total)
        net.b.copy_(level_steps(frequencies).float() + steps_known)
        net.V[:, :, -1] = -steps_known  # at ω = 1 nothing is known, and the frequencies remain

    def weights(self) -> RidgeWeights:
        return RidgeWeights(self.axis, self.network.config, tables_of(self.network))

    @staticmethod
    def empty(fields: Mapping[str, Any]) -> RidgeNetwork:
        return RidgeNetwork(RidgeConfig.from_dict(fields))

    def take_over(
        self, earlier: TorchComponent, ratings: Dataset, earlier_ratings: Dataset
    ) -> None:
        """Nothing: its start takes seconds and knows the new ratings."""

    @torch.no_grad()
    def update(self, ratings: Dataset, trained: IntArray, settings: TrainingConfig) -> None:
        """The start of a few more sweeps; what training added to the last one stays added to it."""
        net, before = self.network, self._factors()
        rows, threads = ratings.rows(self.axis), thread_count(None)
        factors = continue_factor_analysis(rows, before, threads=threads, sweeps=MORE_SWEEPS)
        counts = ratings.level_counts(other_axis(self.axis))
        was, now = (RidgeComponent(self.axis, RidgeNetwork(net.config)) for _ in range(2))
        was.fill(before, trained, settings.smoothing)
        now.fill(factors.turned_like(before, counts.sum(1)), counts, settings.smoothing)
        met = torch.from_numpy(trained.sum(1) > 0)
        for name in ("V", "b"):
            added = net.get_parameter(name) - was.network.get_parameter(name)
            added[~met] = added[met].mean(0)
            net.get_parameter(name).copy_(now.network.get_parameter(name) + added)
        for name, buffer in now.network.named_buffers():
            net.get_buffer(name).copy_(buffer)

    def _factors(self) -> Factors:
        """The analysis that this side began with."""
        net = self.network
        noise = self._evidence_noise(float(net.start_noise))
        return Factors(
            a=net.u_start.numpy() * np.float32(np.sqrt(noise)),
            c=net.q.numpy() * np.float32(noise),
            mean=-net.e_start[:, 0].numpy() * np.float32(np.sqrt(noise)),
            noise=float(net.start_noise),
            importance=net.importance.numpy(),
        )

    def _evidence_noise(self, noise: float) -> float:
        """Return the noise of a rating as evidence, given that of the factor analysis."""
        return max(noise, EVIDENCE_NOISE * self.network.config.spread)

    # -- trained ------------------------------------------------------------------------------

    def rules(
        self, ratings: Dataset, settings: TrainingConfig, *, share: float
    ) -> dict[str, AdamRule]:
        del ratings, share
        rate, names = settings.learning_rate, [name for name, _ in self.network.named_parameters()]
        rules = {name: AdamRule(rate=rate, decay=2 * DECAY.get(name, 0.0)) for name in names}
        return rules | {"log_prior": AdamRule(rate=PRIOR_FACTOR * rate)}

    @torch.no_grad()
    def finish(self, ratings: Dataset, member: Member) -> None:
        """Of a row of which nothing is known the member says the columns' smoothed frequencies."""
        net, columns = self.network, torch.arange(self.network.config.columns)
        nothing = torch.zeros(0, dtype=torch.int64)
        empty = Context(torch.zeros(2, dtype=torch.int64), nothing, nothing)
        net.V[:, :, -1] = 0.0
        alike = [
            side.scores_given(empty, 0 * columns, columns)
            for side in member.components.values()
            if isinstance(side, TorchRowComponent) and side.axis == self.axis
        ]
        said = torch.stack(alike).sum(0)  # (M, K)
        counts = torch.from_numpy(ratings.level_counts(other_axis(self.axis)))
        total = None if self.part is None else torch.from_numpy(self.part.totals)
        missing = level_steps(smoothed_log_frequencies(counts, SETTLED_SMOOTHING, total) - said)
        missing[:, 0] = 0.0  # the same for all levels, which no softmax feels
        net.V[:, :, -1] = missing.to(net.V.dtype) / net.hidden(empty)[0, -1]

    def stepper(
        self, ratings: Dataset, settings: TrainingConfig, *, share: float, threads: int
    ) -> RidgeTrainer:
        return RidgeTrainer(self, self.rules(ratings, settings, share=share), threads)

    def shared_scores(
        self, known: RowRatings, counts: IntArray, cells: Cells, trained: IntArray
    ) -> Array:
        del counts
        net, parts = self.network, (known.offsets, known.columns, known.levels)
        rows = RaggedRows(*(np.array(part) for part in parts))
        posteriors = posteriors_of_ranks(rows, self.weights().evidence(), self.group)
        gain = net.config.gain(posteriors.unknown).astype(posteriors.means.dtype)[:, None]
        states = np.concatenate([posteriors.means * gain, posteriors.unknown[:, None]], 1)
        output = OutputTable(net.V.detach().numpy(), net.b.detach().numpy(), True)
        return rank_scores(self.group, output, states, cells, trained)


def spread_of(
    counts: Array, group: ProcessGroup = SINGLE_PROCESS, total: Tensor | None = None
) -> float:
    """τ² of columns with these training ratings at each level; of all ranks' together."""
    _, variances = _moments(counts, TrainingConfig.smoothing, total)
    weights = counts.sum(1) + 1e-9
    if group.size == 1:
        return max(float(np.average(variances, weights=weights)), 1e-6)
    whole = group.total(float(variances @ weights)) / group.total(float(weights.sum()))
    return max(whole, 1e-6)


def _moments(counts: Array, smoothing: float, total: Tensor | None = None) -> tuple[Array, Array]:
    """Mean and variance of each column's smoothed frequencies, in levels. Both (M,)."""
    logs = smoothed_log_frequencies(torch.from_numpy(counts), smoothing, total)
    chances = logs.exp().numpy()
    k = np.arange(counts.shape[1])
    means = chances @ k
    return means, chances @ np.square(k) - np.square(means)


class _Asked(NamedTuple):
    """What the scores of a draw were made from."""

    rows: RaggedRows
    evidence: Evidence
    posteriors: Posteriors
    gain: Array  # (B, 1) γ
    states: Array  # (B, D + 1)


class RidgeTrainer:
    """Posteriors and their gradients in compiled kernels; the tables are small."""

    def __init__(self, side: RidgeComponent, rules: Mapping[str, AdamRule], threads: int) -> None:
        self._side, self._axis, self._network = side, side.axis, side.network
        self._threads = threads
        self._group = side.group
        self._adam = Adam(side, rules)
        self._asked: _Asked | None = None

    def add_scores(self, draw: Batch, scores: Array) -> None:
        evidence, rows = self._side.weights().evidence(), _by_row(draw.batches[self._axis])
        if self._group.size == 1:
            posteriors = posteriors_of(rows, evidence, self._threads)
        else:
            posteriors = posteriors_of_ranks(rows, evidence, self._group)
        gain = self._network.config.gain(posteriors.unknown).astype(posteriors.means.dtype)[:, None]
        states = np.concatenate([posteriors.means * gain, posteriors.unknown[:, None]], 1)
        self._asked = _Asked(rows, evidence, posteriors, gain, states)
        output = self._network.V.detach().numpy(), self._network.b.detach().numpy()
        add_state_scores(self._cells(draw), states, *output, scores)

    def fit(self, draw: Batch, slopes: Array, rate: float) -> None:
        assert self._asked is not None
        rows, evidence, posteriors, gain, states = self._asked
        network, d_states = self._network, np.zeros_like(states)
        d_V, d_b = (np.zeros(p.shape, states.dtype) for p in (network.V, network.b))
        V = network.V.detach().numpy()
        state_gradients(self._cells(draw), states, V, slopes, (d_V, d_b, d_states))
        d_means = np.ascontiguousarray(d_states[:, :-1] * gain)
        if self._group.size > 1:
            posteriors, d_means = solved_by_ranks(posteriors, d_means, self._group)
        d_u, d_E = np.zeros_like(evidence.u), np.zeros_like(evidence.E)
        d_prior = np.zeros_like(evidence.prior)
        posterior_gradients(rows, evidence, posteriors, d_means, (d_u, d_E, d_prior))
        e = network.e.detach().numpy()
        grads = {
            "V": d_V,
            "b": d_b,
            "u_added": d_u + (d_E * e[:, :, None]).sum(1),
            "e_added": (d_E * evidence.u[:, None]).sum(2),
            "W": np.ascontiguousarray(d_E[:, ::-1].cumsum(1)[:, ::-1]),
            "log_prior": d_prior * evidence.prior,  # β = exp(log β)
        }
        with single_torch_thread():
            for name, grad in grads.items():
                network.get_parameter(name).grad = torch.from_numpy(grad)
            self._adam.move(rate)

    def step_at_once(self, draw: Batch, rate: float) -> float | None:
        del draw, rate
        return None

    def _cells(self, draw: Batch) -> tuple[Array, Array, Array]:
        targets = draw.targets(self._axis)
        return targets.starts, targets.rows, targets.order

    def state(self) -> dict[str, Tensor]:
        return self._adam.state()

    def restore(self, state: Mapping[str, Tensor], steps: int) -> None:
        del steps
        self._adam.restore(state)


def _by_row(batch: GroupedBatch) -> RaggedRows:
    """The contexts row by row."""
    context = batch.context
    order = np.argsort(context.rows, kind="stable")
    columns = np.repeat(np.arange(context.n_columns, dtype=np.int32), np.diff(context.starts))
    offsets = np.concatenate([[0], np.cumsum(np.bincount(context.rows, minlength=batch.size))])
    return RaggedRows(offsets, columns[order], context.levels[order])
