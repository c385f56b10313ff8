"""Plan which members to train, for data of any size and a time budget.

Factor analyses are always trained, by sampling and by variational Bayes: they take seconds, need no
tuning and are accurate on small data. The default adds a CF-NADE of items with a ridge component
and a joint one, each if its time is within the budget. A longer budget adds a CF-NADE of users,
larger joint members and further seeds, each as a stage of its own. Validation then weights the
members, drops those without a gain, and uses a stage only if it improves on the stages before it
(training/shares.py). So a longer budget never gives a worse validation score.

Times are estimates for two cores, in seconds, conservative on small data. They depend on the sizes
alone, so the same data and budget give the same members on any machine. docs/defaults.md has the
results.
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
from cfnade.recipes import default_recipe, load_recipe, member_kinds
from cfnade.training.run import Plan
from cfnade.utils.text import option
from cfnade.utils.validation import check_scalar

MAX_SECONDS, MIN_SECONDS, SECONDS_PER_RATING = 40.0, 12.0, 6e-5
"""The default budget, which grows with the number of ratings."""

AXES = ("user", "item")

CORES = 1.6
"""How much faster two cores are than one."""

PATIENCE = 3
"""Epochs without improvement after which the training of a member stops."""

JOINT = ((500, 8), (300, 8), (200, 6), (200, 3), (100, 3))
"""Hidden units and passes per epoch of a joint member; the largest within the budget is used."""

SEEDS = 3
"""Maximum members of one kind. On MovieLens 100K (paper:0, seed 0) the validation RMSE is 0.8588
with one of each, 0.8583 with three and 0.8582 with eight."""

GROWTH = 2.0
"""Minimum ratio of the times of two joint members: all together take about twice as long as the
largest."""

EARLY = 0.6
"""Fraction of its estimated time that a member beyond the default takes, as most stop early."""

SHORT = 100_000
"""Number of ratings below which a CF-NADE of one side is refitted with the validation part."""


@dataclass(frozen=True)
class DataSize:
    """Sizes of a data set, from which the plan follows."""

    users: int
    items: int
    ratings: int
    levels: int

    @classmethod
    def of(cls, ratings: Dataset) -> DataSize:
        return cls(ratings.n_users, ratings.n_items, len(ratings), len(ratings.scale))


def is_automatic(side: Any, minutes: Any, model_arguments: Mapping[str, Any]) -> bool:
    """Return whether members are planned: with side="auto", or without any model argument.

    Args:
        side: The argument of this name.
        minutes: The time budget, which is refused if members are not planned.
        model_arguments: The other arguments that describe a model, by name.
    """
    if side == "auto" and model_arguments:
        name, value = next(iter(model_arguments.items()))
        sides = [option("side", named) for named in ("user", "item", "both")]
        reason = (
            f"describes a model, and {option('side', 'auto')} chooses models itself; give "
            f"{sides[0]}, {sides[1]} or {sides[2]}, or leave it out"
        )
        raise TrainingError(f"{name} (={value!r}) {reason}", field=name, value=value, reason=reason)
    automatic = side == "auto" or (side is None and not model_arguments)
    if minutes is not None:
        if not automatic:
            reason = (
                f"is for {option('side', 'auto')}, which chooses the models to train; leave it "
                "out, or the options that describe a model"
            )
            message = f"minutes (={minutes!r}) {reason}"
            raise TrainingError(message, field="time_budget", value=minutes, reason=reason)
        check_scalar("minutes", minutes, float, Gt(0), error=TrainingError)
    return automatic


def default_seconds(size: DataSize) -> float:
    """Return the default time budget."""
    return min(MAX_SECONDS, MIN_SECONDS + SECONDS_PER_RATING * size.ratings)


def plan_members(size: DataSize, *, seconds: float, seed: int = 0) -> list[Plan]:
    """Return the members to train, in order. A longer budget keeps all those of a shorter one."""
    plans: list[Plan] = []
    candidates = _default_plans(size, seed)
    if seconds > default_seconds(size):
        candidates += _further_plans(size, candidates, seed)
    for stage, plan in enumerate(candidates, 1):
        candidate = replace(plan, stage=stage)
        if estimate_seconds(size, [*plans, candidate]) > seconds:
            break
        plans.append(candidate)
    # Two are trained at the same time: the slowest come first.
    plans.sort(key=lambda plan: -_seconds(size, plan))
    return [
        _factor_plan("user-samples", seed),
        *plans,
        *(_factor_plan(f"{axis}-factors", seed) for axis in AXES),
    ]


def estimate_seconds(size: DataSize, plans: list[Plan]) -> float:
    """Return the estimated training time of the members."""
    default = len(_default_plans(size, 0))
    costs = [_seconds(size, plan) * (EARLY if plan.stage > default else 1.0) for plan in plans]
    return _factor_seconds(size) + sum(costs)


def _default_plans(size: DataSize, seed: int) -> list[Plan]:
    """Return the members of the default budget, apart from factor analyses."""
    remaining = default_seconds(size) - _factor_seconds(size)
    plans = [_single_plan("item", size, seed)]
    if (cost := _seconds(size, plans[0])) <= remaining:
        remaining -= cost
    else:
        plans = []
    for hidden, passes in JOINT:
        joint = _joint_plan(hidden, passes, size, seed)
        if _seconds(size, joint) <= remaining:
            return [*plans, joint]
    return plans


def _further_plans(size: DataSize, default: Sequence[Plan], seed: int) -> list[Plan]:
    """Return the members of a longer budget, fastest first, then the same with further seeds."""
    singles = [_single_plan(axis, size, seed) for axis in AXES]
    sides = {plan.side for plan in default}
    more = [plan for plan in singles if plan.side not in sides]
    default_cost = max(
        (_seconds(size, plan) for plan in default if plan.side == "both"), default=0.0
    )
    limit = math.inf
    joints = [_joint_plan(hidden, passes, size, seed) for hidden, passes in JOINT]
    for joint in joints:
        if default_cost < (cost := _seconds(size, joint)) <= limit:
            more.append(joint)
            limit = cost / GROWTH
    more.sort(key=lambda plan: _seconds(size, plan))
    repeated = sorted([*singles, joints[0]], key=lambda plan: _seconds(size, plan))
    return more + [
        replace(plan, settings=replace(plan.settings, seed=seed + number))
        for number in range(1, SEEDS)
        for plan in repeated
    ]


def further_member_plans(side: str, seed: int) -> list[Plan]:
    """Return the plans of the members after the first that a side names: their default recipes."""
    recipes = [default_recipe(kind) for kind in member_kinds(side)[1:]]
    return [
        Plan(recipe.side, recipe.model, replace(recipe.training, seed=seed)) for recipe in recipes
    ]


# -- members -------------------------------------------------------------------------------------


def _factor_plan(side: str, seed: int) -> Plan:
    """Return the plan of a factor analysis, which needs no epochs."""
    return Plan(side, {}, TrainingConfig(epochs=0, average=0.0, refit=True, seed=seed))


def _single_plan(axis: str, size: DataSize, seed: int) -> Plan:
    """Return the plan of a CF-NADE of one side with a ridge component."""
    base = load_recipe("default")
    refit = size.ratings < SHORT
    settings = replace(base.training, patience=PATIENCE, refit=refit, seed=seed)
    return Plan(axis, base.model, settings)


def _joint_plan(hidden: int, passes: int, size: DataSize, seed: int) -> Plan:
    """Return the plan of a joint member.

    The ordinal cost suits five stars; on finer scales plain likelihood is better.
    """
    base = load_recipe("default-both")
    fields: dict[str, Any] = {"hidden": (hidden,)}
    if size.levels > 5:
        fields["ordinal_weight"] = 0.0
    settings = replace(base.training, passes=passes, patience=PATIENCE, seed=seed)
    return Plan("both", base.model | fields, settings)


# -- times ---------------------------------------------------------------------------------------


def _seconds(size: DataSize, plan: Plan) -> float:
    """Return the time of a member; factor analyses are counted together (_factor_seconds)."""
    if plan.side == "both":
        return _joint_seconds(size, plan.architecture["hidden"][0], plan.settings.passes)
    columns = {"item": size.users, "user": size.items}.get(plan.side)
    return 0.0 if columns is None else _single_seconds(size, columns)


def _factor_seconds(size: DataSize) -> float:
    """Return the time of all three factor analyses, with the refit."""
    return 2 * (14e-6 * size.ratings + 5.5e-4 * (size.users + size.items)) / CORES


def _single_seconds(size: DataSize, columns: int) -> float:
    """Return the time of a CF-NADE: an epoch reads the ratings, a step updates the tables."""
    runs = 2 if size.ratings < SHORT else 1
    return runs * (6e-6 * size.ratings + 2.4e-4 * columns * size.levels) / CORES


def _joint_seconds(size: DataSize, hidden: int, passes: int) -> float:
    n, width = size.ratings, (size.users + size.items) * size.levels
    seconds_per_pass = 0.17 + 2.5e-8 * n + hidden * (2.5e-10 * n + 1.5e-8 * width)
    return 12 * passes * seconds_per_pass / CORES
