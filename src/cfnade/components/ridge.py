"""A trained Bayesian fold-in (models/ridge.py) with the kernels that train it.

It starts where variational factor analysis ends (variational_bayes.py), which is a model already,
and finds in a few epochs what Gaussian ratings cannot say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from cfnade._typing import IntArray
from cfnade.components.base import (
    Array,
    ArraySpec,
    Axis,
    FitData,
    Member,
    OutputTable,
    RatingComponent,
    Trainer,
    other_axis,
)
from cfnade.components.gaussian import (
    GaussianStates,
    join_states,
    posteriors_of,
    rows_of_batch,
)
from cfnade.components.registry import register
from cfnade.config import TrainingConfig
from cfnade.data.csr import CsrRows
from cfnade.data.dataset import Dataset
from cfnade.distributed.process_group import SINGLE_PROCESS, ProcessGroup
from cfnade.exceptions import TrainingError
from cfnade.kernels.buffers import aligned_zeros, unpadded
from cfnade.kernels.posterior import (
    Evidence,
    Posteriors,
    RaggedRows,
    lower_products,
    posterior_gradients,
    solve_rows,
)
from cfnade.kernels.threads import thread_count
from cfnade.models.config import RidgeConfig

if TYPE_CHECKING:
    from torch import Tensor, nn

    from cfnade.components.batches import Batch
    from cfnade.components.optimizers import Adam
    from cfnade.components.variational_bayes import Factors
    from cfnade.kernels.adam import AdamRule

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
SETTLED_SMOOTHING = 2.0
"""Imagined ratings of a column where nothing is known of the row."""


@register("user-ridge", axis="user")
@register("item-ridge", axis="item")
class RidgeComponent(RatingComponent):
    """Loadings, evidence and output weights of columns; a row is its posterior.

    Arrays have the names of models/ridge.py, which has the equations.
    """

    axis: Axis
    config: RidgeConfig
    config_type = RidgeConfig
    partitionable = True
    starts_well = True
    kernels = "posterior"

    @classmethod
    def spec(cls, config: RidgeConfig) -> dict[str, ArraySpec]:
        M, K, D = config.columns, config.levels, config.ridge
        trained = {
            "u_added": (M, D),
            "e_added": (M, K),
            "W": (M, K, D),
            "V": (M, K, D + 1),
            "b": (M, K),
        }
        fixed = {"u_start": (M, D), "e_start": (M, K), "q": (M, D)}
        return {
            **{name: ArraySpec(shape) for name, shape in trained.items()},
            **{name: ArraySpec(shape, trained=False) for name, shape in fixed.items()},
            "log_prior": ArraySpec((D,), None),
            "importance": ArraySpec((D,), None, trained=False),
            "start_noise": ArraySpec((), None, trained=False),
        }

    # -- fitted -------------------------------------------------------------------------------

    @classmethod
    def config_for(
        cls, axis: Axis | None, ratings: Dataset, options: Mapping[str, Any]
    ) -> RidgeConfig:
        assert axis is not None
        counts = ratings.level_counts(other_axis(axis))
        spread = options.get("spread") or spread_of(counts)
        return RidgeConfig(
            columns=len(counts),
            levels=counts.shape[1],
            ridge=options.get("ridge") or DIMENSIONS,
            spread=spread,
            noise=NOISE * spread,
        )

    @classmethod
    def fit(cls, axis: Axis | None, data: FitData, options: Mapping[str, Any]) -> Self:
        from cfnade.components.variational_bayes import fit_factor_analysis

        assert axis is not None
        if data.preceding:
            raise TrainingError("a ridge component must be the first of a member")
        new = cls(cls.config_for(axis, data.dataset, options), axis=axis)
        new.partition = data.partition
        factors = fit_factor_analysis(
            data.dataset.rows(axis),
            new.config.ridge,
            seed=data.training.seed,
            threads=thread_count(None),
            part=data.partition,
        )
        counts = data.dataset.level_counts(other_axis(axis))
        new.fill(factors, counts, data.training.smoothing)
        return new

    def fill(self, factors: Factors, counts: Array, smoothing: float) -> None:
        """Set arrays that predict as the factors do, and for an empty row the level frequencies.

        The likelihood of a level around a prediction is Gaussian with variance σ²; scores are its
        logarithm, linear in γ m, with the column's own frequencies in place of the prior's.
        """
        arrays, config = self.arrays, self.config
        noise, total = self._evidence_noise(factors.noise), self._totals()
        k = np.arange(config.levels)
        arrays["u_start"][...] = factors.a / np.sqrt(noise)
        arrays["q"][...] = factors.c / noise
        arrays["e_start"][...] = (k - factors.mean[:, None]) / np.sqrt(noise)
        arrays["importance"][...] = factors.importance
        arrays["start_noise"][...] = factors.noise
        means, variances = _moments(counts, smoothing, total)
        arrays["V"][:, 1:, :-1] = (factors.a / variances[:, None])[:, None]
        gap = (factors.mean - means) / variances * config.gain(0.0)
        sharper = 0.5 * (1 / config.noise - 1 / config.spread)
        sharpened = k * gap[:, None] - sharper * np.square(k - factors.mean[:, None])
        steps_known = level_steps(sharpened).astype(np.float32)
        steps_known[:, 0] = 0.0
        frequencies = _log_frequencies(counts, smoothing, total)
        arrays["b"][...] = level_steps(frequencies).astype(np.float32) + steps_known
        arrays["V"][:, :, -1] = -steps_known  # at ω = 1 the frequencies remain

    def update(self, data: FitData, counts: IntArray) -> None:
        """Start again from a few more sweeps; what training added to the last start stays added."""
        from cfnade.components.variational_bayes import continue_factor_analysis

        before = self._factors()
        rows, threads = data.dataset.rows(self.axis), thread_count(None)
        factors = continue_factor_analysis(rows, before, threads=threads, sweeps=MORE_SWEEPS)
        now_counts = data.dataset.level_counts(other_axis(self.axis))
        was, now = (RidgeComponent(self.config, axis=self.axis) for _ in range(2))
        was.fill(before, counts, data.training.smoothing)
        turned = factors.turned_like(before, now_counts.sum(1))
        now.fill(turned, now_counts, data.training.smoothing)
        met = counts.sum(1) > 0
        for name, spec in self.spec(self.config).items():
            array, start = self.arrays[name], now.arrays[name]
            if name in ("V", "b"):
                added = array - was.arrays[name]
                added[~met] = added[met].mean(0)
                array[...] = start + added
            elif not spec.trained:
                array[...] = start

    def _factors(self) -> Factors:
        """The analysis that this component started from."""
        from cfnade.components.variational_bayes import Factors

        arrays, start_noise = self.arrays, float(self.arrays["start_noise"])
        noise = self._evidence_noise(start_noise)
        return Factors(
            a=arrays["u_start"] * np.float32(np.sqrt(noise)),
            c=arrays["q"] * np.float32(noise),
            mean=-arrays["e_start"][:, 0] * np.float32(np.sqrt(noise)),
            noise=start_noise,
            importance=arrays["importance"],
        )

    def _evidence_noise(self, noise: float) -> float:
        """Return the noise of a rating as evidence, given that of the factor analysis."""
        return max(noise, EVIDENCE_NOISE * self.config.spread)

    def _totals(self) -> IntArray | None:
        """Ratings of all columns at each level, where ranks share the columns."""
        return None if self.partition is None else self.partition.totals

    def finish(self, ratings: Dataset, member: Member) -> None:
        """Set V's ω column so that for an empty row the member has smoothed frequencies."""
        import torch

        from cfnade.models.batch import Context

        V, columns = self.arrays["V"], torch.arange(self.config.columns)
        no_ratings = torch.zeros(0, dtype=torch.int64)
        empty = Context(torch.zeros(2, dtype=torch.int64), no_ratings, no_ratings)
        V[:, :, -1] = 0.0
        components = [c for c in member.components.values() if c.axis == self.axis]
        with torch.no_grad():
            networks = [c.network for c in components if not c.closed_form]
            scores = [net.scores(net.hidden(empty), 0 * columns, columns) for net in networks]
            total = torch.stack(scores).sum(0).numpy()  # (M, K)
            unknown = self.network.hidden(empty)[0, -1].numpy()
        counts = ratings.level_counts(other_axis(self.axis))
        missing = _log_frequencies(counts, SETTLED_SMOOTHING, self._totals()) - total
        missing = level_steps(missing)
        missing[:, 0] = 0.0  # the same for all levels has no effect on a softmax
        V[:, :, -1] = missing.astype(V.dtype) / unknown

    # -- trained ------------------------------------------------------------------------------

    def rules(
        self, ratings: Dataset, settings: TrainingConfig, *, share: float
    ) -> dict[str, AdamRule]:
        from cfnade.kernels.adam import AdamRule

        del ratings, share
        rate = settings.learning_rate
        rules = {name: AdamRule(rate=rate, decay=2 * DECAY.get(name, 0.0)) for name in self.trained}
        return rules | {"log_prior": AdamRule(rate=PRIOR_FACTOR * rate)}

    def trainer(
        self, ratings: Dataset, settings: TrainingConfig, *, share: float, threads: int
    ) -> Trainer:
        return RidgeTrainer(self, self.rules(ratings, settings, share=share), threads)

    def module(self) -> nn.Module:
        from cfnade.models.ridge import RidgeNetwork

        return RidgeNetwork(self.config)

    def torch_scores(self, network: Any, batch: Batch) -> Tensor:
        from cfnade.components.optimizers import network_scores

        return network_scores(network, batch, self.axis)

    # -- scores -------------------------------------------------------------------------------

    @property
    def u(self) -> Array:
        """What a rating of each column is about. (M, D)."""
        return np.asarray(self.arrays["u_start"] + self.arrays["u_added"])

    @property
    def e(self) -> Array:
        """How far along u a rating at each level says that the row is. (M, K)."""
        return np.asarray(self.arrays["e_start"] + self.arrays["e_added"])

    def evidence(self) -> Evidence:
        u, e, evidence = self.u, self.e, self.arrays["W"].copy()  # (M, K, D)
        for k in range(1, evidence.shape[1]):  # numpy's cumsum takes three times as long
            evidence[:, k] += evidence[:, k - 1]
        for k in range(evidence.shape[1]):
            evidence[:, k] += u * e[:, k, None]
        M, D = u.shape
        products = np.empty((M, D * (D + 1) // 2), u.dtype)
        lower_products(u, self.arrays["q"], products)
        prior = np.exp(self.arrays["log_prior"])
        return Evidence(u, products, evidence, prior, self.arrays["importance"])

    def scorer(self, rows: CsrRows) -> GaussianStates:
        output = OutputTable(self.arrays["V"], self.arrays["b"], True)
        return GaussianStates(self.axis, rows, [self.evidence()], output, gain=self.config.gain)

    def vectors(self, context: Dataset, axis: Axis) -> Array | None:
        """Return the state (γ m, ω) of each row, or the output weights of each column."""
        if axis != self.axis:
            return self.arrays["V"].reshape(len(self.arrays["V"]), -1)
        return self.scorer(context.rows(axis)).all_states()


def level_steps(cumulative: Array) -> Array:
    """Return the steps between levels that add up to these scores, (M, K)."""
    return np.concatenate([cumulative[:, :1], np.diff(cumulative, axis=1)], 1)


def _log_frequencies(counts: Array, smoothing: float, total: IntArray | None) -> Array:
    """Return the smoothed log frequencies of levels of each column, (M, K)."""
    import torch

    from cfnade.models.initialization import smoothed_log_frequencies

    totals = None if total is None else torch.from_numpy(total)
    return np.asarray(smoothed_log_frequencies(torch.from_numpy(counts), smoothing, totals).numpy())


def spread_of(
    counts: Array, group: ProcessGroup = SINGLE_PROCESS, total: IntArray | None = None
) -> float:
    """Return τ² of columns with these training ratings at each level, over all ranks."""
    _, variances = _moments(counts, TrainingConfig.smoothing, total)
    weights = counts.sum(1) + 1e-9
    if group.size == 1:
        return max(float(np.average(variances, weights=weights)), 1e-6)
    mean = group.total(float(variances @ weights)) / group.total(float(weights.sum()))
    return max(mean, 1e-6)


def _moments(counts: Array, smoothing: float, total: IntArray | None = None) -> tuple[Array, Array]:
    """Return mean and variance of each column's smoothed frequencies, in levels, (M,) each."""
    import torch

    frequencies = torch.from_numpy(_log_frequencies(counts, smoothing, total)).exp().numpy()
    k = np.arange(counts.shape[1])
    means = frequencies @ k
    return means, frequencies @ np.square(k) - np.square(means)


class _Forward(NamedTuple):
    """What the scores of a batch were computed from."""

    rows: RaggedRows
    evidence: Evidence
    posteriors: Posteriors
    gain: Array  # (B,) γ
    states: Array  # (B · row stride,), padded


class RidgeTrainer(Trainer):
    """Posteriors and their gradients in compiled kernels; the tables are small."""

    optimizer: Adam

    def __init__(
        self, component: RidgeComponent, rules: Mapping[str, AdamRule], threads: int
    ) -> None:
        from cfnade.components.optimizers import Adam
        from cfnade.kernels.adam import AdamState
        from cfnade.kernels.engine import OutputPass

        self._component, self._axis = component, component.axis
        self._threads, self._group = threads, component.group
        arrays = {name: component.arrays[name] for name in ("V", "b")}
        self._output_state = AdamState(arrays, {name: rules[name] for name in arrays})
        self._output = OutputPass(
            self._output_state, "V", "b", shared=True, sparse=False, threads=threads
        )
        others = {name: rule for name, rule in rules.items() if name not in arrays}
        self.optimizer = Adam(component.network, others)
        self._forward: _Forward | None = None

    def add_scores(self, batch: Batch, scores: Array) -> None:
        evidence = self._component.evidence()
        rows = rows_of_batch(batch.batches[self._axis])
        posteriors = posteriors_of(rows, evidence, self._threads, self._group)
        gain = self._component.config.gain(posteriors.unknown).astype(posteriors.means.dtype)
        memory = self._output.memory
        memory.reserve(len(gain))
        states = aligned_zeros(gain.dtype, memory.size)
        plain = join_states([(posteriors.means, posteriors.unknown)], [gain])
        unpadded(states, memory.layout)[:] = plain
        self._forward = _Forward(rows, evidence, posteriors, gain, states)
        self._output.add_scores(states, batch.targets(self._axis), scores)

    def backward(self, batch: Batch, gradient: Array, rate: float) -> None:
        assert self._forward is not None
        rows, evidence, posteriors, gain, states = self._forward
        self._output_state.start_step(rate)
        self._output.fit_scores(states, batch.targets(self._axis), gradient)
        d_states = self._output.memory.merge(0, len(gain))
        d_means = np.ascontiguousarray(d_states[:, :-1] * gain[:, None])
        if self._group.size > 1:
            posteriors, d_means = self._solved(posteriors, d_means)
        d_u, d_E = np.zeros_like(evidence.u), np.zeros_like(evidence.E)
        d_prior = np.zeros_like(evidence.prior)
        posterior_gradients(rows, evidence, posteriors, d_means, (d_u, d_E, d_prior))
        e = self._component.e
        gradients = {
            "u_added": d_u + (d_E * e[:, :, None]).sum(1),
            "e_added": (d_E * evidence.u[:, None]).sum(2),
            "W": np.ascontiguousarray(d_E[:, ::-1].cumsum(1)[:, ::-1]),
            "log_prior": d_prior * evidence.prior,  # β = exp(log β)
        }
        self.optimizer.move(rate, gradients)

    def _solved(self, posteriors: Posteriors, slopes: Array) -> tuple[Posteriors, Array]:
        """Return Λ⁻¹ times the slopes that all ranks add up to, each rank solving its share.

        The posteriors returned have unit factors, which leave the slopes as they are.
        """
        import torch

        B, D = slopes.shape
        shared = torch.from_numpy(slopes)
        self._group.reduce_scatter_rows(shared)
        solve_rows(*self._group.row_range(B), posteriors.factors, slopes)
        self._group.all_gather_rows(shared)
        unit = np.ascontiguousarray(np.broadcast_to(np.eye(D, dtype=slopes.dtype), (B, D, D)))
        return posteriors._replace(factors=unit), slopes

    def state(self) -> dict[str, Tensor]:
        from cfnade.components.optimizers import moment_tensors

        return super().state() | moment_tensors(self._output_state)

    def restore(self, state: Mapping[str, Tensor], steps: int) -> None:
        from cfnade.components.optimizers import moment_tensors

        super().restore(state, steps)
        for name, tensor in moment_tensors(self._output_state).items():
            tensor.copy_(state[name])
        self._output_state.steps = steps
