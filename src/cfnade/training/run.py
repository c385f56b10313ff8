"""train(): from the parts of a data set to a model with everything that a prediction needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from cfnade import __version__
from cfnade.bundle import SIDES, SIDES_IN_WORDS, Bundle, Model, Sides
from cfnade.data.splits import Split
from cfnade.errors import TrainingError
from cfnade.kernels.threads import thread_count, torch_threads
from cfnade.models.build import architecture_of
from cfnade.models.ensemble import Ensemble
from cfnade.training.loop import Reporter, Saving
from cfnade.training.member import Job, Member
from cfnade.training.settings import Settings
from cfnade.training.state import NAME, member_folder
from cfnade.training.validation import calibrated


@dataclass(frozen=True)
class Trained:
    """The model, and whether it was stopped before its end."""

    bundle: Bundle
    history: list[dict[str, Any]]
    stopped: bool
    diverged: str | None = None


def train(
    split: Split,
    *,
    side: Sides,
    architecture: Mapping[str, Any] | None = None,
    settings: Settings | None = None,
    seeds: int = 1,
    start: Bundle | None = None,
    device: str = "cpu",
    threads: int | None = None,
    saving: Saving | None = None,
    reporter: Reporter | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Trained:
    """Train on split.train, choose by split.valid, and condition on both from then on.

    What is given of users held out whole (split.given) is conditioned on too, never trained on.
    `architecture` are fields of CFNADE other than its sizes; with side "both" also `time`, whether
    the model knows when ratings were given. With `seeds` above 1 so many models
    are trained, from settings.seed on, and their distributions averaged. `start` is an earlier
    model whose weights are taken over where its ids occur. split.test is never looked at.
    """
    settings, fields = settings or Settings(), dict(architecture or {})
    time = fields.get("time", False)
    _check(side, settings, seeds, device, time)
    if len(split.train) == 0:
        raise TrainingError("there are no ratings to train on; is the split right?")
    if time and split.train.times is None:
        raise TrainingError("time features need ratings with timestamps; these have none")
    threads = thread_count(threads)
    job = Job(side, fields, settings, start, device, threads)
    with torch_threads(threads):  # torch's own number may be larger than what was asked for
        members = _members(split, job, seeds, saving, reporter, stop)
        chosen = _together([member.chosen for member in members])
        calibration, metrics = calibrated(chosen, split.valid)
    bundle = replace(
        _together([member.final for member in members]),
        context=split.train.plus(split.valid).plus(split.given),
        calibration=calibration,
        facts=_facts(split, job, members, seeds) | _outcome(members, metrics, split),
    )
    reasons = [member.diverged for member in members if member.diverged]
    history = bundle.facts["history"]
    return Trained(bundle, history, members[-1].stopped, reasons[0] if reasons else None)


def _members(
    split: Split,
    job: Job,
    seeds: int,
    saving: Saving | None,
    reporter: Reporter | None,
    stop: Callable[[], bool],
) -> list[Member]:
    """One model after another, from as many seeds; fewer if they are stopped."""
    members: list[Member] = []
    for number in range(seeds):
        own = replace(job, settings=replace(job.settings, seed=job.settings.seed + number))
        told = reporter if reporter is None or seeds == 1 else _Numbered(reporter, number)
        members.append(
            own.train(split, partial(_run, split, own), _saving(saving, number), told, stop)
        )
        if members[-1].stopped:
            break
    return members


def _saving(saving: Saving | None, number: int) -> Saving | None:
    """Of the model of that number; one that was not begun when the run was stopped begins now."""
    if saving is None or number == 0:
        return saving
    folder = member_folder(saving.folder, number)
    return replace(saving, folder=folder, resume=saving.resume and (folder / NAME).exists())


class _Numbered:
    """Tells a reporter which of several models an epoch belongs to."""

    def __init__(self, reporter: Reporter, number: int) -> None:
        self._reporter, self._number = reporter, number

    def step(self, done: float, cost: float) -> None:
        self._reporter.step(done, cost)

    def epoch(self, record: dict[str, Any]) -> None:
        self._reporter.epoch({"member": self._number, **record})


def _together(bundles: Sequence[Bundle]) -> Bundle:
    """One bundle of all models."""
    if len(bundles) == 1:
        return bundles[0]
    models: list[Any] = [bundle.model for bundle in bundles]
    return replace(bundles[0], model=Ensemble(models).eval())


def _outcome(members: list[Member], metrics: dict[str, Any], split: Split) -> dict[str, Any]:
    first = members[0].progress
    found = {
        "epochs": first.epoch,
        "best_epoch": first.best_epoch,
        "seconds": round(sum(member.progress.seconds for member in members), 2),
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
                "best_epoch": member.progress.best_epoch,
                "best_rmse": member.progress.best_rmse,
            }
            for member in members
        ]
    return found


def _check(side: Sides, settings: Settings, seeds: int, device: str, time: bool) -> None:
    if side not in SIDES:
        raise TrainingError(f"side (={side!r}) must be {SIDES_IN_WORDS}")
    if isinstance(seeds, bool) or not isinstance(seeds, int) or seeds < 1:
        raise TrainingError(f"seeds (={seeds!r}) must be a whole number of at least 1")
    if time and side != "both":
        raise TrainingError(f'time features go with side "both", not with {side!r}')
    if side == "both" and settings.rates is None:
        raise TrainingError(
            'context_rate "paper" splits rows, side "both" draws blocks; give two rates'
        )
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise TrainingError(f"device {device!r} cannot be used: {reason}; try cpu") from error
    if device != "cpu" and side == "both":
        raise TrainingError(f'side "both" is trained on the device cpu only, not {device!r}')
    if device != "cpu" and (settings.rowwise or settings.touched_only):
        raise TrainingError(f"rowwise and touched_only need the device cpu, not {device!r}")


def _run(split: Split, job: Job, model: Model) -> dict[str, Any]:
    """What must be the same for a run to be resumed."""
    return {
        "side": job.side,
        "model": architecture_of(model),
        "settings": _as_json(job.settings.to_dict()),
        "data": split.data,
        "split": {"name": split.name, "fingerprint": split.fingerprint},
        "device": job.device,
        "threads": job.threads,
        "version": __version__,
    }


def _facts(split: Split, job: Job, members: list[Member], seeds: int) -> dict[str, Any]:
    """What model.json says of a run."""
    train = split.train
    run = _run(split, job, members[0].chosen.model) | ({"seeds": seeds} if seeds > 1 else {})
    return {
        "run": run,
        "data": {"source": train.source, "users": train.n_users, "items": train.n_items},
        "ratings": {"train": len(train), "valid": len(split.valid), "test": len(split.test)},
    }


def _as_json(given: dict[str, Any]) -> dict[str, Any]:
    return {name: list(v) if isinstance(v, tuple) else v for name, v in given.items()}
