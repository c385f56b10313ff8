"""Users and items together: two CF-NADEs whose scores are added before the softmax.

For user u and item i, with u's other ratings and i's other ratings known, level k scores

    s^k = Σ_{j≤k} [ V^U_{i,j}·h_u + b^U_{i,j} ]  +  Σ_{j≤k} [ V^I_{u,j}·h_i + b^I_{u,j} ]

and p(r_ui = k) is the softmax of s over levels. h_u is Eq. 2 and 9 of the user-based model for u's
ratings, h_i those of the item-based model for i's. Both sides are trained on one cost, so each
learns what the other leaves over. Neither context holds r_ui itself.

The prior of the levels is in both sides' biases; at the start it is taken out of the item side's.
If the model also knows when a rating was given, that adds to the scores too (when.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from cfnade.errors import ModelError
from cfnade.models.batch import Batch, Context
from cfnade.models.cfnade import CFNADE
from cfnade.models.checks import require, require_shape
from cfnade.models.config import CFNADEConfig
from cfnade.models.costs import hybrid_cost
from cfnade.models.distribution import Distribution
from cfnade.models.initialise import smoothed_log_frequencies, steps
from cfnade.models.when import TimePart

_MOST_FEATURES = 10_000


@dataclass(frozen=True)
class JointConfig:
    """The fields of both sides. Rows of the one are columns of the other."""

    user: CFNADEConfig
    item: CFNADEConfig
    features: int = 0
    """How many time features a prediction needs; 0 is none: then it does not ask when."""

    def __post_init__(self) -> None:
        whole = isinstance(self.features, int) and not isinstance(self.features, bool)
        require(
            whole and 0 <= self.features <= _MOST_FEATURES,
            f"features (={self.features!r}) must be a whole number in 0..{_MOST_FEATURES}",
        )
        for name in ("levels", "ordinal_weight", "shared"):
            sides = getattr(self.user, name), getattr(self.item, name)
            require(
                sides[0] == sides[1],
                f"{name} is {sides[0]} on the user side and {sides[1]} on the item side; scores "
                "that are added need the same on both",
            )

    @property
    def levels(self) -> int:
        return self.user.levels

    def to_dict(self) -> dict[str, Any]:
        """Plain values only, so that it can be written as JSON."""
        sides = {"user": self.user.to_dict(), "item": self.item.to_dict()}
        return sides | {"features": self.features}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> JointConfig:
        require(
            set(values) | {"features"} == {"user", "item", "features"},
            f"a joint model has the sides user and item, and features, not {sorted(values)}",
        )
        user, item = (CFNADEConfig.from_dict(values[side]) for side in ("user", "item"))
        return cls(user, item, values.get("features", 0))


@dataclass(frozen=True)
class JointBatch:
    """The same targets from both sides, in one order: rows of the one are columns of the other."""

    user: Batch
    item: Batch
    features: Tensor | None = None  # (T, F) of the targets, for a model that knows time

    def check(self, config: JointConfig) -> None:
        """Refuse what a side refuses (a target in its context), and sides that do not agree."""
        for side, fields in ((self.user, config.user), (self.item, config.item)):
            side.check(columns=fields.columns, levels=fields.levels)
        require_shape("item targets", self.item.targets.rows, tuple(self.user.targets.rows.shape))
        require(
            torch.equal(self.user.targets.levels, self.item.targets.levels),
            "the targets' levels differ between the sides; both must list the same ratings",
        )


class JointCFNADE(nn.Module):
    """A user-based and an item-based CF-NADE, trained as one."""

    def __init__(self, user: CFNADE, item: CFNADE, features: int = 0) -> None:
        super().__init__()
        self.config = JointConfig(user.config, item.config, features)
        self.user, self.item = user, item
        shared = user.config.shared
        self.when = TimePart(features, self.config.levels, shared=shared) if features else None

    @classmethod
    def from_config(cls, config: JointConfig) -> JointCFNADE:
        sides = CFNADE.from_config(config.user), CFNADE.from_config(config.item)
        return cls(*sides, config.features)

    def scores(self, batch: JointBatch) -> Tensor:
        """Scores of all levels of the batch's targets. Returns (T, K)."""
        scores = _scores(self.user, batch.user) + _scores(self.item, batch.item)
        if self.when is None:
            return scores
        if batch.features is None:
            raise ModelError("this model knows time; the batch needs the features of its targets")
        added: Tensor = self.when(batch.features)
        return scores + added

    def cost(self, batch: JointBatch) -> Tensor:
        """Eq. 18, the mean over targets."""
        batch.check(self.config)
        levels = batch.user.targets.levels
        require(levels.numel() > 0, "the batch has 0 targets; a cost needs at least one")
        return hybrid_cost(self.scores(batch), levels, self.config.user.ordinal_weight).mean()

    def predict(self, batch: JointBatch, values: Tensor | Sequence[float]) -> Distribution:
        """What the batch's targets are given both contexts; their levels are not looked at."""
        return Distribution.from_scores(self.scores(batch), values)

    def initialise(self, generator: torch.Generator) -> None:
        """Draw the weights of both sides, clear the biases."""
        self.user.initialise(generator)
        self.item.initialise(generator)
        if self.when is not None:
            self.when.initialise(generator)

    def initialise_biases(self, items: Tensor, users: Tensor, *, smoothing: float) -> None:
        """Biases from the training ratings of items (M, K) and users (N, K) at each level.

        The item side starts from how a user differs from everyone: the prior counts once.
        """
        self.user.initialise_biases(items, smoothing=smoothing)
        self.item.initialise_biases(users, smoothing=smoothing)
        nobody = torch.zeros(1, self.config.levels, dtype=users.dtype)
        everyone = smoothed_log_frequencies(torch.cat([users, nobody]), smoothing)[-1:]  # (1, K)
        with torch.no_grad():
            self.item.b.sub_(steps(everyone) if self.config.item.shared else everyone)


def _scores(side: CFNADE, batch: Batch) -> Tensor:
    context: Context = batch.context
    return side.scores(side.hidden(context), batch.targets.rows, batch.targets.columns)
