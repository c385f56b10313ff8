"""The members that are trained by default, for data of any shape and a budget of time.

Factor analyses are always trained, by sampling and by variational Bayes: they take seconds, need no
settings and are hard to beat on small data. The default adds a CF-NADE of items with its ridge part
and a joint one, each if its time is in the budget. A longer budget adds a CF-NADE of users, larger
joint ones and further seeds, each as a stage of its own. Validation then weighs the members, leaves
out who adds nothing, and uses a stage only if it is better than those before it
(training/shares.py). So more time never gives a worse validation score.

Times are those of two cores, in seconds, too long rather than too short; they follow from the sizes
alone, so the same data and budget give the same members on any machine. docs/defaults.md shows how
good it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from annotated_types import Gt

from cfnade.config import TrainingConfig
from cfnade.data.dataset import Dataset
from cfnade.exceptions import TrainingError
from cfnade.recipes import load_recipe
from cfnade.training.run import Plan
from cfnade.utils.validation import check_scalar

MOST_SECONDS, LEAST_SECONDS, SECONDS_A_RATING = 40.0, 12.0, 6e-5
"""The budget, if none is given: small data need not wait."""

AXES = ("user", "item")

CORES = 1.6
"""How much faster two cores are than one."""

PATIENCE = 3
"""Epochs without a gain after which a member stops."""

JOINT = ((500, 8), (300, 8), (200, 6), (200, 3), (100, 3))
"""Hidden units and passes an epoch of a joint member, the largest that the budget allows."""

SEEDS = 3
"""Members of one kind, at most, however long the budget is. On MovieLens 100K (paper:0, seed 0) the
validation RMSE is 0.8588 with one of each, 0.8583 with three and 0.8582 with eight."""

GROWTH = 2.0
"""How many times as long each larger joint member takes, at least: all together take about twice as
long as the largest."""

EARLY = 0.6
"""Part of its estimated time that a member beyond the default takes: most stop early."""

SHORT = 100_000
"""Ratings below which a single CF-NADE is trained again with the validation part, too."""


@dataclass(frozen=True)
class Shape:
    """What settings follow from."""

    users: int
    items: int
    ratings: int
    levels: int

    @classmethod
    def of(cls, ratings: Dataset) -> Shape:
        return cls(ratings.n_users, ratings.n_items, len(ratings), len(ratings.scale))


def is_automatic(side: Any, minutes: Any, said: Mapping[str, Any]) -> bool:
    """Whether members are to be chosen: where nothing is said of them, or side="auto".

    said are the other arguments that say what a model is; minutes are for choosing alone.
    """
    if side == "auto" and said:
        name, value = next(iter(said.items()))
        raise TrainingError(
            f'{name} (={value!r}) is for a side that is named, and side="auto" chooses sides and '
            'settings by itself; give side="user", side="item" or side="both", or leave it out'
        )
    automatic = side == "auto" or (side is None and not said)
    if minutes is not None:
        if not automatic:
            raise TrainingError(
                f'minutes (={minutes!r}) is for side="auto", which chooses what to train; leave it '
                "out, or what you say of the model"
            )
        check_scalar("minutes", minutes, float, Gt(0), error=TrainingError)
    return automatic


def usual_seconds(shape: Shape) -> float:
    """How long is spent on data of that shape if nothing is said."""
    return min(MOST_SECONDS, LEAST_SECONDS + SECONDS_A_RATING * shape.ratings)


def plans_for(shape: Shape, *, seconds: float, seed: int = 0) -> list[Plan]:
    """The members to train, in this order. A longer budget keeps all those of a shorter one."""
    plans: list[Plan] = []
    candidates = _usual(shape, seed)
    if seconds > usual_seconds(shape):
        candidates += _further(shape, candidates, seed)
    for stage, plan in enumerate(candidates, 1):
        candidate = replace(plan, stage=stage)
        if about(shape, [*plans, candidate]) > seconds:
            break
        plans.append(candidate)
    # Two are trained at once: those that take long come first.
    plans.sort(key=lambda plan: -_seconds(shape, plan))
    return [_made("user-samples", seed), *plans, *(_made(f"{axis}-factors", seed) for axis in AXES)]


def about(shape: Shape, plans: list[Plan]) -> float:
    """How long these take, in seconds."""
    usual = len(_usual(shape, 0))
    costs = [_seconds(shape, plan) * (EARLY if plan.stage > usual else 1.0) for plan in plans]
    return _factor_seconds(shape) + sum(costs)


def _usual(shape: Shape, seed: int) -> list[Plan]:
    """What the default trains beside factor analyses."""
    left = usual_seconds(shape) - _factor_seconds(shape)
    plans = [_single("item", shape, seed)]
    if (cost := _seconds(shape, plans[0])) <= left:
        left -= cost
    else:
        plans = []
    for hidden, passes in JOINT:
        joint = _joint(hidden, passes, shape, seed)
        if _seconds(shape, joint) <= left:
            return [*plans, joint]
    return plans


def _further(shape: Shape, usual: Sequence[Plan], seed: int) -> list[Plan]:
    """What more time is for: what takes least comes first, then the same from further seeds."""
    singles = [_single(axis, shape, seed) for axis in AXES]
    sides = {plan.side for plan in usual}
    more = [plan for plan in singles if plan.side not in sides]
    least = max((_seconds(shape, plan) for plan in usual if plan.side == "both"), default=0.0)
    most = math.inf
    joints = [_joint(hidden, passes, shape, seed) for hidden, passes in JOINT]
    for joint in joints:
        if least < (cost := _seconds(shape, joint)) <= most:
            more.append(joint)
            most = cost / GROWTH
    more.sort(key=lambda plan: _seconds(shape, plan))
    again = sorted([*singles, joints[0]], key=lambda plan: _seconds(shape, plan))
    return more + [
        replace(plan, settings=replace(plan.settings, seed=seed + number))
        for number in range(1, SEEDS)
        for plan in again
    ]


# -- members -------------------------------------------------------------------------------------


def _made(side: str, seed: int) -> Plan:
    """A factor analysis, which is made and not trained."""
    return Plan(side, {}, TrainingConfig(epochs=0, average=0.0, refit=True, seed=seed))


def _single(axis: str, shape: Shape, seed: int) -> Plan:
    """A CF-NADE with its ridge part."""
    base = load_recipe("default")
    refit = shape.ratings < SHORT
    settings = replace(base.training, patience=PATIENCE, refit=refit, seed=seed)
    return Plan(axis, base.model, settings)


def _joint(hidden: int, passes: int, shape: Shape, seed: int) -> Plan:
    """Both sides. The ordinal cost suits five stars; on finer scales plain likelihood is better."""
    base = load_recipe("default-both")
    fields: dict[str, Any] = {"hidden": (hidden,)}
    if shape.levels > 5:
        fields["ordinal_weight"] = 0.0
    settings = replace(base.training, passes=passes, patience=PATIENCE, seed=seed)
    return Plan("both", base.model | fields, settings)


# -- their times ---------------------------------------------------------------------------------


def _seconds(shape: Shape, plan: Plan) -> float:
    """Of a member; factor analyses count together (_factor_seconds)."""
    if plan.side == "both":
        return _joint_seconds(shape, plan.architecture["hidden"][0], plan.settings.passes)
    columns = {"item": shape.users, "user": shape.items}.get(plan.side)
    return 0.0 if columns is None else _single_seconds(shape, columns)


def _factor_seconds(shape: Shape) -> float:
    """Of all three, with the refit."""
    return 2 * (14e-6 * shape.ratings + 5.5e-4 * (shape.users + shape.items)) / CORES


def _single_seconds(shape: Shape, columns: int) -> float:
    """Ratings are read once an epoch, tables are moved by every step."""
    again = 2 if shape.ratings < SHORT else 1
    return again * (6e-6 * shape.ratings + 2.4e-4 * columns * shape.levels) / CORES


def _joint_seconds(shape: Shape, hidden: int, passes: int) -> float:
    n, width = shape.ratings, (shape.users + shape.items) * shape.levels
    a_pass = 0.17 + 2.5e-8 * n + hidden * (2.5e-10 * n + 1.5e-8 * width)
    return 12 * passes * a_pass / CORES
