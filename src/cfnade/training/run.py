"""train(): from the parts of a data set to a model with everything that a prediction needs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from annotated_types import Ge

from cfnade import __version__
from cfnade.components import Member, are_made, component_names
from cfnade.config import TrainingConfig
from cfnade.data.dataset import Dataset
from cfnade.data.splits import Split
from cfnade.exceptions import TrainingError
from cfnade.fitted_model import FittedModel, trained_on
from cfnade.kernels.threads import thread_count, torch_threads
from cfnade.training.implicit import ImplicitPlan, ImplicitTraining
from cfnade.training.loop import Reporter, Saving, tell_stage
from cfnade.training.member import Job, TrainedMember
from cfnade.training.shares import Shares
from cfnade.training.space import require_space
from cfnade.training.together import Together
from cfnade.training.verdict import Verdict, verdict_on
from cfnade.utils.validation import check_scalar

AT_ONCE = 2
"""Members that are trained side by side where there are several kinds to choose from."""

Say = Callable[[str], None]
PICKS = "picks"
"""The `side` of a model that knows nothing but what people pick."""


@dataclass(frozen=True)
class Trained:
    """The model, and whether it was stopped before its end."""

    fitted: FittedModel
    history: list[dict[str, Any]]
    stopped: bool
    diverged: str | None = None


@dataclass(frozen=True)
class Plan:
    """One kind of member: its sides, their fields, and how it is trained."""

    side: str
    architecture: Mapping[str, Any]
    settings: TrainingConfig
    stage: int = 0
    """Where members are chosen, those of a stage count only if they improve the validation score of
    those of the stages before."""


def train(
    split: Split,
    *,
    side: str,
    architecture: Mapping[str, Any] | None = None,
    settings: TrainingConfig | None = None,
    seeds: int = 1,
    beside: Sequence[Plan] = (),
    choose: bool = False,
    lists: ImplicitPlan | None = None,
    start: FittedModel | None = None,
    refresh: bool = False,
    device: str = "cpu",
    threads: int | None = None,
    saving: Saving | None = None,
    reporter: Reporter | None = None,
    say: Say = lambda _: None,
    stop: Callable[[], bool] = lambda: False,
) -> Trained:
    """Train on split.train, choose by split.valid, and condition on both from then on.

    The fold-in part is conditioned on too, never trained on.
    `architecture` are fields of the sides other than their sizes, and `time`: whether the model
    knows when ratings were given. With `seeds` above 1 so many members are trained, from
    settings.seed on, and their distributions averaged; `beside` are members of other kinds, and
    validation says what each kind counts; if `choose`, those that add little and stages that bring
    no gain are left out, and members are trained side by side, each on its part of the threads.
    `lists` is how what people pick is learnt too; `say` is told how that goes. `start` is an
    earlier model whose weights are taken over where its ids occur; with `refresh` it has a member
    for each that is trained, which goes on with all of its weights. split.test is never looked at.
    """
    _require_ratings(split.train)
    threads = thread_count(threads)
    first = Plan(side, architecture or {}, settings or TrainingConfig())
    at_once = min(AT_ONCE, threads, 1 + len(beside)) if choose else 1
    how = start, device, threads, reporter, stop
    jobs = [_job(first, number, *how) for number in range(checked_seeds(seeds))]
    jobs += [_job(plan, 0, *how) for plan in beside]
    jobs = _side_by_side(jobs, at_once, threads)
    if refresh and start is not None:
        jobs = _going_on(jobs, start)
    _check(jobs)
    if saving is not None:
        require_space(saving.folder, split, jobs)
    members, seconds = _trained(split, jobs, saving, at_once)
    stopped = len(members) < len(jobs) or any(member.stopped for member in members)
    plans = ([first] * seeds + list(beside))[: len(members)]  # fewer if it was stopped
    kinds = _kinds(plans) if choose else [max(0, n + 1 - seeds) for n in range(len(plans))]
    stages = [plan.stage for plan in plans] if choose else None
    tell_stage(reporter, "weights and calibration")
    with torch_threads(threads):  # torch's own number may be larger than what was asked for
        seed, weigh = first.settings.seed, bool(beside)
        verdict = verdict_on(members, kinds, split, seed=seed, weigh=weigh, stages=stages)
    fitted = _model(split, jobs, members, verdict, seconds, weighed=bool(beside))
    if lists is not None and not stopped:
        tell_stage(reporter, "interactions")
        fitted = with_interactions(fitted, split, lists, threads, say, stop)
        stopped = stop()
    reasons = [member.diverged for member in members if member.diverged]
    return Trained(fitted, fitted.facts["history"], stopped, next(iter(reasons), None))


def with_interactions(
    fitted: FittedModel,
    split: Split,
    plan: ImplicitPlan,
    threads: int,
    say: Say,
    stop: Callable[[], bool],
) -> FittedModel:
    """Return the model with an interaction model."""
    training = ImplicitTraining(split, plan, report=say, stop=stop, threads=threads)
    model = training.run()
    facts = fitted.facts | {"lists": training.facts}
    return replace(fitted, interaction_model=model, facts=facts)


def train_picks(
    split: Split,
    plan: ImplicitPlan,
    *,
    threads: int | None = None,
    say: Say = lambda _: None,
    stop: Callable[[], bool] = lambda: False,
) -> Trained:
    """The same for interactions without ratings: what people pick is all that is learnt."""
    if len(split.train) == 0:
        raise TrainingError("there is nothing to train on; is the split right?")
    train = split.train
    context = train.concat(split.valid).concat(split.fold_in)
    counts = trained_on(("user",), train)
    run: dict[str, Any] = {
        "side": PICKS,
        "settings": {"seed": plan.seed},
        "data": split.data,
        "split": {"name": split.name, "fingerprint": split.fingerprint},
        "threads": thread_count(threads),
        "version": __version__,
    }
    facts = _sizes(split) | {"run": run, "context": "train + valid", "history": []}
    bare = FittedModel((), PICKS, context, counts, facts=facts)
    fitted = with_interactions(bare, split, plan, thread_count(threads), say, stop)
    return Trained(fitted, [], stop())


def _side_by_side(jobs: Sequence[Job], at_once: int, threads: int) -> list[Job]:
    """Each with its part of the threads; where they do not divide, every other job has one more."""
    least, more = divmod(threads, at_once)
    return [
        replace(job, threads=least + (number % at_once < more)) for number, job in enumerate(jobs)
    ]


def _kinds(plans: Sequence[Plan]) -> list[int]:
    """Numbers from 0 on: plans that differ in their seeds alone have the same."""
    bare = [replace(plan, settings=replace(plan.settings, seed=0), stage=0) for plan in plans]
    different: list[Plan] = []
    for plan in bare:
        if plan not in different:
            different.append(plan)
    return [different.index(plan) for plan in bare]


def checked_seeds(seeds: Any) -> int:
    """How many members of the first kind."""
    return check_scalar("seeds", seeds, int, Ge(1), error=TrainingError)


def _require_ratings(train: Dataset) -> None:
    if len(train) == 0:
        raise TrainingError("there are no ratings to train on; is the split right?")
    if train.implicit:
        raise TrainingError(
            "these are interactions, which have no ratings to predict; leave out what you say of "
            "a model of ratings"
        )


def _job(plan: Plan, number: int, *how: Any) -> Job:
    """The training of the member of that number, which has a seed of its own."""
    fields = dict(plan.architecture)
    names = component_names(plan.side, ridge=fields.get("ridge", 0), time=fields.pop("time", False))
    settings = replace(plan.settings, seed=plan.settings.seed + number)
    if are_made(names):  # whatever is asked for: there are no weights to move or to average
        settings = replace(settings, epochs=0, average=0.0)
    return Job(plan.side, names, fields, settings, *how)


def _going_on(jobs: list[Job], start: FittedModel) -> list[Job]:
    """Each with all the weights of its own member of the earlier model."""
    return [
        replace(job, refresh=True, start=replace(start, answering=(member,)))
        for job, member in zip(jobs, start.members, strict=True)
    ]


def _trained(
    split: Split, jobs: list[Job], saving: Saving | None, at_once: int
) -> tuple[list[TrainedMember], float]:
    """The members, fewer than jobs if it was stopped, and the seconds that they took."""
    began = time.monotonic()
    members = Together(split, jobs, saving).train(at_once, partial(_run, split))
    if at_once > 1:
        return members, time.monotonic() - began
    return members, sum(member.seconds for member in members)  # with earlier parts of a resumed run


def _model(
    split: Split,
    jobs: list[Job],
    members: list[TrainedMember],
    verdict: Verdict,
    seconds: float,
    *,
    weighed: bool,
) -> FittedModel:
    """One model of all members that count."""
    shares, tried = verdict.shares, dict[str, Any]()
    if weighed:
        tried = {"tried": verdict.tried(members)}
        members, jobs, shares = _counting(members, jobs, shares)
    facts = _facts(split, jobs, members) | _outcome(members, verdict.metrics, split, seconds)
    return replace(
        _together([member.final for member in members]),
        side=",".join(dict.fromkeys(job.side for job in jobs)),
        context=split.train.concat(split.valid).concat(split.fold_in),
        calibration=verdict.calibration,
        calibration_of_new=verdict.calibration_of_new,
        shares=shares if weighed else (),
        facts=facts | tried,
    )


def _counting(
    members: list[TrainedMember], jobs: list[Job], shares: Shares
) -> tuple[list[TrainedMember], list[Job], Shares]:
    """Those that count for anybody."""
    kept = [n for n, share in enumerate(shares) if max(share) > 0]
    return [members[n] for n in kept], [jobs[n] for n in kept], tuple(shares[n] for n in kept)


def _together(models: Sequence[FittedModel]) -> FittedModel:
    """Their members, and what was trained of each axis."""
    members = tuple(member for model in models for member in model.members)
    counts = {axis: levels for model in models for axis, levels in model.trained_on.items()}
    return replace(models[0], answering=members, trained_on=counts)


def _outcome(
    members: list[TrainedMember], metrics: dict[str, Any], split: Split, seconds: float
) -> dict[str, Any]:
    first = members[0].progress
    outcome = {
        "epochs": first.epoch,
        "best_epoch": first.best_epoch,
        "seconds": round(seconds, 2),
        "refit": all(member.refitted for member in members),
        "valid": metrics,
        "context": "train + valid + fold-in" if len(split.fold_in) else "train + valid",
        "history": first.history,
    }
    if len(members) > 1:
        outcome["history"] = [
            {"member": number, **record}
            for number, member in enumerate(members)
            for record in member.progress.history
        ]
        outcome["members"] = [
            {
                "seed": member.seed,
                "side": member.final.side,
                "best_epoch": member.progress.best_epoch,
                "best_rmse": member.progress.best_rmse,
            }
            for member in members
        ]
    return outcome


def _check(jobs: Sequence[Job]) -> None:
    for job in jobs:
        try:
            torch.empty(0, device=job.device)
        except (RuntimeError, AssertionError) as error:
            raise TrainingError(
                f"device {job.device!r} cannot be used: {str(error).splitlines()[0]}; try cpu"
            ) from error
        if job.device != "cpu" and (job.settings.rowwise or job.settings.touched_only):
            raise TrainingError(f"rowwise and touched_only need the device cpu, not {job.device!r}")


def _run(split: Split, job: Job, member: Member) -> dict[str, Any]:
    """What must be the same for a run to be resumed."""
    return {
        "side": job.side,
        "model": member.to_dict(),
        "settings": job.settings.to_json(),
        "data": split.data,
        "split": {"name": split.name, "fingerprint": split.fingerprint},
        "device": job.device,
        "threads": job.threads,
        "version": __version__,
    }


def _facts(split: Split, jobs: list[Job], members: list[TrainedMember]) -> dict[str, Any]:
    """What model.json says of a run."""
    seeds = sum(job.side == jobs[0].side for job in jobs)
    run = _run(split, jobs[0], members[0].chosen.members[0])
    run |= {"seeds": seeds} if seeds > 1 else {}
    return {"run": run} | _sizes(split)


def _sizes(split: Split) -> dict[str, Any]:
    train = split.train
    return {
        "data": {"source": train.source, "users": train.n_users, "items": train.n_items},
        "ratings": {"train": len(train), "valid": len(split.valid), "test": len(split.test)},
    }
