"""Plan what to train: named components, or what suits data of any size and a time budget.

A plan without arguments always has factor analyses, by sampling and by variational Bayes: they take
seconds, need no tuning and are accurate on small data. The default adds a CF-NADE of items with a
ridge component and a joint one, each if its time is within the budget. A longer budget adds a
CF-NADE of users, larger joint members and further seeds, each as a stage of its own. Validation
then weights the members, drops those without a gain, and uses a stage only if it improves on the
stages before it (ensemble.py). So a longer budget never gives a worse validation score.

Times are estimates for two cores, in seconds, conservative on small data. They depend on the sizes
alone, so the same data and budget give the same members on any machine. docs/results/defaults.md
has the results.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from annotated_types import Ge, Gt

from cfnade.components.base import Member
from cfnade.config import TrainingConfig
from cfnade.data.dataset import Dataset
from cfnade.exceptions import TrainingError
from cfnade.fitted_model import FittedModel
from cfnade.implicit.validation import RankingMetric
from cfnade.recipes import default_recipe, load_recipe, member_kinds
from cfnade.training.implicit import ImplicitPlan, implicit_plan
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

SAMPLES = 10
"""Samples of the factor analysis by sampling."""

SEEDS = 8
"""Maximum members of one kind; all are in memory until the best are selected. On MovieLens 100K
(paper:0, seed 0) the validation RMSE is 0.8588 with one of each, 0.8583 with three and 0.8582 with
eight."""

GROWTH = 2.0
"""Minimum ratio of the times of two joint members: all together take about twice as long as the
largest."""

EARLY = 0.6
"""Fraction of its estimated time that a member beyond the default takes, as most stop early."""

TYPICAL = 0.4
"""Typical time of members relative to their estimates, which a budget needs as upper bounds. On
MovieLens 100K the default members take about 6 of 15 seconds."""

SHORT = 100_000
"""Number of ratings below which a CF-NADE of one side is refitted with the validation part."""


IMPLICIT_FRACTION = 1 / 3
"""Maximum time of an interaction model that was not asked for, relative to that of the members."""
MIN_IMPLICIT_SECONDS = 3.0
"""With less time, an interaction model is trained only if asked for."""


@dataclass(frozen=True)
class MemberPlan:
    """One member of the ensemble: its components, their fields, and how they are trained."""

    side: str
    """Components, such as "user" or "both"."""
    model: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the components other than their sizes, and `time`: whether to use timestamps."""
    training: TrainingConfig = field(default_factory=TrainingConfig)
    stage: int = 0
    """If members are selected, those of a stage are used only if they improve the validation score
    of the members of the stages before."""

    @property
    def label(self) -> str:
        """The side, and the samples of a factor analysis."""
        samples = self.model.get("samples", 1)
        return self.side if samples == 1 else f"{self.side} ({samples} samples)"


@dataclass(frozen=True)
class TrainingPlan:
    """What is trained: members of an ensemble for ratings, and a model for interactions."""

    members: tuple[MemberPlan, ...] = ()
    ensemble_weighting: Literal["equal", "fit", "select"] = "equal"
    """Weights of the members: equal, found by validation, or found with members left out that
    improve little. Members that differ in their seeds alone have equal weights."""
    implicit: ImplicitPlan | None = None
    """How the interaction model is trained; None: there is none."""

    def with_metric(self, metric: Any = "ndcg", k: int = 20) -> TrainingPlan:
        """Return the plan with another metric that selects the interaction model."""
        ranking_metric = RankingMetric(metric=metric, k=k)
        if self.implicit is None:
            return self
        return replace(self, implicit=replace(self.implicit, metric=ranking_metric))


def plan_side(
    side: str,
    model: Mapping[str, Any] | None = None,
    training: TrainingConfig | None = None,
    *,
    n_seeds: int = 1,
    implicit: ImplicitPlan | None = None,
) -> TrainingPlan:
    """Return the plan of a named side, such as "user", "both" or "both,user".

    Args:
        side: Kinds of members, separated by commas.
        model: Fields of the components of the first kind; the others have those of their recipes.
        training: Training options of the first kind.
        n_seeds: Members of the first kind, with successive seeds.
        implicit: How the interaction model is trained; None: there is none.
    """
    check_scalar("n_seeds", n_seeds, int, Ge(1), error=TrainingError)
    kinds, config = member_kinds(side), training or TrainingConfig()
    first = [
        MemberPlan(kinds[0], model or {}, replace(config, seed=config.seed + number))
        for number in range(n_seeds)
    ]
    further = [
        MemberPlan(recipe.side, recipe.model, replace(recipe.training, seed=config.seed))
        for recipe in map(default_recipe, kinds[1:])
    ]
    return TrainingPlan((*first, *further), "fit" if further else "equal", implicit)


