"""How CF-NADE of sets is trained: drawn contexts, hand-written gradients, Adam, averaged weights.

A step is four matrix products and two sparse sums. In a large catalogue the softmax is taken over
the `head` most picked items, all targets of the batch, and some further items drawn at random, each
of which stands for as many as there are of its kind: e^s summed over these is right on average.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from annotated_types import Ge, Gt, Le, Lt
from torch import Tensor

from cfnade._typing import IntArray
from cfnade.choice.picks import Picks
from cfnade.choice.set_states import Hidden, hidden_of, largest_of
from cfnade.exceptions import TrainingError
from cfnade.group import ALONE, Group
from cfnade.kernels.ragged_sums import add_rows, transposed
from cfnade.models.choice_network import ChoiceNetwork
from cfnade.models.config import ChoiceConfig
from cfnade.models.initialise import fill_columns_
from cfnade.sides.column_part import ColumnPart
from cfnade.utils.validation import options

_START, _ORDER, _DRAW = range(3)  # streams of random numbers
_NEVER = -1e4
"""A score whose exponential is nothing beside any other."""


@options(TrainingError, "choice setting")
class ChoiceSettings:
    """Everything that training depends on beside the picks."""

    hidden: Annotated[int, Ge(1)] = 300
    epochs: Annotated[int, Ge(1)] = 60
    batch: Annotated[int, Ge(1)] = 500
    learning_rate: Annotated[float, Gt(0)] = 3e-3
    weight_decay: Annotated[float, Ge(0)] = 4e-4
    """Times the sum of squared weights, added to the mean cost of a person."""
    context_rate: Annotated[float, Ge(0), Le(1)] = 0.5
    """A person's picks are context with a rate drawn between this and 1."""
    target_power: Annotated[float, Ge(0), Le(1)] = 0.5
    """γ: a person's targets count |T|^-γ each."""
    average: Annotated[float, Ge(0), Lt(1)] = 0.98
    average_every: Annotated[int, Ge(1)] = 2
    falls: bool = False
    """Whether the rate falls to a twentieth over the second half; else it stays."""
    head: Annotated[int, Ge(0)] = 0
    """Most picked items that are in every softmax; 0: all are, and nothing is sampled."""
    tail: Annotated[int, Ge(1)] = 1000
    """Further items drawn for each batch."""
    seed: Annotated[int, Ge(0)] = 0

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def started(
    picks: Picks, levels: int, settings: ChoiceSettings, part: ColumnPart | None = None
) -> ChoiceNetwork:
    """A network with its start values: biases say how often an item is picked at all."""
    M, H = picks.n_columns, settings.hidden
    whole, group = (M, ALONE) if part is None else (part.whole, part.group)
    people = max(1, int(np.count_nonzero(picks.counts if part is None else part.rows.counts)))
    usual = max(1e-6, group.total(float(picks.weights.sum(dtype=np.float64))) / people)
    network = ChoiceNetwork(ChoiceConfig(columns=M, levels=levels, hidden=H, usual=usual))
    generator = torch.Generator().manual_seed(settings.seed)
    bound = math.sqrt(6 / (whole + H))

    def draw(shape: tuple[int, ...]) -> Tensor:
        return torch.empty(shape).uniform_(-bound, bound, generator=generator)

    counts = np.bincount(picks.columns, picks.weights, minlength=M)
    with torch.no_grad():
        for table in (*network.W, network.V):
            fill_columns_(table, draw, part and part.kept)
        mean = counts.mean() if part is None else group.total(float(counts.sum())) / whole
        bias = np.log(counts + 1) - np.log(max(mean, 1e-6))
        network.b.copy_(torch.from_numpy(bias))
        if part is not None:
            network.b[len(part.columns) :] = _NEVER  # nobody's column, which nobody picks
    return network


class ChoiceDraw(NamedTuple):
    """Contexts and targets of a step."""

    context: Picks
    rows: IntArray  # (T,) whose each target is
    columns: IntArray  # (T,)
    weights: Tensor  # (T,) w_t |T|^-γ


def draw(
    picks: Picks,
    people: IntArray,
    settings: ChoiceSettings,
    step: int,
    part: ColumnPart | None = None,
) -> ChoiceDraw:
    """The step of that number, of these people."""
    rng = np.random.default_rng((settings.seed, _DRAW, step))
    mine = picks.take(people)
    rates = rng.uniform(settings.context_rate, 1, len(people))
    if part is None:
        numbers = rng.random(len(mine.columns))
    else:  # those of whole rows, of which these are some places
        sizes = part.rows.counts[people].astype(np.int64)
        starts = np.cumsum(sizes) - sizes
        places = starts[mine.rows] + part.rows.places[picks.positions(people)]
        numbers = rng.random(int(sizes.sum()))[places]
    known = numbers < rates[mine.rows]
    rows = mine.rows[~known].astype(np.int64)
    counts = np.bincount(rows, minlength=len(people))
    counts = np.maximum(counts if part is None else part.group.sum_(counts), 1)
    weights = mine.weights[~known] * counts[rows] ** -settings.target_power
    drawn = torch.from_numpy(weights.astype(np.float32))
    return ChoiceDraw(mine.where(known), rows, mine.columns[~known].astype(np.int64), drawn)


