"""train(): from the parts of a data set to a model with everything that a prediction needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from cfnade import __version__
from cfnade.data.dataset import Dataset
from cfnade.data.splits import Split
from cfnade.exceptions import TrainingError
from cfnade.fitted_model import FittedModel, count_training_ratings
from cfnade.kernels.threads import thread_count, torch_threads
from cfnade.training.calibration import (
    CalibrationResult,
    ValidationPredictions,
    calibrate,
    mix_predictions,
    predict_validation,
)
from cfnade.training.callbacks import Stage, reported, reported_stage
from cfnade.training.ensemble import (
    Weights,
    ensemble_weights,
    member_scores,
    member_trainings,
    train_members,
)
from cfnade.training.implicit import ImplicitTraining, interaction_stage
from cfnade.training.member import TrainedMember
from cfnade.training.options import RunOptions
from cfnade.training.plan import TrainingPlan
from cfnade.training.validation import baseline_rmse

IMPLICIT = "picks"
"""The `side` of a model of interactions alone."""
CALIBRATION = Stage("calibration")


@dataclass(frozen=True)
class TrainingResult:
    """A trained model, and how training ended."""

    model: FittedModel
    stopped: bool
    """Whether it was stopped before its end."""
    diverged: str | None = None
    """Why it ended early with the best weights before that; None if it did not."""

    @property
    def history(self) -> list[dict[str, Any]]:
        """One record an epoch."""
        records: list[dict[str, Any]] = self.model.metadata["history"]
        return records


def train(split: Split, plan: TrainingPlan, options: RunOptions | None = None) -> TrainingResult:
    """Train on split.train, select by split.valid, and condition on both from then on.

    The fold-in part is conditioned on too. Nothing depends on split.test.

    Args:
        split: The parts of a data set.
        plan: The members of the ensemble, how they are weighted, and the interaction model.
        options: Threads, device, callbacks, the model to continue, the resumable state.
    """
    options = check_run(split, plan, options or RunOptions())
    with reported(options.callbacks, training_stages(split, plan, options)) as callback:
        members = train_members(split, plan, options, callback)
        with torch_threads(thread_count(options.n_threads)), reported_stage(callback, CALIBRATION):
            predictions = predict_members(members, split.valid)
            weights = ensemble_weights(members, predictions, split.valid, plan.ensemble_weighting)
            calibration = calibrate_ensemble(members, predictions, weights, split)
        model = assemble(split, plan, members, weights, calibration)
        facts = run_metadata(split, plan, members, predictions, weights, calibration, options)
        stopped = len(members) < len(plan.members) or any(member.stopped for member in members)
        if plan.implicit is not None and not stopped:
            with reported_stage(callback, interaction_stage(plan.implicit)):
                interactions = ImplicitTraining(split, plan.implicit, options, callback)
                model = replace(model, interaction_model=interactions.run())
                facts["lists"] = interactions.facts
            stopped = options.should_stop()
    diverged = next((member.diverged for member in members if member.diverged), None)
    return TrainingResult(replace(model, metadata=facts), stopped, diverged)


# -- before ----------------------------------------------------------------------------------------


def check_run(split: Split, plan: TrainingPlan, options: RunOptions) -> RunOptions:
    """Raise a TrainingError if the plan cannot be trained on these data with these options."""
    train = split.train
    if len(train) == 0:
        noun = "interactions" if train.implicit else "ratings"
        raise TrainingError(f"there are no {noun} to train on; is the split right?")
    if plan.members and train.implicit:
        raise TrainingError(
            "these are interactions, which have no ratings to predict; leave out what describes a "
            "model of ratings"
        )
    if not plan.members and options.init_model is not None:
        raise TrainingError(
            "init_model is for models of ratings; train on all interactions from the start"
        )
    try:
        torch.empty(0, device=options.device)
    except (RuntimeError, AssertionError) as error:
        raise TrainingError(
            f"device {options.device!r} cannot be used: {str(error).splitlines()[0]}; try cpu"
        ) from error
    if options.device != "cpu" and any(member.training.is_sparse for member in plan.members):
        raise TrainingError(
            f"optimizer (='sparse_adam') needs the device cpu, not {options.device!r}",
            field="optimizer",
            value="sparse_adam",
        )
    return replace(options, n_threads=thread_count(options.n_threads))


def training_stages(split: Split, plan: TrainingPlan, options: RunOptions) -> list[Stage]:
    """Return the stages of a training, in order."""
    trainings = member_trainings(split.train, plan, options)
    stages = [stage for training in trainings for stage in training.stages]
    stages += [CALIBRATION] if plan.members else []
    return stages + ([interaction_stage(plan.implicit)] if plan.implicit is not None else [])


# -- the ensemble ----------------------------------------------------------------------------------


def predict_members(
    members: Sequence[TrainedMember], valid: Dataset
) -> list[ValidationPredictions]:
    """Return the members' predictions of the validation part; none without one."""
    if len(valid) == 0:
        return []
    seed = members[0].plan.training.seed if members else 0
    return [predict_validation(member.selected, valid, seed=seed) for member in members]