def plan_automatic(
    ratings: Dataset,
    *,
    time_budget: float | None = None,
    seed: int = 0,
    refit: bool = False,
    learn_interactions: bool | None = None,
) -> TrainingPlan:
    """Return the plan for a data set and a time budget in minutes.

    Args:
        ratings: The training part.
        time_budget: Minutes on two cores; None for at most 40 seconds.
        seed: Seed of all members.
        refit: Train all members again with the validation part.
        learn_interactions: See `plan_implicit`.
    """
    size = DataSize.from_ratings(ratings)
    seconds = default_seconds(size) if time_budget is None else 60 * time_budget
    members = plan_members(size, seconds=seconds, seed=seed)
    if refit:
        members = [
            replace(member, training=replace(member.training, refit=True)) for member in members
        ]
    implicit = plan_implicit(ratings, learn_interactions, members, automatic=True, seed=seed)
    return TrainingPlan(tuple(members), "select", implicit)


def plan_implicit(
    ratings: Dataset,
    learn_interactions: Any,
    members: Sequence[MemberPlan],
    *,
    automatic: bool = False,
    seed: int = 0,
) -> ImplicitPlan | None:
    """Return how an interaction model is trained beside members; None: it is not.

    Args:
        ratings: The training part.
        learn_interactions: True, False, or None: with an automatic plan, if it takes little time
            compared with its members.
        members: The members of the plan.
        automatic: Whether they were planned automatically.
        seed: Seed of the interaction model.
    """
    if learn_interactions is not None and not isinstance(learn_interactions, bool):
        raise TrainingError(
            f"learn_interactions (={learn_interactions!r}) must be True, False or None"
        )
    uses_time = any(member.model.get("time") or "time" in member.side for member in members)
    if learn_interactions and uses_time:
        raise TrainingError(
            f"{option('learn_interactions', True)}: a model whose predictions depend on time makes "
            "no lists; leave one out"
        )
    if learn_interactions is False or (learn_interactions is None and not automatic):
        return None
    plan = implicit_plan(ratings, seed=seed)
    allowed = IMPLICIT_FRACTION * estimate_seconds(DataSize.from_ratings(ratings), members)
    if learn_interactions is None and plan.seconds > allowed:
        return replace(plan, seconds=allowed) if allowed >= MIN_IMPLICIT_SECONDS else None
    return plan


def plan_continuation(
    model: FittedModel, training: Mapping[str, Any] | None = None
) -> TrainingPlan:
    """Return the plan that continues every member of a model.

    Args:
        model: A trained model; its members keep their components and fields.
        training: Training options that replace those of the earlier training.
    """
    metadata = model.metadata
    sides = [member["side"] for member in metadata.get("members", [])] or [model.side]
    if len(sides) != len(model.members):
        raise TrainingError(
            f"the model's metadata names members {', '.join(sides)}, but it has "
            f"{len(model.members)}; train it again from the start"
        )
    members = []
    for number, (side, member) in enumerate(zip(sides, model.members, strict=True)):
        saved = metadata.get("run", {}).get("settings") if number == 0 else None
        config = default_recipe(side).training if saved is None else TrainingConfig.from_dict(saved)
        schedule = "linear" if config.schedule == "plateau" else config.schedule
        earlier = replace(config, refit=False, patience=None, schedule=schedule)
        options = earlier.to_dict() | dict(training or {})
        members.append(MemberPlan(side, member_fields(member), TrainingConfig.from_dict(options)))
    return TrainingPlan(tuple(members), "fit" if len(members) > 1 else "equal")


def member_fields(member: Member) -> dict[str, Any]:
    """Return the fields of all components; where several have one, that of the first counts."""
    fields: dict[str, Any] = {}
    for component in reversed(member.to_dict().values()):
        fields |= component
    return fields


# -- automatic plans -------------------------------------------------------------------------------


@dataclass(frozen=True)
class DataSize:
    """Sizes of a data set, from which the plan follows."""

    users: int
    items: int
    ratings: int
    levels: int

    @classmethod
    def from_ratings(cls, ratings: Dataset) -> DataSize:
        return cls(ratings.n_users, ratings.n_items, len(ratings), len(ratings.scale))


