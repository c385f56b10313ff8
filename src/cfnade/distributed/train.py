"""Train on several ranks: what each of them runs, under any launcher."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from torch import nn

from cfnade import __version__
from cfnade.calibration.calibration import Calibration
from cfnade.components import Member
from cfnade.components.base import other_axis
from cfnade.components.new_member import (
    component_axis,
    component_class,
    component_names,
    new_member,
)
from cfnade.components.optimizers import member_network, network_arrays
from cfnade.components.ridge import spread_of
from cfnade.data.dataset import Dataset, make_dataset
from cfnade.distributed.checkpoint import PartitionedModel, write_model
from cfnade.distributed.interaction_training import train_interactions
from cfnade.distributed.load_partition import load_partition
from cfnade.distributed.process_group import ProcessGroup
from cfnade.distributed.rank_data import RankData, both_ways, load_rank_data
from cfnade.distributed.shards import ShardedRatings
from cfnade.distributed.state import RankStateStore
from cfnade.distributed.validation import DistributedValidation
from cfnade.exceptions import TrainingError
from cfnade.implicit.set_nade_training import settings_for
from cfnade.kernels.threads import thread_count, torch_threads
from cfnade.training.callbacks import Callback, Stage, reported, reported_stage
from cfnade.training.ensemble import NumberedRecords, member_groups
from cfnade.training.loop import DivergedError, LoopOptions, TrainingLoop
from cfnade.training.member import copy_known_weights, finish_member
from cfnade.training.plan import MemberPlan, TrainingPlan
from cfnade.training.state import LoopState, implicit_folder, member_folder
from cfnade.training.steps import make_stepper
from cfnade.training.train import IMPLICIT

INTERACTIONS = Stage("set-nade")


@dataclass(frozen=True)
class RankOptions:
    """How ranks train, as opposed to what they train."""

    n_threads: int | None = None
    store: RankStateStore | None = None
    """Where states are saved; None: they are not."""
    callbacks: Sequence[Callback] = ()
    should_stop: Callable[[], bool] = lambda: False
    init_model: Path | None = None
    """Folder of a model to continue; each rank reads the weights of its own columns."""


def train_distributed(
    group: ProcessGroup,
    shards: ShardedRatings,
    out: Path,
    plan: TrainingPlan,
    options: RankOptions | None = None,
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
        options: Threads, callbacks, the model to continue, the resumable state.
        learn_interactions: Whether a model of ratings gets an interaction model, too.
        facts: Further entries of model.json.
        with_context: Whether the folder holds the ratings that the model conditions on.

    Returns:
        The entries of model.json, complete on rank 0.
    """
    began = time.monotonic()
    if shards.sizes["train"] == 0:
        raise TrainingError(f"{shards.folder}: there are no ratings to train on")
    options = options or RankOptions()
    implicit, n_threads = len(shards.scale) == 1, thread_count(options.n_threads)
    stages = [] if implicit else [_stage(plan, number) for number in range(len(plan.members))]
    stages += [replace(stage, refit=True) for stage in stages if plan.members[0].training.refit]
    stages += [INTERACTIONS] if learn_interactions or implicit else []
    with reported(options.callbacks, stages) as callback, torch_threads(n_threads):
        training = _RankTraining(group, shards, plan, options, n_threads, callback)
        if implicit:
            model, calibration, outcome = training.without_members()
        else:
            model, calibration, outcome = training.train_members()
        if INTERACTIONS in stages and not outcome["stopped"]:
            with reported_stage(callback, INTERACTIONS):
                model, outcome["lists"] = training.add_interactions(model)
            outcome["stopped"] = training.should_stop()
    outcome["seconds"] = round(max(time.monotonic() - began, outcome["seconds"]), 2)
    lasting = {name: v for name, v in outcome.items() if name not in ("stopped", "diverged")}
    write_model(model, out, calibration, lasting | dict(facts or {}), with_context=with_context)
    return outcome


def _stage(plan: TrainingPlan, number: int) -> Stage:
    """Return what callbacks call the training of a member."""
    member = plan.members[number]
    config = member.training
    return Stage(member.side, member=number, epochs=config.epochs or None, patience=config.patience)


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


class _Trained(NamedTuple):
    """A member, and how its training ended."""

    member: Member
    state: LoopState
    identity: dict[str, Any]
    diverged: str | None


