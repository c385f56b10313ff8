"""Training steps of the joint model: a block of users × items, both sides moved by one cost."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from cfnade.data.ratings import Ratings
from cfnade.data.rows import Rows
from cfnade.data.when import When
from cfnade.kernels.block_sampling import BlockSampler
from cfnade.kernels.joint import Joint
from cfnade.kernels.step import Engine
from cfnade.models.cfnade import CFNADE
from cfnade.models.engine import network_of
from cfnade.models.joint import JointCFNADE
from cfnade.training.settings import Settings
from cfnade.training.steppers import RowIds, moments_of, rule_of, scale_of
from cfnade.training.when import TimeStepper

_TIME = "when/"


class JointStepper:
    """Block sampling, gradients and Adam of both sides in compiled kernels.

    Rows are users; the items of a block are drawn for each step.
    """

    def __init__(
        self,
        model: JointCFNADE,
        ratings: Ratings,
        settings: Settings,
        threads: int | None,
        when: When | None = None,
    ) -> None:
        by_user, by_item = ratings.rows("user"), ratings.rows("item")
        users, items = settings.block(ratings.n_users, ratings.n_items)
        shares = items / ratings.n_items, users / ratings.n_users
        engines = [
            _engine(side, rows, settings, share, threads)
            for side, rows, share in zip(
                (model.user, model.item), (by_user, by_item), shares, strict=True
            )
        ]
        self._joint = Joint(*engines)
        self._sampler = BlockSampler(
            (by_user.offsets, by_user.columns, by_user.levels),
            (by_item.offsets, by_item.columns, by_item.levels),
            columns=items,
            n_levels=by_user.n_levels,
            rate=settings.rates or (0.0, 1.0),
            threads=threads,
        )
        self._seed = settings.seed
        self._time = None
        if model.when is not None and when is not None:
            self._time = TimeStepper(model.when, when, settings)
        self._means = model.user.config.mean_context, model.item.config.mean_context

    def step(self, rows: RowIds, *, step: int, rate: float) -> float:
        block = self._sampler.draw(rows, seed=self._seed, step=step)
        if block.n_targets == 0:
            return 0.0
        counts = block.user.counts, block.item.counts
        scales = scale_of(self._means[0], counts[0]), scale_of(self._means[1], counts[1])
        scores = self._joint.scores(block, scales)
        if self._time is not None:
            self._time.add_scores(block, scores)
        cost = self._joint.cost(block, scores)
        self._joint.fit(block, cost.slopes, rate)
        if self._time is not None:
            self._time.fit(cost.slopes, rate)
        return cost.mean

    def state(self) -> dict[str, Tensor]:
        time = {} if self._time is None else self._time.state()
        return self._moments() | {f"{_TIME}{name}": tensor for name, tensor in time.items()}

    def _moments(self) -> dict[str, Tensor]:
        sides = {"user": self._joint.user, "item": self._joint.item}
        return {
            f"{side}.{name}": tensor
            for side, engine in sides.items()
            for name, tensor in moments_of(engine).items()
        }

    def restore(self, state: dict[str, Tensor], steps: int) -> None:
        for name, tensor in self._moments().items():
            tensor.copy_(state[name])
        self._joint.user.steps = self._joint.item.steps = steps
        if self._time is not None:
            own = {n.removeprefix(_TIME): t for n, t in state.items() if n.startswith(_TIME)}
            self._time.restore(own)


def _engine(
    side: CFNADE, rows: Rows, settings: Settings, share: float, threads: int | None
) -> Engine:
    """One side, its L2 in the scale of the joint cost: the mean over targets.

    `weight_decay` belongs to the mean cost of a row, which is that of a target times the ratings
    of a row. A touched column's output weights are met in one of 1/share steps only, so each time
    the pull is that much stronger.
    """
    network = network_of(side)
    per_target = int((rows.counts() > 0).sum()) / max(1, rows.n_ratings)
    rules = {}
    for name in network.named():
        rule = rule_of(name, settings)
        often = share if name == "output_table" and settings.touched_only else 1.0
        rules[name] = replace(rule, decay=rule.decay * per_target / often)
    return Engine(
        network,
        rules,
        ordinal_weight=side.config.ordinal_weight,
        rowwise=settings.rowwise,
        touched_only=settings.touched_only,
        threads=threads,
    )
