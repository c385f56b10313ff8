"""Train on several ranks: the function that each rank runs, under any launcher."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from torch import nn

from cfnade import __version__
from cfnade.calibration.calibration import Calibration
from cfnade.components import Member
from cfnade.components.base import RatingComponent, other_axis
from cfnade.components.optimizers import network_arrays
from cfnade.components.registry import (
    component_axis,
    component_class,
    component_names,
    new_member,
)
from cfnade.components.ridge import spread_of
from cfnade.data.dataset import match_tables
from cfnade.distributed.checkpoint import PartitionedModel, described_member, write_model
from cfnade.distributed.interaction_training import train_interactions
from cfnade.distributed.process_group import ProcessGroup
from cfnade.distributed.rank_data import RankSplit
from cfnade.distributed.shards import ShardedRatings
from cfnade.distributed.validation import DistributedValidation
from cfnade.exceptions import TrainingError
from cfnade.fitted_model import FittedModel, count_training_ratings
from cfnade.implicit.set_nade_training import settings_for
from cfnade.kernels.threads import thread_count, torch_threads
from cfnade.training.callbacks import Callback, Stage, reported, reported_stage
from cfnade.training.ensemble import member_groups, member_store
from cfnade.training.member import MemberTraining, TrainedMember, check_init_model
from cfnade.training.options import RunOptions
from cfnade.training.plan import TrainingPlan
from cfnade.training.state import implicit_folder
from cfnade.training.train import IMPLICIT

if TYPE_CHECKING:
    from pathlib import Path

INTERACTIONS = Stage("set-nade")


def train_distributed(
    group: ProcessGroup,
    shards: ShardedRatings,
    out: Path,
    plan: TrainingPlan,
    options: RunOptions | None = None,
    *,
    learn_interactions: bool = False,
    facts: Mapping[str, Any] | None = None,
    with_context: bool = True,
) -> dict[str, Any]:
    """Train on the shards' training part, select by their validation part, and write the folder.

    All ranks call it with the same arguments.

    Args:
        group: The ranks.
        shards: The data. Interactions have an interaction model alone.
        out: The folder of the model, which rank 0 writes.
        plan: The members for ratings, which differ in their seeds alone.
        options: Threads, callbacks, the model to continue, and as `store` a `RankStateStore`.
        learn_interactions: Whether a model of ratings gets an interaction model, too.
        facts: Further entries of model.json.
        with_context: Whether the folder holds the ratings that the model conditions on.

    Returns:
        The entries of model.json, complete on rank 0.
    """
    began, options = time.monotonic(), options or RunOptions()
    if shards.sizes["train"] == 0:
        raise TrainingError(f"{shards.folder}: there are no ratings to train on")
    n_threads, should_stop = thread_count(options.n_threads), options.should_stop
    options = replace(
        options, n_threads=n_threads, should_stop=lambda: group.any_rank(should_stop())
    )
    implicit = len(shards.scale) == 1
    names = () if implicit else check_plan(plan)
    trainings = [] if implicit else _member_trainings(plan, options)
    stages = [stage for training in trainings for stage in training.stages]
    stages += [INTERACTIONS] if learn_interactions or implicit else []
    axes = dict.fromkeys(axis for name in names if (axis := component_axis(name)) is not None)
    with reported(options.callbacks, stages) as callback, torch_threads(n_threads):
        split = RankSplit.load(group, shards, axes or ("user",))
        trained = _train_members(trainings, split, options, callback)
        calibration: Calibration | None = None
        metrics: dict[str, Any] = {}
        if trained and split.validation is not None:
            selected = [member.selected.members[0] for member in trained]
            calibration, metrics = split.validation.calibrate(selected)
        model = _assemble(trained, plan, split)
        outcome = _outcome(trained, plan, split, options) | {"valid": metrics}
        outcome["stopped"] = len(trained) < len(trainings) or any(t.stopped for t in trained)
        if INTERACTIONS in stages and not outcome["stopped"]:
            with reported_stage(callback, INTERACTIONS):
                model, outcome["lists"] = _add_interactions(model, plan, options, callback)
            outcome["stopped"] = options.should_stop()
    outcome["seconds"] = round(max(time.monotonic() - began, outcome["seconds"]), 2)
    lasting = {name: v for name, v in outcome.items() if name not in ("stopped", "diverged")}
    write_model(model, out, calibration, lasting | dict(facts or {}), with_context=with_context)
    return outcome


def check_plan(plan: TrainingPlan) -> tuple[str, ...]:
    """Return the components of a plan's members; raise for a plan that ranks cannot train."""
    first = plan.members[0]
    names = component_names(
        first.side, ridge=first.model.get("ridge", 0), time=bool(first.model.get("time", False))
    )
    axes = {component_axis(name) for name in names}
    same_kind = len(set(member_groups(plan.members))) == 1
    partitionable = all(component_class(name).partitionable for name in names)
    if not same_kind or not partitionable or (len(axes) > 1 and names != ("user", "item")):
        sides = ",".join(dict.fromkeys(member.side for member in plan.members))
        raise TrainingError(
            f"side {sides!r} with components {' + '.join(names)} needs one process (cfnade train): "
            "several train side user, item or both, without timestamps",
            field="side",
            value=sides,
        )
    return names