def is_automatic(side: Any, time_budget: Any, model_arguments: Mapping[str, Any]) -> bool:
    """Return whether members are planned: with side="auto", or without any model argument.

    Args:
        side: The argument of this name.
        time_budget: The time budget, which is refused if members are not planned.
        model_arguments: The other arguments that describe a model, by name.
    """
    if side == "auto" and model_arguments:
        name, value = next(iter(model_arguments.items()))
        sides = [option("side", side) for side in ("user", "item", "both")]
        reason = (
            f"describes a model, and {option('side', 'auto')} chooses models itself; give "
            f"{sides[0]}, {sides[1]} or {sides[2]}, or leave it out"
        )
        raise TrainingError(f"{name} (={value!r}) {reason}", field=name, value=value, reason=reason)
    automatic = side == "auto" or (side is None and not model_arguments)
    if time_budget is not None:
        if not automatic:
            reason = (
                f"is for {option('side', 'auto')}, which chooses the models to train; leave it "
                "out, or the options that describe a model"
            )
            message = f"time_budget (={time_budget!r}) {reason}"
            raise TrainingError(message, field="time_budget", value=time_budget, reason=reason)
        check_scalar("time_budget", time_budget, float, Gt(0), error=TrainingError)
    return automatic


def default_seconds(size: DataSize) -> float:
    """Return the default time budget."""
    return min(MAX_SECONDS, MIN_SECONDS + SECONDS_PER_RATING * size.ratings)


def plan_members(size: DataSize, *, seconds: float, seed: int = 0) -> list[MemberPlan]:
    """Return the members to train, in order. A longer budget keeps all those of a shorter one."""
    plans: list[MemberPlan] = []
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
        _factor_plan("user-factors", seed, samples=SAMPLES),
        *plans,
        *(_factor_plan(f"{axis}-factors", seed) for axis in AXES),
    ]


def estimate_seconds(size: DataSize, plans: Sequence[MemberPlan]) -> float:
    """Return the estimated training time of the members."""
    default = len(_default_plans(size, 0))
    costs = [_seconds(size, plan) * (EARLY if plan.stage > default else 1.0) for plan in plans]
    return _factor_seconds(size) + sum(costs)


def member_seconds(ratings: Dataset, plan: TrainingPlan) -> list[float]:
    """Return the typical time of each member of an automatic plan, without its refit.

    Zeros for other plans: recipes differ too much for one estimate.
    """
    if plan.ensemble_weighting != "select":
        return [0.0] * len(plan.members)
    size = DataSize.from_ratings(ratings)
    analysis = _factor_seconds(size) / (1 + len(AXES))
    seconds = [_seconds(size, member) or analysis for member in plan.members]
    return [
        TYPICAL * estimate / (1 + member.training.refit)
        for estimate, member in zip(seconds, plan.members, strict=True)
    ]


def _default_plans(size: DataSize, seed: int) -> list[MemberPlan]:
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


def _further_plans(size: DataSize, default: Sequence[MemberPlan], seed: int) -> list[MemberPlan]:
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
        replace(plan, training=replace(plan.training, seed=seed + number))
        for number in range(1, SEEDS)
        for plan in repeated
    ]


# -- members -------------------------------------------------------------------------------------


def _factor_plan(side: str, seed: int, **options: Any) -> MemberPlan:
    """Return the plan of a factor analysis, which needs no epochs."""
    return MemberPlan(side, options, TrainingConfig(epochs=0, average=0.0, refit=True, seed=seed))


def _single_plan(axis: str, size: DataSize, seed: int) -> MemberPlan:
    """Return the plan of a CF-NADE of one side with a ridge component."""
    base = load_recipe("default")
    refit = size.ratings < SHORT
    settings = replace(base.training, patience=PATIENCE, refit=refit, seed=seed)
    return MemberPlan(axis, base.model, settings)


def _joint_plan(hidden: int, passes: int, size: DataSize, seed: int) -> MemberPlan:
    """Return the plan of a joint member.

    The ordinal cost suits five stars; on finer scales plain likelihood is better.
    """
    base = load_recipe("default-both")
    fields: dict[str, Any] = {"hidden": (hidden,)}
    if size.levels > 5:
        fields["ordinal_weight"] = 0.0
    settings = replace(base.training, passes=passes, patience=PATIENCE, seed=seed)
    return MemberPlan("both", base.model | fields, settings)


# -- times ---------------------------------------------------------------------------------------


def _seconds(size: DataSize, plan: MemberPlan) -> float:
    """Return the time of a member; factor analyses are counted together (_factor_seconds)."""
    if plan.side == "both":
        return _joint_seconds(size, plan.model["hidden"][0], plan.training.passes)
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
