"""How CF-NADE over sets is trained: sampled contexts, closed-form gradients, Adam, averaging.

A step is four matrix products and two sparse sums. In a large catalog the softmax runs over the
`head` most popular items, all targets of the batch, and some further items sampled at random, each
of which stands for as many as there are of its kind: the sum of e^s over these is right on average.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from annotated_types import Ge, Gt, Le, Lt
from torch import Tensor

from cfnade._typing import IntArray
from cfnade.distributed.partition import ColumnPartition
from cfnade.distributed.process_group import SINGLE_PROCESS, ProcessGroup
from cfnade.exceptions import TrainingError
from cfnade.implicit.rows import InteractionRows
from cfnade.implicit.set_nade import samples_softmax
from cfnade.kernels.sparse import add_rows, sum_rows
from cfnade.kernels.sparse import transposed as transpose
from cfnade.models.config import SetNADEConfig
from cfnade.models.initialization import fill_columns_
from cfnade.models.set_nade import SetNADENetwork
from cfnade.training.loop import LoopOptions, Schedule, TrainingLoop
from cfnade.utils.validation import options

_START, _ORDER, _SAMPLE = range(3)  # streams of random numbers
_NEVER = -1e4
"""A score whose exponential is nothing beside any other."""

HEAD, TAIL = 2_500, 1_000
"""Items of a sampled softmax: the most popular ones, and some of the others."""
LARGE = 5_000_000
"""Interactions from which on networks are larger and pass over the data less often."""


@options(TrainingError, "set NADE option")
class SetNadeSettings:
    """Everything that training depends on beside the data."""

    hidden: Annotated[int, Ge(1)] = 300
    epochs: Annotated[int, Ge(1)] = 60
    batch: Annotated[int, Ge(1)] = 500
    learning_rate: Annotated[float, Gt(0)] = 3e-3
    weight_decay: Annotated[float, Ge(0)] = 4e-4
    """Times the sum of squared weights, added to the mean cost of a user."""
    context_rate: Annotated[float, Ge(0), Le(1)] = 0.5
    """A user's interactions are context with a rate sampled between this and 1."""
    target_power: Annotated[float, Ge(0), Le(1)] = 0.5
    """γ: a user's targets count |T|^-γ each."""
    average: Annotated[float, Ge(0), Lt(1)] = 0.98
    average_every: Annotated[int, Ge(1)] = 2
    falls: bool = False
    """Whether the rate falls to a twentieth over the second half; else it stays."""
    head: Annotated[int, Ge(0)] = 0
    """Most popular items that are in every softmax; 0: all are, and nothing is sampled."""
    tail: Annotated[int, Ge(1)] = 1000
    """Further items sampled for each batch."""
    check_every: Annotated[int, Ge(1)] = 5
    """Epochs between two validations."""
    patience: Annotated[int, Ge(1)] = 2
    """Validations without a gain after which training stops."""
    seed: Annotated[int, Ge(0)] = 0

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def settings_for(
    users: int, items: int, interactions: int, *, seed: int, epochs: int | None = None
) -> SetNadeSettings:
    """Return what suits data of this shape."""
    large = interactions > LARGE
    most_epochs = 6 if large else 60
    return SetNadeSettings(
        hidden=500 if large else 300,
        epochs=most_epochs if epochs is None else min(most_epochs, epochs),
        batch=1000 if large else int(np.clip(users // 10, 50, 500)),
        learning_rate=2e-3 if large else 3e-3,
        weight_decay=min(0.01, 185 / max(1, interactions)),
        average_every=5 if large else 2,
        falls=large,
        head=HEAD if samples_softmax(items, interactions) else 0,
        tail=TAIL,
        check_every=1 if large else 5,
        patience=3 if large else 2,
        seed=seed,
    )


class Hidden(NamedTuple):
    """h(C) of some users, and what a gradient needs of it."""

    state: Tensor  # (B, H)
    factor: Tensor  # (B, 1)


def largest_scores(scores: Tensor, group: ProcessGroup) -> npt.NDArray[Any]:
    """Return the largest score of each row (B, S) over all ranks, (B,)."""
    tops = np.zeros((group.size, len(scores)), scores.numpy().dtype)
    tops[group.rank] = scores.max(1).values.numpy()
    return np.asarray(group.all_reduce(tops).max(0))


def hidden_states(
    network: SetNADENetwork, context: InteractionRows, group: ProcessGroup = SINGLE_PROCESS
) -> Hidden:
    """As SetNADENetwork.hidden, without its gradient; for rows that a group's ranks share."""
    table = network.W.detach()[0]  # (M, H)
    sums = torch.from_numpy(
        sum_rows(context.indptr, context.columns, context.weights, table.numpy())
    )
    total = np.bincount(context.rows, context.weights, minlength=len(context)).astype(np.float64)
    group.reduce_scatter_rows(sums)
    group.all_gather_rows(sums)
    group.all_reduce(total)
    factor = np.sqrt(np.divide(network.config.mean_count, total, out=0 * total, where=total > 0))
    scale = torch.from_numpy(factor.astype(np.float32)).unsqueeze(1)
    return Hidden(sums.mul_(scale).add_(network.c.detach()).tanh_(), scale)


def initial_network(
    rows: InteractionRows, settings: SetNadeSettings, part: ColumnPartition | None = None
) -> SetNADENetwork:
    """Return a network with its start values: biases are log frequencies of items."""
    M, H = rows.n_columns, settings.hidden
    columns, group = (M, SINGLE_PROCESS) if part is None else (part.n_columns, part.group)
    active = max(1, int(np.count_nonzero(rows.counts if part is None else part.rows.sizes)))
    mean_count = max(1e-6, group.total(float(rows.weights.sum(dtype=np.float64))) / active)
    network = SetNADENetwork(SetNADEConfig(columns=M, levels=1, hidden=H, mean_count=mean_count))
    generator = torch.Generator().manual_seed(settings.seed)
    bound = math.sqrt(6 / (columns + H))

    def sample(shape: tuple[int, ...]) -> Tensor:
        return torch.empty(shape).uniform_(-bound, bound, generator=generator)

    counts = np.bincount(rows.columns, rows.weights, minlength=M)
    with torch.no_grad():
        for table in (*network.W, network.V):
            fill_columns_(table, sample, part and part.initialized_columns)
        mean = counts.mean() if part is None else group.total(float(counts.sum())) / columns
        bias = np.log(counts + 1) - np.log(max(mean, 1e-6))
        network.b.copy_(torch.from_numpy(bias))
        if part is not None:
            network.b[len(part.columns) :] = _NEVER  # a padding column without interactions
    return network


class SetBatch(NamedTuple):
    """Contexts and targets of a step."""

    context: InteractionRows
    rows: IntArray  # (T,) row of each target
    columns: IntArray  # (T,)
    weights: Tensor  # (T,) w_t |T|^-γ


def sample_batch(
    rows: InteractionRows,
    users: IntArray,
    settings: SetNadeSettings,
    step: int,
    part: ColumnPartition | None = None,
) -> SetBatch:
    """Return the step of that number for these users."""
    rng = np.random.default_rng((settings.seed, _SAMPLE, step))
    selected = rows.select(users)
    rates = rng.uniform(settings.context_rate, 1, len(users))
    if part is None:
        numbers = rng.random(len(selected.columns))
    else:  # those of whole rows, of which these are some places
        sizes = part.rows.sizes[users].astype(np.int64)
        starts = np.cumsum(sizes) - sizes
        places = starts[selected.rows] + part.rows.positions[rows.entries(users)]
        numbers = rng.random(int(sizes.sum()))[places]
    in_context = numbers < rates[selected.rows]
    targets = selected.rows[~in_context].astype(np.int64)
    counts = np.bincount(targets, minlength=len(users))
    counts = np.maximum(counts if part is None else part.group.all_reduce(counts), 1)
    weights = selected.weights[~in_context] * counts[targets] ** -settings.target_power
    return SetBatch(
        selected.where(in_context),
        targets,
        selected.columns[~in_context].astype(np.int64),
        torch.from_numpy(weights.astype(np.float32)),
    )


class Candidates(NamedTuple):
    """The items of a softmax, and how much each stands for."""

    items: IntArray  # (S,)
    log_weights: Tensor  # (S,)
    place: IntArray  # (M,) of each item among them, -1 for none


class CandidateSampler:
    """Samples the candidates of steps; all items if there is no head."""

    def __init__(
        self, rows: InteractionRows, settings: SetNadeSettings, part: ColumnPartition | None = None
    ) -> None:
        self._settings, self._M = settings, rows.n_columns
        if part is not None and settings.head:  # its part of both
            share = len(part.columns) / part.n_columns
            head, tail = (max(1, round(n * share)) for n in (settings.head, settings.tail))
            self._settings = replace(settings, head=head, tail=tail)
        counts = np.bincount(rows.columns, minlength=self._M)
        self._order = np.argsort(-counts, kind="stable")
        every = np.arange(self._M)
        self._all = Candidates(every, torch.zeros(self._M), every)

    def sample(self, targets: IntArray, step: int) -> Candidates:
        """Return the candidates of a step with these targets."""
        head, tail = self._settings.head, self._settings.tail
        if head == 0:
            return self._all
        place = np.full(self._M, -1)
        place[self._order[:head]] = 0
        extra = np.unique(targets[place[targets] < 0])
        place[extra] = 0
        remaining = self._order[place[self._order] < 0]
        if len(remaining) <= tail:  # all would be there, and all of them stand in their own order
            return self._all
        rng = np.random.default_rng((self._settings.seed, _ORDER, step, 1))
        sampled = remaining[rng.choice(len(remaining), tail, replace=False)]
        items = np.concatenate([self._order[:head], extra, sampled])
        logs = torch.zeros(len(items))
        logs[head + len(extra) :] = math.log(len(remaining) / tail)
        place[items] = np.arange(len(items))
        return Candidates(items, logs, place)


def softmax_over_ranks(scores: Tensor, group: ProcessGroup) -> Tensor:
    """Return the softmax over the items of all ranks. scores (B, S) may be used up."""
    if group.size == 1:
        return torch.softmax(scores, 1)
    top = torch.from_numpy(largest_scores(scores, group)).unsqueeze(1)
    weights = scores.sub_(top).exp_()
    total = group.all_reduce(weights.sum(1, dtype=torch.float64).numpy())
    return weights.div_(torch.from_numpy(total).float().unsqueeze(1))


def write_gradients(
    network: SetNADENetwork,
    batch: SetBatch,
    candidates: Candidates,
    group: ProcessGroup = SINGLE_PROCESS,
) -> float:
    """Write the gradient of the cost into the parameters' `grad`. Return the cost."""
    context, B = batch.context, len(batch.context)
    exact = len(candidates.items) == network.config.columns
    items = torch.from_numpy(candidates.items)
    hidden = hidden_states(network, context, group)
    V = network.V.detach() if exact else network.V.detach()[items]
    bias = network.b.detach() if exact else network.b.detach()[items] + candidates.log_weights
    probabilities = torch.addmm(bias, hidden.state, V.T)
    places = candidates.place[context.columns]
    seen = places >= 0
    masked = torch.from_numpy(context.rows[seen].astype(np.int64)), torch.from_numpy(places[seen])
    probabilities[masked] = _NEVER
    probabilities = softmax_over_ranks(probabilities, group)
    targets = torch.from_numpy(batch.rows), torch.from_numpy(candidates.place[batch.columns])
    cost = -float((batch.weights * probabilities[targets].clamp(min=1e-30).log()).sum()) / B
    totals = torch.zeros(B).index_add_(0, targets[0], batch.weights)
    group.all_reduce(totals.numpy())
    gradient = probabilities.mul_(totals.unsqueeze(1) / B)
    gradient[targets] -= batch.weights / B
    _backward(network, batch, hidden, gradient, V, None if exact else items, group)
    return group.total(cost)


def _backward(
    network: SetNADENetwork,
    batch: SetBatch,
    hidden: Hidden,
    gradient: Tensor,
    V: Tensor,
    items: Tensor | None,
    group: ProcessGroup,
) -> None:
    """From the gradient (B, S) of the scores to that of all parameters."""
    grads = {name: tensor.grad for name, tensor in network.named_parameters()}
    gV, gb, gW, gc = (_grad(grads[name]) for name in "VbWc")
    if items is None:
        torch.mm(gradient.T, hidden.state, out=gV)
        torch.sum(gradient, 0, out=gb)
    else:
        gV.zero_()[items] = gradient.T @ hidden.state
        gb.zero_()[items] = gradient.sum(0)
    below = gradient @ V
    group.reduce_scatter_rows(below)
    group.all_gather_rows(below)
    below.mul_(1 - hidden.state * hidden.state)
    torch.sum(below, 0, out=gc)
    context, table = batch.context, gW[0]
    by_item = transpose(context.rows, context.columns, context.weights, len(table))
    add_rows(*by_item, below.mul_(hidden.factor).numpy(), table.zero_().numpy())


def _grad(tensor: Tensor | None) -> Tensor:
    assert tensor is not None
    return tensor


class FusedAdam:
    """torch.optim.Adam(fused=True), bit for bit. Its constructor imports torch._dynamo, which takes
    two seconds of processor time."""

    def __init__(self, groups: Sequence[tuple[list[Tensor], float]]) -> None:
        """Take groups of parameters with their weight decay."""
        self._groups = groups
        self.state = [
            {
                "step": torch.zeros(()),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }
            for parameters, _ in groups
            for parameter in parameters
        ]

    @torch.no_grad()
    def step(self, learning_rate: float) -> None:
        """Move all parameters by their gradients."""
        first = 0
        for parameters, decay in self._groups:
            states = self.state[first : first + len(parameters)]
            first += len(parameters)
            steps, means, squares = (
                [state[name] for state in states] for name in ("step", "exp_avg", "exp_avg_sq")
            )
            torch._foreach_add_(steps, 1)
            torch._fused_adam_(
                parameters,
                [_grad(parameter.grad) for parameter in parameters],
                means,
                squares,
                [],
                steps,
                lr=learning_rate,
                beta1=0.9,
                beta2=0.999,
                weight_decay=decay,
                eps=1e-8,
                amsgrad=False,
                maximize=False,
            )


class SampledStep(NamedTuple):
    """All that a step learns from."""

    batch: SetBatch
    candidates: Candidates

    @property
    def n_rows(self) -> int:
        return len(self.batch.context)


class SetNadeStepper:
    """Makes the steps of a network: gradient and Adam."""

    def __init__(
        self,
        network: SetNADENetwork,
        settings: SetNadeSettings,
        group: ProcessGroup = SINGLE_PROCESS,
    ) -> None:
        self.network, self._settings, self._group = network, settings, group
        W, V, c, b = (network.get_parameter(name) for name in "WVcb")
        decay = 2 * settings.weight_decay  # of the sum of squares
        self._adam = FusedAdam([([W, V], decay), ([c, b], 0.0)])

    def step(self, batch: SampledStep, *, rate: float) -> float:
        """Make a step with a factor of the learning rate. Return its cost."""
        for tensor in self.network.parameters():
            if tensor.grad is None:
                tensor.grad = torch.zeros_like(tensor)
        cost = write_gradients(self.network, *batch, self._group)
        self._adam.step(self._settings.learning_rate * rate)
        return cost

    def state(self) -> dict[str, Tensor]:
        """Return what a resumed run needs besides the parameters."""
        return {
            f"{number}/{name}": tensor
            for number, moments in enumerate(self._adam.state)
            for name, tensor in moments.items()
        }

    def restore(self, state: Mapping[str, Tensor], steps: int) -> None:
        """Continue from a state."""
        del steps
        for number, moments in enumerate(self._adam.state):
            self._adam.state[number] = {name: state[f"{number}/{name}"] for name in moments}


class SetBatchSampler:
    """Samples the steps of an epoch: users in random order, in batches of equal size."""

    def __init__(
        self, rows: InteractionRows, settings: SetNadeSettings, part: ColumnPartition | None = None
    ) -> None:
        counts = rows.counts if part is None else part.rows.sizes
        self._users = np.flatnonzero(counts > 1)  # one interaction leaves no context
        self._rows, self._settings, self._part = rows, settings, part
        self._candidates = CandidateSampler(rows, settings, part)
        self.rows_per_epoch = len(self._users)
        self.n_steps = max(1, -(-self.rows_per_epoch // settings.batch))

    def epoch(self, epoch: int, *, first_row: int = 0) -> Iterator[SampledStep]:
        """Yield the steps from a row of the epoch's order on.

        There are none if there is nothing to learn but log frequencies.
        """
        rng = np.random.default_rng((self._settings.seed, _ORDER, epoch, 0))
        batches = np.array_split(rng.permutation(self._users), self.n_steps)
        end = 0
        for step, users in enumerate(batches, epoch * self.n_steps):
            end += len(users)
            if end > first_row:
                batch = sample_batch(self._rows, np.sort(users), self._settings, step, self._part)
                yield SampledStep(batch, self._candidates.sample(batch.columns, step))


class HalfLinear(Schedule):
    """The learning rate stays over the first half of the steps, then falls to a twentieth."""

    def factor(self, step: int, rate_cuts: int = 0) -> float:
        del rate_cuts
        return min(1.0, max(0.05, 2 * (1 - step / self.n_steps)))


def training_loop(
    rows: InteractionRows,
    settings: SetNadeSettings,
    part: ColumnPartition | None = None,
    **options: Any,
) -> TrainingLoop:
    """Return the loop that trains a network; options are those of TrainingLoop.

    Validation gives the NDCG ("ndcg") of averaged weights.
    """
    group = SINGLE_PROCESS if part is None else part.group
    stepper = SetNadeStepper(initial_network(rows, settings, part), settings, group)
    sampler = SetBatchSampler(rows, settings, part)
    schedule = (HalfLinear if settings.falls else Schedule)(
        kind="constant",
        n_steps=settings.epochs * sampler.n_steps,
        learning_rate=settings.learning_rate,
        patience=settings.patience * settings.check_every,
    )
    loop_options = LoopOptions(
        epochs=settings.epochs,
        schedule=schedule,
        average=settings.average,
        average_every=settings.average_every,
        average_start=True,
        metrics=("ndcg",),
        criterion="ndcg",
        validate_every=settings.check_every,
    )
    return TrainingLoop(stepper.network, sampler, stepper, loop_options, **options)