class Candidates(NamedTuple):
    """The items of a softmax, and how much each stands for."""

    items: IntArray  # (S,)
    log_weights: Tensor  # (S,)
    place: IntArray  # (M,) of each item among them, -1 for none


class Pool:
    """Draws the candidates of steps; all items if there is no head."""

    def __init__(
        self, picks: Picks, settings: ChoiceSettings, part: ColumnPart | None = None
    ) -> None:
        self._settings, self._M = settings, picks.n_columns
        if part is not None and settings.head:  # its part of both
            share = len(part.columns) / part.whole
            own = max(1, round(settings.head * share)), max(1, round(settings.tail * share))
            self._settings = replace(settings, head=own[0], tail=own[1])
        counts = np.bincount(picks.columns, minlength=self._M)
        self._order = np.argsort(-counts, kind="stable")
        everything = np.arange(self._M)
        self._all = Candidates(everything, torch.zeros(self._M), everything)

    def draw(self, targets: IntArray, step: int) -> Candidates:
        """Of a step with these targets."""
        head, tail = self._settings.head, self._settings.tail
        if head == 0:
            return self._all
        place = np.full(self._M, -1)
        place[self._order[:head]] = 0
        own = np.unique(targets[place[targets] < 0])
        place[own] = 0
        rest = self._order[place[self._order] < 0]
        if len(rest) <= tail:  # all would be there; and all of them stand in their own order
            return self._all
        rng = np.random.default_rng((self._settings.seed, _ORDER, step, 1))
        drawn = rest[rng.choice(len(rest), tail, replace=False)]
        items = np.concatenate([self._order[:head], own, drawn])
        logs = torch.zeros(len(items))
        logs[head + len(own) :] = math.log(len(rest) / tail)
        place[items] = np.arange(len(items))
        return Candidates(items, logs, place)


def softmax_of(scores: Tensor, group: Group) -> Tensor:
    """Over the items of all ranks. scores (B, S) may be used up."""
    if group.size == 1:
        return torch.softmax(scores, 1)
    top = torch.from_numpy(largest_of(scores, group)).unsqueeze(1)
    weights = scores.sub_(top).exp_()
    total = group.sum_(weights.sum(1, dtype=torch.float64).numpy())
    return weights.div_(torch.from_numpy(total).float().unsqueeze(1))


def set_slopes(
    network: ChoiceNetwork, drawn: ChoiceDraw, candidates: Candidates, group: Group = ALONE
) -> float:
    """Write the gradient of the cost into the parameters' `grad`. Returns the cost."""
    context, B = drawn.context, len(drawn.context)
    whole = len(candidates.items) == network.config.columns
    items = torch.from_numpy(candidates.items)
    hidden = hidden_of(network, context, group)
    V = network.V.detach() if whole else network.V.detach()[items]
    bias = network.b.detach() if whole else network.b.detach()[items] + candidates.log_weights
    chances = torch.addmm(bias, hidden.state, V.T)
    places = candidates.place[context.columns]
    seen = places >= 0
    masked = torch.from_numpy(context.rows[seen].astype(np.int64)), torch.from_numpy(places[seen])
    chances[masked] = _NEVER
    chances = softmax_of(chances, group)
    cells = torch.from_numpy(drawn.rows), torch.from_numpy(candidates.place[drawn.columns])
    cost = -float((drawn.weights * chances[cells].clamp(min=1e-30).log()).sum()) / B
    rows = torch.zeros(B).index_add_(0, cells[0], drawn.weights)
    group.sum_(rows.numpy())
    slopes = chances.mul_(rows.unsqueeze(1) / B)
    slopes[cells] -= drawn.weights / B
    _back(network, drawn, hidden, slopes, V, None if whole else items, group)
    return group.total(cost)


def _back(
    network: ChoiceNetwork,
    drawn: ChoiceDraw,
    hidden: Hidden,
    slopes: Tensor,
    V: Tensor,
    items: Tensor | None,
    group: Group,
) -> None:
    """From the slopes (B, S) of scores to those of all parameters."""
    grads = {name: tensor.grad for name, tensor in network.named_parameters()}
    gV, gb, gW, gc = (_grad(grads[name]) for name in "VbWc")
    if items is None:
        torch.mm(slopes.T, hidden.state, out=gV)
        torch.sum(slopes, 0, out=gb)
    else:
        gV.zero_()[items] = slopes.T @ hidden.state
        gb.zero_()[items] = slopes.sum(0)
    below = slopes @ V
    group.scatter_sum(below)
    group.gather(below)
    below.mul_(1 - hidden.state * hidden.state)
    torch.sum(below, 0, out=gc)
    context = drawn.context
    table = gW.view(-1, network.config.hidden)
    turned = transposed(context.rows, hidden.places, context.weights, len(table))
    add_rows(*turned, below.mul_(hidden.factor).numpy(), table.zero_().numpy())