# -- members --------------------------------------------------------------------------------------


class RankMemberTraining(MemberTraining):
    """The training of one member on several ranks, each with its own columns."""

    def _initial_model(self, split: Any, *, refit: bool = False) -> FittedModel:
        if refit:
            split = RankSplit.load(split.group, split.shards, split.parts, refit=True)
        first, ratings = split.sets[0], split.train
        counts = ratings.level_counts(other_axis(first.axis))
        spread = spread_of(counts, split.group, first.part.totals)
        fields = self.fields | {"spread": spread}
        member = new_member(self.components, ratings, fields, self.config, split.parts)
        if self.options.init_model is not None:
            _continue_member(member, self.options.init_model, self.number, split)
        return FittedModel(
            (member,), self.plan.side, ratings, count_training_ratings(member.axes, ratings)
        )

    def _validation_scorer(
        self, model: FittedModel, split: Any
    ) -> Callable[[nn.Module], dict[str, float]] | None:
        validation: DistributedValidation | None = split.validation
        if validation is None:
            return None
        member = model.members[0]
        return lambda network: validation.score([member.with_arrays(network_arrays(network))])

    def _identity(self, split: Any, member: Member) -> dict[str, Any]:
        sizes = {"model": described_member(member, split.parts), "ranks": split.group.size}
        return super()._identity(split, member) | sizes


def _member_trainings(plan: TrainingPlan, options: RunOptions) -> list[MemberTraining]:
    return [
        RankMemberTraining.from_plan(
            member,
            number,
            replace(options, store=member_store(options.store, number)),
            numbered=len(plan.members) > 1,
        )
        for number, member in enumerate(plan.members)
    ]


def _train_members(
    trainings: Sequence[MemberTraining], split: Any, options: RunOptions, callback: Callback
) -> list[TrainedMember]:
    """Train the members one after another; fewer if training is stopped."""
    if options.init_model is not None:
        check_init_model(trainings, options.init_model, split.shards.scale)
    trained: list[TrainedMember] = []
    for number, training in enumerate(trainings):
        if number and options.should_stop():
            break
        trained.append(training.train(split, callback))
    return trained


def _continue_member(member: Member, model: FittedModel, number: int, split: RankSplit) -> None:
    """Continue with the weights that an earlier model has for this rank's columns.

    A component that starts from a closed form keeps its own start, which knows all ratings.
    """
    for name, component in member.components.items():
        if component.starts_well:
            continue
        axis = component.axis or "user"
        columns = other_axis(axis)
        ids = split.shards.ids(columns, split.parts[axis].columns)
        places = match_tables(ids, model.context.ids(columns))
        earlier = model.members[number].components[name].take_columns(places)
        _copy_columns(component, earlier, places >= 0, split.group)


