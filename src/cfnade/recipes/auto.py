"""What is trained when nothing is said: which members, of which sizes, for data of any shape.

Factor analyses are always made, by sampling and by variational Bayes: they take seconds, need no
settings and are hard to beat on small data. Beside them come a CF-NADE of items with its ridge
part, a joint one and, if more time is given than usual, one of users, each if its time is still in
the budget. Validation then says what each counts, and leaves out who adds nothing
(training/shares.py).

Times are those of two cores, in seconds, too long rather than too short on small data; they follow
from the sizes alone, so the same data and budget give the same members on any machine.
docs/defaults.md shows how good it is.
"""

from __future__ import annotations

from collections.abc import Mapping
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
    """The members to try, in the order in which they are trained."""
    left = seconds - _factor_seconds(shape)
    plans = []
    if (cost := _single_seconds(shape, shape.users)) <= left:
        plans, left = [_single("item", shape, seed)], left - cost
    for hidden, passes in JOINT:
        if (cost := _joint_seconds(shape, hidden, passes)) <= left:
            plans, left = [_joint(hidden, passes, shape, seed), *plans], left - cost
            break
    if seconds > usual_seconds(shape) and _single_seconds(shape, shape.items) <= left:
        plans.append(_single("user", shape, seed))
    # Two are trained at once: those that take long come first.
    return [_made("user-samples", seed), *plans, *(_made(f"{axis}-factors", seed) for axis in AXES)]


def about(shape: Shape, plans: list[Plan]) -> float:
    """How long these take, in seconds."""
    costs = {"item": _single_seconds(shape, shape.users)}
    costs["user"] = _single_seconds(shape, shape.items)
    total = _factor_seconds(shape)
    for plan in plans:
        if plan.side == "both":
            hidden = plan.architecture["hidden"][0]
            total += _joint_seconds(shape, hidden, plan.settings.passes)
        total += costs.get(plan.side, 0.0)
    return total


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


def _factor_seconds(shape: Shape) -> float:
    """Of both; with the refit."""
    return 2 * (14e-6 * shape.ratings + 5.5e-4 * (shape.users + shape.items)) / CORES


def _single_seconds(shape: Shape, columns: int) -> float:
    """Ratings are read once an epoch, tables are moved by every step."""
    again = 2 if shape.ratings < SHORT else 1
    return again * (6e-6 * shape.ratings + 2.4e-4 * columns * shape.levels) / CORES


def _joint_seconds(shape: Shape, hidden: int, passes: int) -> float:
    n, width = shape.ratings, (shape.users + shape.items) * shape.levels
    a_pass = 0.17 + 2.5e-8 * n + hidden * (2.5e-10 * n + 1.5e-8 * width)
    return 12 * passes * a_pass / CORES
