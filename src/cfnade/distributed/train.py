"""train_distributed(): what every rank does, whoever started it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from cfnade import __version__
from cfnade.calibration.calibration import Calibration
from cfnade.components import Axis, Member
from cfnade.components.base import other_axis
from cfnade.components.new_member import (
    component_axis,
    component_class,
    component_names,
    new_member,
)
from cfnade.components.optimizers import member_network, network_arrays
from cfnade.components.ridge import spread_of
from cfnade.config import TrainingConfig
from cfnade.data.dataset import make_dataset
from cfnade.distributed.checkpoint import PartitionedModel, write_model
from cfnade.distributed.interaction_training import (
    PartitionedInteractionModel,
    train_interactions,
)
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
from cfnade.training.loop import LoopOptions, TrainingLoop
from cfnade.training.member import copy_known_weights, finish_member
from cfnade.training.state import LoopState, implicit_folder
from cfnade.training.steps import make_stepper
from cfnade.training.train import IMPLICIT

INTERACTIONS = Stage("set-nade")


@dataclass(frozen=True)
class RankRun:
    """How ranks train, beside what: who they are, where states go, who is told."""

    group: ProcessGroup
    shards: ShardedRatings
    threads: int
    saving: RankStateStore | None = None
    callback: Callback = field(default_factory=Callback)
    stop: Callable[[], bool] = lambda: False
    start: Path | None = None

    def ended(self) -> bool:
        """Whether anybody wants to stop."""
        return self.group.any_rank(self.stop())


def train_distributed(
    group: ProcessGroup,
    shards: ShardedRatings,
    out: Path,
    *,
    side: str,
    architecture: Mapping[str, Any],
    settings: TrainingConfig,
    lists: bool = False,
    start: Path | None = None,
    threads: int | None = None,
    saving: RankStateStore | None = None,
    callbacks: Sequence[Callback] = (),
    stop: Callable[[], bool] = lambda: False,
    facts: Mapping[str, Any] | None = None,
    with_context: bool = True,
) -> dict[str, Any]:
    """Train on the shards' training part, choose by their validation part, and write the folder.

    All ranks call it with the same arguments. `lists` is whether what people pick is learnt too;
    of interactions it is all that there is to learn. `start` is the folder of an earlier model
    whose weights are gone on with, each rank reading those of its own columns. `facts` are more of
    them, for model.json. Returns the facts of the model, on rank 0 all of them.
    """
    began = time.monotonic()
    if shards.sizes["train"] == 0:
        raise TrainingError(f"{shards.folder}: there are no ratings to train on")
    implicit, count = len(shards.scale) == 1, thread_count(threads)
    stages = [] if implicit else [_stage(side, settings)]
    stages += [INTERACTIONS] if lists or implicit else []
    with reported(callbacks, stages) as callback, torch_threads(count):
        how = RankRun(group, shards, count, saving, callback, stop, start)
        if implicit:
            owned = load_rank_data(group, shards, "user")
            model, outcome = (
                PartitionedModel(IMPLICIT, None, owned, shards),
                _bare(how, settings.seed),
            )
            calibration = None
        else:
            with reported_stage(callback, stages[0]):
                model, calibration, outcome = _member(how, side, dict(architecture), settings)
        outcome["stopped"] = outcome["epochs"] < settings.epochs and how.ended() and not implicit
        if (lists or implicit) and not outcome["stopped"]:
            with reported_stage(callback, INTERACTIONS):
                model, outcome["lists"] = _with_choice(how, model, settings.seed)
            outcome["stopped"] = how.ended()
    outcome["seconds"] = round(max(time.monotonic() - began, outcome["seconds"]), 2)
    lasting = {name: v for name, v in outcome.items() if name not in ("stopped", "diverged")}
    write_model(model, out, calibration, lasting | dict(facts or {}), with_context=with_context)
    return outcome


def _stage(side: str, settings: TrainingConfig) -> Stage:
    """What callbacks call the training of the member."""
    return Stage(side, member=0, epochs=settings.epochs or None, patience=settings.patience)


def _member(
    how: RankRun, side: str, fields: dict[str, Any], settings: TrainingConfig
) -> tuple[PartitionedModel, Calibration | None, dict[str, Any]]:
    """How things are rated."""
    names = component_names(
        side, ridge=fields.get("ridge", 0), time=bool(fields.pop("time", False))
    )
    axis, *more = _axes(names, settings)
    owned = load_rank_data(how.group, how.shards, axis)
    other = load_rank_data(how.group, how.shards, more[0]) if more else None
    ratings = owned.ratings if other is None else both_ways(owned, other)
    counts, totals = ratings.level_counts(other_axis(axis)), owned.part.totals
    fields["spread"] = spread_of(counts, how.group, totals)
    parts = {one.axis: one.part for one in (owned, other) if one is not None}
    member = new_member(names, ratings, fields, settings, parts)
    if how.start is not None:
        _take_over(how, member, side, [one for one in (owned, other) if one is not None])
    judge = DistributedValidation(owned, other) if how.shards.sizes["valid"] else None
    model = PartitionedModel(side, member, owned, how.shards, other)
    identity = _identity(how, model, settings)
    stepper = make_stepper(member, ratings, fields, settings, device="cpu", threads=how.threads)

    def validate(network: nn.Module) -> dict[str, float]:
        assert judge is not None
        return judge.score(member.with_arrays(network_arrays(network)))

    loop = TrainingLoop(
        member_network(member),
        stepper.sampler,
        stepper,
        LoopOptions.of(settings, stepper.sampler.n_steps),
        validate=None if judge is None else validate,
        store=how.saving,
        identity=identity,
        callback=how.callback,
        stage=_stage(side, settings),
        should_stop=how.ended,
    )
    if any(part.starts_well for part in member.components.values()):
        loop.validate_start()
    diverged = loop.run_until_diverged()
    finish_member(member, ratings)
    calibration, metrics = (None, {}) if judge is None else judge.calibrated(member)
    outcome = _outcome(how.shards, loop.state, metrics)
    outcome |= {"run": identity, "diverged": diverged}
    return model, calibration, outcome


def _take_over(how: RankRun, member: Member, side: str, owned: list[RankData]) -> None:
    """The weights that an earlier model has for this rank's columns."""
    assert how.start is not None
    nobody = np.empty(0, np.int64)
    ids = {"user": nobody, "item": nobody}
    axes = {other_axis(one.axis): one.part.columns for one in owned}
    ids |= {axis: how.shards.ids(axis, columns) for axis, columns in axes.items()}
    earlier = load_partition(how.start, {axis: ids[axis] for axis in axes})
    nothing = np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.uint8)
    named = make_dataset(*nothing, how.shards.scale, ids["user"], ids["item"])
    copy_known_weights(member, earlier, named, side)


