"""train(): from the parts of a data set to a model with everything that a prediction needs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from cfnade import __version__
from cfnade.choice.planning import ChoicePlan
from cfnade.data.ratings import Ratings
from cfnade.data.splits import Split
from cfnade.errors import TrainingError
from cfnade.fitted import FittedModel, trained_on
from cfnade.kernels.threads import thread_count, torch_threads
from cfnade.metrics import rmse
from cfnade.options import checked, whole
from cfnade.settings import Settings
from cfnade.sides import Member, side_names
from cfnade.training.choice_run import ChoiceRun, Say
from cfnade.training.floor import means_rmse
from cfnade.training.loop import Reporter, Saving
from cfnade.training.member import Job, TrainedMember
from cfnade.training.pooling import Replies, asked, mixed
from cfnade.training.shares import Shares, equal_shares, shares_of
from cfnade.training.space import require_space
from cfnade.training.together import Together
from cfnade.training.validation import calibrated

AT_ONCE = 2
"""Members that are trained side by side where there are several kinds to choose from."""

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
    settings: Settings


def train(
    split: Split,
    *,
    side: str,
    architecture: Mapping[str, Any] | None = None,
    settings: Settings | None = None,
    seeds: int = 1,
    beside: Sequence[Plan] = (),
    choose: bool = False,
    lists: ChoicePlan | None = None,
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

    What is given of users held out whole (split.given) is conditioned on too, never trained on.
    `architecture` are fields of the sides other than their sizes, and `time`: whether the model
    knows when ratings were given. With `seeds` above 1 so many members are trained, from
    settings.seed on, and their distributions averaged; `beside` are members of other kinds, and
    validation says what each kind counts; if `choose`, those that add little are left out, and
    members are trained side by side, each on its part of the threads. `lists` is how what people
    pick is learnt too; `say` is told how that goes. `start` is an earlier model whose weights are
    taken over where its ids occur; with `refresh` it has a member for each that is trained, which
    goes on with all of its weights. split.test is never looked at.
    """
    if len(split.train) == 0:
        raise TrainingError("there are no ratings to train on; is the split right?")
    if split.train.implicit:
        raise TrainingError(
            "these are interactions, which have no ratings to predict; leave out what you say of "
            "a model of ratings"
        )
    threads = thread_count(threads)
    first = Plan(side, architecture or {}, settings or Settings())
    at_once = min(AT_ONCE, threads, 1 + len(beside)) if choose else 1
    how = start, device, threads // at_once, reporter, stop
    jobs = [_job(first, number, *how) for number in range(checked_seeds(seeds))]
    jobs += [_job(plan, 0, *how) for plan in beside]
    if refresh and start is not None:
        jobs = [
            replace(job, refresh=True, start=replace(start, members=(member,)))
            for job, member in zip(jobs, start.members, strict=True)
        ]
    kinds = [0] * seeds + [1 + number for number in range(len(beside))]
    for job in jobs:
        _check(job)
    if saving is not None:
        require_space(saving.folder, split, jobs, lists)
    began = time.monotonic()
    members = Together(split, jobs, saving).train(at_once, partial(_run, split))
    seconds = sum(member.seconds for member in members)  # with earlier parts of a resumed run
    if at_once > 1:
        seconds = time.monotonic() - began
    with torch_threads(threads):  # torch's own number may be larger than what was asked for
        stopped = len(members) < len(jobs) or any(member.stopped for member in members)
        tried: dict[str, Any] = {}
        kinds = kinds[: len(members)]  # fewer if it was stopped
        shares, metrics = equal_shares(kinds), dict[str, Any]()
        calibration, calibration_of_new = None, None
        answers: list[Replies] = []
        if len(split.valid):
            seed = first.settings.seed
            answers = [asked(member.chosen, split.valid, seed=seed) for member in members]
            if beside:
                trusts = [_trust(member.chosen) for member in members]
                shares = shares_of(answers, kinds, split.valid, trusts, choose=choose)
            together = mixed(answers, shares)
            apart = any("user" in member.chosen.trained_on for member in members)
            calibration, calibration_of_new, metrics = calibrated(
                together, split.valid, apart=apart
            )
            metrics["means_rmse"] = means_rmse(split.train, split.valid)
    if beside:
        tried = _tried(members, shares, _found(answers, split.valid) or [None] * len(members))
        members, jobs, shares = _counting(members, jobs, shares)
    fitted = replace(
        _together([member.final for member in members]),
        side=",".join(dict.fromkeys(job.side for job in jobs)),
        context=split.train.plus(split.valid).plus(split.given),
        calibration=calibration,
        calibration_of_new=calibration_of_new,
        shares=shares if beside else (),
        facts=_facts(split, jobs, members) | _outcome(members, metrics, split, seconds) | tried,
    )
    if lists is not None and not stopped:
        fitted = with_choice(fitted, split, lists, threads, saving, say, stop)
        stopped = stop()
    reasons = [member.diverged for member in members if member.diverged]
    history = fitted.facts["history"]
    return Trained(fitted, history, stopped, reasons[0] if reasons else None)