def _copy_columns(
    component: RatingComponent,
    earlier: RatingComponent,
    known: npt.NDArray[np.bool_],
    group: ProcessGroup,
) -> None:
    """Copy trained arrays; a new column gets the mean of the known ones of all ranks."""
    n_known = max(1.0, group.total(float(known.sum())))
    for name in component.trained:
        array = earlier.arrays[name]
        if component.spec(component.config)[name].column_axis is not None:
            total = np.ascontiguousarray(array[known].sum(0, dtype=np.float64))
            array[~known] = group.all_reduce(total) / n_known
        component.arrays[name][...] = array


# -- the model ------------------------------------------------------------------------------------


def _assemble(
    trained: Sequence[TrainedMember], plan: TrainingPlan, split: RankSplit
) -> PartitionedModel:
    """Return the model of all members; without members one of interactions alone."""
    if not trained:
        return PartitionedModel(IMPLICIT, (), count_training_ratings(("user",), split.train), split)
    members = tuple(member.final.members[0] for member in trained)
    return PartitionedModel(plan.members[0].side, members, trained[-1].final.training_counts, split)


def _outcome(
    trained: Sequence[TrainedMember], plan: TrainingPlan, split: RankSplit, options: RunOptions
) -> dict[str, Any]:
    """Return the entries of model.json, and how training ended."""
    shards, several = split.shards, len(trained) > 1
    records = [
        {"member": number, **record} if several else record
        for number, member in enumerate(trained)
        for record in member.state.history
    ]
    outcome: dict[str, Any] = {
        "data": {"source": "", "users": shards.n_users, "items": shards.n_items},
        "ratings": dict(shards.sizes),
        "epochs": trained[0].state.epoch if trained else 0,
        "best_epoch": trained[0].state.best_epoch if trained else 0,
        "seconds": sum(member.state.seconds for member in trained),
        "refit": any(member.refitted for member in trained),
        "context": "train + valid",
        "history": records,
        "run": _run(trained, plan, split, options),
        "diverged": next((member.diverged for member in trained if member.diverged), None),
    }
    if several:
        outcome["members"] = [
            {
                "seed": member.plan.training.seed,
                "side": member.plan.side,
                "best_epoch": member.state.best_epoch,
                "best_rmse": (member.state.best or {}).get("rmse"),
            }
            for member in trained
        ]
    return outcome


def _run(
    trained: Sequence[TrainedMember], plan: TrainingPlan, split: RankSplit, options: RunOptions
) -> dict[str, Any]:
    """Return what identifies the run."""
    if trained:
        seeds = {"seeds": len(trained)} if len(trained) > 1 else {}
        return trained[0].identity | seeds
    return {
        "side": IMPLICIT,
        "settings": {"seed": _seed(plan)},
        "data": split.data,
        "split": {"name": split.name, "fingerprint": split.fingerprint},
        "threads": options.n_threads,
        "ranks": split.group.size,
        "version": __version__,
    }


def _seed(plan: TrainingPlan) -> int:
    return plan.members[0].training.seed if plan.members else 0


def _add_interactions(
    model: PartitionedModel, plan: TrainingPlan, options: RunOptions, callback: Callback
) -> tuple[PartitionedModel, dict[str, Any]]:
    """Return the model with an interaction model, and the facts of its training."""
    began, shards = time.monotonic(), model.split.shards
    split = model.split
    if "user" not in split.parts:
        split = RankSplit.load(split.group, shards, ("user",))
    store = options.store
    if store is not None:
        store = replace(store, folder=implicit_folder(store.folder))
    n_interactions = int(shards.sizes["train"])
    settings = settings_for(shards.n_users, shards.n_items, n_interactions, seed=_seed(plan))
    interactions, facts = train_interactions(split, settings, store, callback, options.should_stop)
    seconds = {"nade": round(time.monotonic() - began, 2)}
    facts |= {"seconds": seconds, "total_seconds": seconds["nade"]}
    return replace(model, interactions=interactions, items=split.sets[0].part), facts