def calibrate_ensemble(
    members: Sequence[TrainedMember],
    predictions: Sequence[ValidationPredictions],
    weights: Weights,
    split: Split,
) -> CalibrationResult:
    """Return the calibration of the weighted members, and their validation metrics."""
    if not predictions:
        return CalibrationResult(None, None, {})
    mixed = mix_predictions(predictions, weights)
    knows_users = any("user" in member.selected.training_counts for member in members)
    result = calibrate(mixed, split.valid, knows_users=knows_users)
    baseline = baseline_rmse(split.train, split.valid)
    return result._replace(metrics=result.metrics | {"means_rmse": baseline})


def assemble(
    split: Split,
    plan: TrainingPlan,
    members: Sequence[TrainedMember],
    weights: Weights,
    calibration: CalibrationResult,
) -> FittedModel:
    """Return one model of all members that have a weight."""
    context = split.train.concat(split.valid).concat(split.fold_in)
    if not members:
        return FittedModel((), IMPLICIT, context, count_training_ratings(("user",), split.train))
    used = used_members(members, weights)
    models = [members[number].final for number in used]
    return replace(
        models[0],
        members=tuple(member for model in models for member in model.members),
        side=",".join(dict.fromkeys(members[number].plan.side for number in used)),
        context=context,
        training_counts={axis: n for model in models for axis, n in model.training_counts.items()},
        calibration=calibration.known,
        calibration_of_new=calibration.new,
        member_weights=()
        if plan.ensemble_weighting == "equal"
        else tuple(weights[n] for n in used),
    )


def used_members(members: Sequence[TrainedMember], weights: Weights) -> list[int]:
    """Return the numbers of the members with a weight for known or for new users."""
    return [number for number in range(len(members)) if max(weights[number]) > 0]


# -- metadata --------------------------------------------------------------------------------------


def run_metadata(
    split: Split,
    plan: TrainingPlan,
    members: Sequence[TrainedMember],
    predictions: Sequence[ValidationPredictions],
    weights: Weights,
    calibration: CalibrationResult,
    options: RunOptions,
) -> dict[str, Any]:
    """Return the metadata of model.json on a training. All of it is JSON."""
    train = split.train
    facts: dict[str, Any] = {
        "data": {"source": train.source, "users": train.n_users, "items": train.n_items},
        "ratings": {"train": len(train), "valid": len(split.valid), "test": len(split.test)},
        "context": "train + valid + fold-in" if len(split.fold_in) else "train + valid",
        "history": [],
    }
    if members:
        facts |= _member_metadata([members[number] for number in used_members(members, weights)])
        facts |= {"seconds": round(_total_seconds(members, plan), 2), "valid": calibration.metrics}
        if plan.ensemble_weighting != "equal":
            facts["tried"] = member_scores(members, predictions, weights, split.valid)
    elif plan.implicit is not None:
        facts["run"] = {
            "side": IMPLICIT,
            "settings": {"seed": plan.implicit.seed},
            "data": split.data,
            "split": {"name": split.name, "fingerprint": split.fingerprint},
            "threads": options.n_threads,
            "version": __version__,
        }
    return facts


def _member_metadata(members: Sequence[TrainedMember]) -> dict[str, Any]:
    first = members[0]
    n_seeds = sum(member.plan.label == first.plan.label for member in members)
    facts = {
        "run": first.identity | ({"seeds": n_seeds} if n_seeds > 1 else {}),
        "epochs": first.state.epoch,
        "best_epoch": first.state.best_epoch,
        "refit": all(member.refitted for member in members),
        "history": first.state.history,
    }
    if len(members) == 1:
        return facts
    return facts | {
        "history": [
            {"member": number, **record}
            for number, member in enumerate(members)
            for record in member.state.history
        ],
        "members": [
            {
                "seed": member.plan.training.seed,
                "side": member.plan.side,
                "best_epoch": member.state.best_epoch,
                "best_rmse": (member.state.best or {}).get("rmse"),
            }
            for member in members
        ],
    }


def _total_seconds(members: Sequence[TrainedMember], plan: TrainingPlan) -> float:
    """Return the time of all members; some may have been trained at the same time."""
    if plan.ensemble_weighting == "select":
        ends = [member.finished_at for member in members]
        return max(ends) - min(member.finished_at - member.seconds for member in members)
    return sum(member.seconds for member in members)