class _RankTraining:
    """The training of a plan on one of the ranks."""

    def __init__(
        self,
        group: ProcessGroup,
        shards: ShardedRatings,
        plan: TrainingPlan,
        options: RankOptions,
        n_threads: int,
        callback: Callback,
    ) -> None:
        self._group, self._shards, self._plan, self._options = group, shards, plan, options
        self._n_threads, self._callback = n_threads, callback

    def should_stop(self) -> bool:
        """Return whether a rank was asked to stop."""
        return self._group.any_rank(self._options.should_stop())

    def without_members(self) -> tuple[PartitionedModel, None, dict[str, Any]]:
        """Return a model that has no members for ratings."""
        data = load_rank_data(self._group, self._shards, "user")
        seed = self._plan.members[0].training.seed if self._plan.members else 0
        run = self._run() | {"side": IMPLICIT, "settings": {"seed": seed}}
        outcome = self._outcome(LoopState(), {}) | {"run": run, "diverged": None, "stopped": False}
        return PartitionedModel(IMPLICIT, (), data, self._shards, None), None, outcome

    def train_members(self) -> tuple[PartitionedModel, Calibration | None, dict[str, Any]]:
        """Train the members one after another, select by validation, and refit them."""
        names = check_plan(self._plan)
        sets = self._load(names)
        validation = DistributedValidation(*sets) if self._shards.sizes["valid"] else None
        trained: list[_Trained] = []
        for number, plan in enumerate(self._plan.members):
            if number and self.should_stop():
                break
            with reported_stage(self._callback, _stage(self._plan, number)):
                trained.append(self._train_member(number, plan, names, sets, validation))
        first = trained[0]
        epochs = [member.training.epochs for member in self._plan.members]
        ended = [t.state.epoch >= most for t, most in zip(trained, epochs, strict=False)]
        stopped = len(trained) < len(epochs) or (not all(ended) and self.should_stop())
        members = tuple(t.member for t in trained)
        model = self._model(members, sets)
        calibration: Calibration | None = None
        metrics: dict[str, Any] = {}
        if validation is not None:
            calibration, metrics = validation.calibrate(members)
        diverged = next((t.diverged for t in trained if t.diverged), None)
        refitted = None
        if self._plan.members[0].training.refit and not stopped and diverged is None:
            refitted = self._refit(names, [t.state.best_epoch for t in trained])
            stopped = refitted is None and self.should_stop()  # the refit can be resumed too
        outcome = self._outcome(first.state, metrics)
        outcome |= {"run": first.identity, "diverged": diverged, "stopped": stopped}
        outcome["refit"] = refitted is not None
        if len(trained) > 1:
            outcome["run"] = first.identity | {"seeds": len(trained)}
            outcome |= _member_facts(trained, self._plan)
        return refitted or model, calibration, outcome

    def _load(self, names: tuple[str, ...], *, refit: bool = False) -> list[RankData]:
        """Return the data of each axis that the components have as rows, that of users first."""
        axes = dict.fromkeys(axis for name in names if (axis := component_axis(name)) is not None)
        return [load_rank_data(self._group, self._shards, axis, refit=refit) for axis in axes]

    def _model(self, members: tuple[Member, ...], sets: Sequence[RankData]) -> PartitionedModel:
        other = sets[1] if len(sets) > 1 else None
        return PartitionedModel(self._plan.members[0].side, members, sets[0], self._shards, other)

    def _initial_member(
        self, plan: MemberPlan, names: tuple[str, ...], sets: Sequence[RankData]
    ) -> tuple[Member, Dataset, dict[str, Any]]:
        """Return a member with its initial weights, its ratings and the fields of components."""
        ratings = sets[0].ratings if len(sets) == 1 else both_ways(*sets)
        fields = {name: value for name, value in plan.model.items() if name != "time"}
        counts = ratings.level_counts(other_axis(sets[0].axis))
        fields["spread"] = spread_of(counts, self._group, sets[0].part.totals)
        parts = {data.axis: data.part for data in sets}
        member = new_member(names, ratings, fields, plan.training, parts)
        if self._options.init_model is not None:
            _copy_weights(self._options.init_model, member, plan.side, self._shards, sets)
        return member, ratings, fields

    def _train_member(
        self,
        number: int,
        plan: MemberPlan,
        names: tuple[str, ...],
        sets: Sequence[RankData],
        validation: DistributedValidation | None,
    ) -> _Trained:
        member, ratings, fields = self._initial_member(plan, names, sets)
        model = self._model((member,), sets)
        identity = self._run() | {
            "side": plan.side,
            "model": model.described_members()[0],
            "settings": plan.training.to_json(),
            "device": "cpu",
        }

        def validate(network: nn.Module) -> dict[str, float]:
            assert validation is not None
            return validation.score([member.with_arrays(network_arrays(network))])

        loop = self._loop(
            _stage(self._plan, number),
            plan,
            (member, ratings, fields),
            validate=None if validation is None else validate,
            store=self._store(number),
            identity=identity,
        )
        continued = self._options.init_model is not None
        if continued or any(c.starts_well for c in member.components.values()):
            loop.validate_start()
        diverged = loop.run_until_diverged()
        finish_member(member, ratings)
        return _Trained(member, loop.state, identity, diverged)

    def _loop(
        self,
        stage: Stage,
        plan: MemberPlan,
        initial: tuple[Member, Dataset, dict[str, Any]],
        **options: Any,
    ) -> TrainingLoop:
        member, ratings, fields = initial
        config = plan.training
        stepper = make_stepper(
            member, ratings, fields, config, device="cpu", threads=self._n_threads
        )
        callback: Callback = self._callback
        if len(self._plan.members) > 1:
            callback = NumberedRecords(callback, stage.member or 0)
        return TrainingLoop(
            member_network(member),
            stepper.sampler,
            stepper,
            LoopOptions.of(config, stepper.sampler.n_steps, refit=stage.refit),
            callback=callback,
            stage=stage,
            should_stop=self.should_stop,
            **options,
        )

    def _store(self, number: int) -> RankStateStore | None:
        """Return where a member's state is saved; one that was not begun has none to resume."""
        store = self._options.store
        if store is None or number == 0:
            return store
        store = replace(store, folder=member_folder(store.folder, number))
        return replace(store, resume=store.resume and store.exists())

    def _refit(self, names: tuple[str, ...], epochs: Sequence[int]) -> PartitionedModel | None:
        """Train the members again on all ratings, each for the epochs that validation selected.

        None if it was stopped or diverged: the members that validation selected are then used.
        """
        sets = self._load(names, refit=True)
        members = []
        for number, plan in enumerate(self._plan.members):
            initial = self._initial_member(plan, names, sets)
            stage = replace(_stage(self._plan, number), refit=True, epochs=epochs[number] or None)
            loop = self._loop(stage, plan, initial)
            try:
                with reported_stage(self._callback, stage):
                    loop.run(epochs[number])
            except DivergedError:
                return None
            if loop.state.epoch < epochs[number]:
                return None
            finish_member(initial[0], initial[1])
            members.append(initial[0])
        return self._model(tuple(members), sets)

    def add_interactions(self, model: PartitionedModel) -> tuple[PartitionedModel, dict[str, Any]]:
        """Return the model with an interaction model, and what training it says."""
        began, sizes = time.monotonic(), self._shards
        data = load_rank_data(self._group, sizes, "user")
        store = self._options.store
        if store is not None:
            store = replace(store, folder=implicit_folder(store.folder))
        seed = self._plan.members[0].training.seed if self._plan.members else 0
        settings = settings_for(sizes.n_users, sizes.n_items, int(sizes.sizes["train"]), seed=seed)
        interactions = train_interactions(
            data, settings, sizes.fingerprint, store, self._callback, self.should_stop
        )
        seconds = {"nade": round(time.monotonic() - began, 2)}
        facts = interactions.facts | {"seconds": seconds, "total_seconds": seconds["nade"]}
        return replace(model, interactions=interactions, items=data), facts

    def _run(self) -> dict[str, Any]:
        """Return what is the same for all members and must be so for a run to be resumed."""
        return {
            "data": str(self._shards.folder),
            "split": {"name": "shards", "fingerprint": self._shards.fingerprint},
            "threads": self._n_threads,
            "ranks": self._group.size,
            "version": __version__,
        }

    def _outcome(self, state: LoopState, metrics: dict[str, Any]) -> dict[str, Any]:
        shards = self._shards
        return {
            "data": {"source": "", "users": shards.n_users, "items": shards.n_items},
            "ratings": dict(shards.sizes),
            "epochs": state.epoch,
            "best_epoch": state.best_epoch,
            "seconds": state.seconds,
            "refit": False,
            "valid": metrics,
            "context": "train + valid",
            "history": state.history,
        }


def _member_facts(trained: Sequence[_Trained], plan: TrainingPlan) -> dict[str, Any]:
    """Return the entries of model.json for several members."""
    return {
        "history": [
            {"member": number, **record}
            for number, member in enumerate(trained)
            for record in member.state.history
        ],
        "members": [
            {
                "seed": member_plan.training.seed,
                "side": member_plan.side,
                "best_epoch": member.state.best_epoch,
                "best_rmse": (member.state.best or {}).get("rmse"),
            }
            for member, member_plan in zip(trained, plan.members, strict=False)
        ],
    }


def _copy_weights(
    folder: Path, member: Member, side: str, shards: ShardedRatings, sets: Sequence[RankData]
) -> None:
    """Copy the weights that an earlier model has for this rank's columns."""
    none: npt.NDArray[Any] = np.empty(0, np.int64)
    column_ids = {
        other_axis(data.axis): shards.ids(other_axis(data.axis), data.part.columns) for data in sets
    }
    ids = {"user": none, "item": none} | column_ids
    earlier = load_partition(folder, column_ids)
    no_ratings = np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.uint8)
    ratings = make_dataset(*no_ratings, shards.scale, ids["user"], ids["item"])
    copy_known_weights(member, earlier, ratings, side)