def with_choice(
    fitted: FittedModel, split: Split, plan: ChoicePlan, threads: int, *how: Any
) -> FittedModel:
    """The model with what people pick."""
    began = time.monotonic()
    saving, say, stop = how
    run = ChoiceRun(split, plan, saving=saving, say=say, stop=stop)
    with torch_threads(threads):
        choice, found = run.go()
    seconds = round(time.monotonic() - began, 2)
    facts = fitted.facts | {"lists": found | {"total_seconds": seconds}}
    return replace(fitted, choice=choice, facts=facts)


def train_picks(
    split: Split,
    plan: ChoicePlan,
    *,
    threads: int | None = None,
    saving: Saving | None = None,
    say: Say = lambda _: None,
    stop: Callable[[], bool] = lambda: False,
) -> Trained:
    """The same for interactions without ratings: what people pick is all that is learnt."""
    if len(split.train) == 0:
        raise TrainingError("there is nothing to train on; is the split right?")
    if saving is not None:
        require_space(saving.folder, split, (), plan)
    train = split.train
    context = train.plus(split.valid).plus(split.given)
    counts = trained_on(("user",), train)
    run: dict[str, Any] = {
        "side": PICKS,
        "settings": {"seed": plan.nade.seed},
        "data": split.data,
        "split": {"name": split.name, "fingerprint": split.fingerprint},
        "threads": thread_count(threads),
        "version": __version__,
    }
    facts = _sizes(split) | {"run": run, "context": "train + valid", "history": []}
    bare = FittedModel((), PICKS, context, counts, facts=facts)
    fitted = with_choice(bare, split, plan, thread_count(threads), saving, say, stop)
    return Trained(fitted, [], stop())


def checked_seeds(seeds: Any) -> int:
    """How many members of the first kind."""
    return checked("seeds", seeds, whole(1), TrainingError)


def _job(plan: Plan, number: int, *how: Any) -> Job:
    """The training of the member of that number, which has a seed of its own."""
    fields = dict(plan.architecture)
    names = side_names(plan.side, ridge=fields.get("ridge", 0), time=fields.pop("time", False))
    settings = replace(plan.settings, seed=plan.settings.seed + number)
    return Job(plan.side, names, fields, settings, *how)


def _trust(fitted: FittedModel) -> float:
    """What a member counts where validation cannot tell."""
    return max(side.trust for side in fitted.members[0].sides.values())


def _found(answers: Sequence[Replies], valid: Ratings) -> list[float | None]:
    """The validation RMSE of every member."""
    stars = valid.scale.array()
    return [rmse(valid.values, answer.everything.probabilities @ stars) for answer in answers]


def _tried(
    members: list[TrainedMember], shares: Shares, found: Sequence[float | None]
) -> dict[str, Any]:
    """What every member gave, those too that count nothing."""
    return {
        "tried": [
            {
                "side": member.final.side,
                "valid_rmse": rmse,
                "seconds": round(member.seconds, 2),
                "share": round(known, 4),
                "share_of_new": round(new, 4),
            }
            for member, rmse, (known, new) in zip(members, found, shares, strict=True)
        ]
    }


def _counting(
    members: list[TrainedMember], jobs: list[Job], shares: Shares
) -> tuple[list[TrainedMember], list[Job], Shares]:
    """Those that count for anybody."""
    kept = [n for n, share in enumerate(shares) if max(share) > 0]
    return [members[n] for n in kept], [jobs[n] for n in kept], tuple(shares[n] for n in kept)


def _together(models: Sequence[FittedModel]) -> FittedModel:
    """One model of all members."""
    members = tuple(member for model in models for member in model.members)
    counts = {axis: levels for model in models for axis, levels in model.trained_on.items()}
    return replace(models[0], members=members, trained_on=counts)


def _outcome(
    members: list[TrainedMember], metrics: dict[str, Any], split: Split, seconds: float
) -> dict[str, Any]:
    first = members[0].progress
    found = {
        "epochs": first.epoch,
        "best_epoch": first.best_epoch,
        "seconds": round(seconds, 2),
        "refit": all(member.refitted for member in members),
        "valid": metrics,
        "context": "train + valid + given" if len(split.given) else "train + valid",
        "history": first.history,
    }
    if len(members) > 1:
        found["history"] = [
            {"member": number, **record}
            for number, member in enumerate(members)
            for record in member.progress.history
        ]
        found["members"] = [
            {
                "seed": member.seed,
                "side": member.final.side,
                "best_epoch": member.progress.best_epoch,
                "best_rmse": member.progress.best_rmse,
            }
            for member in members
        ]
    return found


def _check(job: Job) -> None:
    try:
        torch.empty(0, device=job.device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise TrainingError(f"device {job.device!r} cannot be used: {reason}; try cpu") from error
    if job.device != "cpu" and (job.settings.rowwise or job.settings.touched_only):
        raise TrainingError(f"rowwise and touched_only need the device cpu, not {job.device!r}")


def _run(split: Split, job: Job, member: Member) -> dict[str, Any]:
    """What must be the same for a run to be resumed."""
    return {
        "side": job.side,
        "model": member.to_dict(),
        "settings": _as_json(job.settings.to_dict()),
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


def _as_json(given: dict[str, Any]) -> dict[str, Any]:
    return {name: list(v) if isinstance(v, tuple) else v for name, v in given.items()}