def _grad(tensor: Tensor | None) -> Tensor:
    assert tensor is not None
    return tensor


class FusedAdam:
    """torch.optim.Adam(fused=True), bit for bit. Its constructor imports torch._dynamo, which takes
    two seconds of processor time."""

    def __init__(self, groups: Sequence[tuple[list[Tensor], float]]) -> None:
        """Groups are parameters and their weight decay."""
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


class ChoiceTrainer:
    """A network on its way; `state` holds all that it remembers beside the network."""

    def __init__(
        self,
        picks: Picks,
        levels: int,
        settings: ChoiceSettings,
        part: ColumnPart | None = None,
    ) -> None:
        self.picks, self.settings, self._part = picks, settings, part
        self._group = ALONE if part is None else part.group
        self.network = started(picks, levels, settings, part)
        self.average = {name: t.detach().clone() for name, t in self.network.named_parameters()}
        for tensor in self.network.parameters():
            tensor.grad = torch.zeros_like(tensor)
        self._pool = Pool(picks, settings, part)
        counts = picks.counts if part is None else part.rows.counts
        self._people = np.flatnonzero(counts > 1)  # one pick leaves nothing to be known by
        W, V, c, b = (getattr(self.network, name) for name in "WVcb")
        decay = 2 * settings.weight_decay  # of the sum of squares
        self._adam = FusedAdam([([W, V], decay), ([c, b], 0.0)])
        self._best: dict[str, Tensor] = {}
        self.step = 0

    @property
    def steps_an_epoch(self) -> int:
        return max(1, -(-len(self._people) // self.settings.batch))

    def epoch(self, number: int) -> float:
        """All people once, in an order of that epoch's own. Returns the mean cost."""
        if not len(self._people):
            return 0.0  # the start, how often items are picked, is all that there is to learn
        order = np.random.default_rng((self.settings.seed, _ORDER, number, 0)).permutation(
            self._people
        )
        batches = np.array_split(order, self.steps_an_epoch)
        return float(np.mean([self._move(np.sort(batch)) for batch in batches]))

    def _move(self, people: IntArray) -> float:
        drawn = draw(self.picks, people, self.settings, self.step, self._part)
        candidates = self._pool.draw(drawn.columns, self.step)
        cost = set_slopes(self.network, drawn, candidates, self._group)
        self._adam.step(self.settings.learning_rate * self._factor())
        self.step += 1
        if self.step % self.settings.average_every == 0:
            self._update_average()
        return cost

    def _factor(self) -> float:
        left = 1 - self.step / (self.settings.epochs * self.steps_an_epoch)
        return min(1.0, max(0.05, 2 * left)) if self.settings.falls else 1.0

    def _update_average(self) -> None:
        updates = self.step / self.settings.average_every
        keep = min(self.settings.average, (1 + updates) / (4 + updates))
        with torch.no_grad():
            for name, tensor in self.network.named_parameters():
                self.average[name].lerp_(tensor, 1 - keep)

    def averaged(self) -> ChoiceNetwork:
        """A network with the averaged weights; it shares their memory."""
        return self._with(self.average)

    def remember(self) -> None:
        """Keep a copy of the averaged weights as the best."""
        self._best = {name: tensor.clone() for name, tensor in self.average.items()}

    def best(self) -> ChoiceNetwork:
        """A network with the best weights, or the averaged ones if none were remembered."""
        return self._with(self._best or self.average)

    def _with(self, tensors: Mapping[str, Tensor]) -> ChoiceNetwork:
        with torch.device("meta"):
            network = ChoiceNetwork(self.network.config)
        network.load_state_dict(dict(tensors), assign=True)
        return network.requires_grad_(False)

    # -- state --------------------------------------------------------------------------------

    def state(self) -> dict[str, Tensor]:
        """All that an interrupted run needs to go on with."""
        parts = {
            "model": dict(self.network.state_dict()),
            "average": self.average,
            "best": self._best,
            **{f"adam{number}": one for number, one in enumerate(self._adam.state)},
        }
        return {f"{part}/{name}": t for part, held in parts.items() for name, t in held.items()}

    def restore(self, state: Mapping[str, Tensor], step: int) -> None:
        """Go on from a state after that many steps."""
        parts: dict[str, dict[str, Tensor]] = {}
        for key, tensor in state.items():
            part, _, name = key.partition("/")
            parts.setdefault(part, {})[name] = tensor
        self.network.load_state_dict(parts["model"])
        self.average, self._best = parts["average"], parts.get("best", {})
        self._adam.state = [parts[f"adam{number}"] for number in range(len(self._adam.state))]
        self.step = step