def _with_choice(
    how: RankRun, model: PartitionedModel, seed: int
) -> tuple[PartitionedModel, dict[str, Any]]:
    """The model with what people pick."""
    began, owned = time.monotonic(), model.owned
    if owned.axis != "user":
        owned = load_rank_data(how.group, how.shards, "user")
    saving = how.saving
    if saving is not None:
        saving = replace(saving, folder=implicit_folder(saving.folder))
    sizes = how.shards
    settings = settings_for(sizes.n_users, sizes.n_items, int(sizes.sizes["train"]), seed=seed)
    choice: PartitionedInteractionModel = train_interactions(
        owned, settings, how.shards.fingerprint, saving, how.callback, how.ended
    )
    seconds = {"nade": round(time.monotonic() - began, 2)}
    facts = choice.facts | {"seconds": seconds, "total_seconds": seconds["nade"]}
    return replace(model, choice=choice, items=owned), facts


def _axes(names: tuple[str, ...], settings: TrainingConfig) -> list[Axis]:
    """What the rows are, users first; what ranks cannot train together is refused."""
    unable = [name for name in names if not component_class(name).partitionable]
    if unable:
        raise TrainingError(
            f"side {unable[0]!r} cannot be trained on several ranks; leave it out, or train on one "
            "machine"
        )
    axes = [component_axis(name) for name in names]
    if len(set(axes)) > 1 and names != ("user", "item"):
        raise TrainingError(
            f"sides {' + '.join(names)} cannot be trained on several ranks: of users and items "
            "together that is --side both; or train on one machine"
        )
    if settings.refit:
        raise TrainingError(
            "--refit needs one machine; on several ranks leave it out, or cut the shards again "
            "with --valid 0 and as many --epochs as validation chose"
        )
    return [axis for axis in dict.fromkeys(axes) if axis is not None]


def _identity(how: RankRun, model: PartitionedModel, settings: TrainingConfig) -> dict[str, Any]:
    """What must be the same for a run to be resumed."""
    return _run(how) | {
        "side": model.side,
        "model": model.described_sides(),
        "settings": settings.to_json(),
        "device": "cpu",
    }


def _run(how: RankRun) -> dict[str, Any]:
    return {
        "data": str(how.shards.folder),
        "split": {"name": "shards", "fingerprint": how.shards.fingerprint},
        "threads": how.threads,
        "ranks": how.group.size,
        "version": __version__,
    }


def _bare(how: RankRun, seed: int) -> dict[str, Any]:
    """The facts of a model that knows nothing but what people pick."""
    run = _run(how) | {"side": IMPLICIT, "settings": {"seed": seed}}
    outcome = _outcome(how.shards, LoopState(), {})
    return outcome | {"run": run, "diverged": None}


def _outcome(shards: ShardedRatings, state: LoopState, metrics: dict[str, Any]) -> dict[str, Any]:
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
