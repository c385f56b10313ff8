"""Members of an ensemble: trained one after another or at the same time, weighted and pruned.

Members that differ in their seeds alone are a group and have equal weights. Groups have the weights
with which the validation part is predicted with the smallest squared error: once for known users,
once for the same users predicted as new ones. A small validation part says little, so the weights
are drawn towards equal ones, or towards the priors of the members, among the groups that are not
significantly worse than the best.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from cfnade.data.dataset import Dataset
from cfnade.data.splits import Split
from cfnade.evaluation.rating_metrics import rmse
from cfnade.fitted_model import FittedModel
from cfnade.kernels.threads import thread_count, torch_threads
from cfnade.training.calibration import Predictions, ValidationPredictions, mix_predictions
from cfnade.training.callbacks import Callback
from cfnade.training.member import MemberTraining, TrainedMember, check_init_model
from cfnade.training.options import RunOptions
from cfnade.training.plan import MemberPlan, TrainingPlan, member_seconds
from cfnade.training.state import StateStore, member_folder

FloatArray = npt.NDArray[np.float64]
Weights = tuple[tuple[float, float], ...]
"""Of each member for known and for new users."""

AT_ONCE = 2
"""Members trained at the same time by an automatic plan, each with its part of the threads."""

PRIOR_RATINGS = 2_000
"""Weight of the prior, in validation ratings."""

STANDARD_ERRORS = 1.0
"""A group behind the best by more standard errors does not take part in the prior."""

MIN_WEIGHT = 0.05
"""A group with a smaller weight, for known and for new users, is left out."""

MIN_GAIN = 5e-4
"""Fraction of the squared error by which a stage must improve it: members enlarge a model."""


# -- training --------------------------------------------------------------------------------------


def train_members(
    split: Split, plan: TrainingPlan, options: RunOptions, callback: Callback
) -> list[TrainedMember]:
    """Train the members of a plan, in order; fewer if training was stopped before the last ones.

    Each has its own seed and threads, so results do not depend on timing.
    """
    trainings = member_trainings(split.train, plan, options)
    if options.init_model is not None:
        check_init_model(trainings, options.init_model, split.train.scale)

    def train_one(training: MemberTraining) -> TrainedMember | None:
        if training.number and options.should_stop():
            return None
        with torch_threads(thread_count(training.options.n_threads)):
            return training.train(split, callback)

    at_once = _at_once(plan, options)
    if at_once == 1:  # on the calling thread, which receives interrupts
        members = list(map(train_one, trainings))
    else:
        with ThreadPoolExecutor(at_once, "member") as pool:
            members = list(pool.map(train_one, trainings))
    return [member for member in members if member is not None]


def member_trainings(
    ratings: Dataset, plan: TrainingPlan, options: RunOptions
) -> list[MemberTraining]:
    """Return the training of each member, with its part of the threads and its own state."""
    n_threads, at_once = thread_count(options.n_threads), _at_once(plan, options)
    threads_each, extra = divmod(n_threads, at_once)
    trainings, seconds = [], member_seconds(ratings, plan)
    for number, member in enumerate(plan.members):
        threads = threads_each + (number % at_once < extra)  # none is idle if they do not divide
        store = member_store(options.store, number)
        training = MemberTraining.from_plan(
            member,
            number,
            replace(options, n_threads=threads, store=store),
            seconds=seconds[number],
            numbered=len(plan.members) > 1,
        )
        trainings.append(training)
    return trainings


def _at_once(plan: TrainingPlan, options: RunOptions) -> int:
    if plan.ensemble_weighting != "select":
        return 1
    return min(AT_ONCE, thread_count(options.n_threads), len(plan.members))


def member_store(store: StateStore | None, number: int) -> StateStore | None:
    """Return where a member's state is saved; one that was not begun has no state to resume."""
    if store is None or number == 0:
        return store
    store = replace(store, folder=member_folder(store.folder, number))
    return replace(store, resume=store.resume and store.exists())


# -- weights ---------------------------------------------------------------------------------------


def ensemble_weights(
    members: Sequence[TrainedMember],
    predictions: Sequence[ValidationPredictions],
    valid: Dataset,
    weighting: str,
) -> Weights:
    """Return the weights of trained members by `TrainingPlan.ensemble_weighting`.

    Without a validation part they are equal.
    """
    if not members:
        return ()
    groups = member_groups([member.plan for member in members])
    if weighting == "equal" or len(valid) == 0:
        return equal_weights(groups)
    priors = [_prior(member.selected) for member in members]
    if weighting == "fit":
        return fit_weights(predictions, groups, valid, priors)
    stages = [member.plan.stage for member in members]
    return select_stages(predictions, groups, stages, valid, priors)


def fit_weights(
    predictions: Sequence[ValidationPredictions],
    groups: Sequence[int],
    valid: Dataset,
    priors: Sequence[float] | None = None,
    *,
    prune: bool = False,
) -> Weights:
    """Return the weights with the smallest squared error of the validation part.

    Args:
        predictions: Those of each member.
        groups: Numbers of the members' groups, from 0.
        valid: The validation part.
        priors: Relative weight of each member where validation cannot decide; None: equal.
        prune: Whether groups with a small weight get none.

    Members that cannot predict for new users get no weight for them, if others can.
    """
    G, values = max(groups) + 1, valid.scale.array()
    prior = np.ones(G)
    prior[list(groups)] = 1.0 if priors is None else priors
    known = _GroupMeans(
        {n: member.known for n, member in enumerate(predictions)}, groups, values, prior
    )
    few_ratings = {n: member.new for n, member in enumerate(predictions) if member.new is not None}
    folding_in = np.isin(np.arange(G), [groups[n] for n in few_ratings])
    new = known
    if folding_in.any() and all(len(member.levels) for member in few_ratings.values()):
        new = _GroupMeans(few_ratings, groups, values, prior)
    if not folding_in.any():
        folding_in[:] = True
    weights = known.weights(np.ones(G, bool)), new.weights(folding_in)
    if prune:
        used = (weights[0] >= MIN_WEIGHT) | (weights[1] >= MIN_WEIGHT)
        weights = known.weights(used), new.weights(used & folding_in)
    return _member_weights(groups, *weights)


def select_stages(
    predictions: Sequence[ValidationPredictions],
    groups: Sequence[int],
    stages: Sequence[int],
    valid: Dataset,
    priors: Sequence[float],
) -> Weights:
    """Return the weights of members that were planned in stages, without those that add little.

    A stage is used only if members up to it predict the validation part better than members up to
    any stage before, by MIN_GAIN: further members cannot make the validation score worse. This is
    decided for known and for new users separately.
    """
    columns: list[list[float]] = [[], []]
    lowest = [np.inf, np.inf]
    for last in sorted(set(stages)):
        included = [n for n, stage in enumerate(stages) if stage <= last]
        numbers = sorted({groups[n] for n in included})
        weights = fit_weights(
            [predictions[n] for n in included],
            [numbers.index(groups[n]) for n in included],
            valid,
            [priors[n] for n in included],
            prune=True,
        )
        ensemble = mix_predictions([predictions[n] for n in included], weights)
        for column, mixed in enumerate((ensemble.known, ensemble.new or ensemble.known)):
            error = _squared_error(mixed, valid)
            if not columns[column] or error < (1 - MIN_GAIN) * lowest[column]:
                lowest[column] = error
                columns[column] = [0.0] * len(predictions)
                for n, pair in zip(included, weights, strict=True):
                    columns[column][n] = pair[column]
    return tuple(zip(*columns, strict=True))


def _squared_error(predictions: Predictions, valid: Dataset) -> float:
    """Return the mean squared error of expected ratings; 0 without any."""
    if not len(predictions.levels):
        return 0.0
    values = valid.scale.array()
    return float(np.square(predictions.probabilities @ values - values[predictions.levels]).mean())


def member_groups(plans: Sequence[MemberPlan]) -> list[int]:
    """Return group numbers from 0: plans that differ in their seeds alone have the same."""
    seedless = [replace(plan, training=replace(plan.training, seed=0), stage=0) for plan in plans]
    groups: list[MemberPlan] = []
    for plan in seedless:
        if plan not in groups:
            groups.append(plan)
    return [groups.index(plan) for plan in seedless]


def equal_weights(groups: Sequence[int]) -> Weights:
    """Return equal weights of all groups."""
    equal = np.full(max(groups) + 1, 1 / (max(groups) + 1))
    return _member_weights(groups, equal, equal)


def _member_weights(groups: Sequence[int], known: FloatArray, new: FloatArray) -> Weights:
    """Return the weights of members from those of their groups."""
    return tuple(
        (float(known[group]) / groups.count(group), float(new[group]) / groups.count(group))
        for group in groups
    )


class _GroupMeans:
    """Expected ratings of each group, and the true ones."""

    def __init__(
        self,
        predictions: Mapping[int, Predictions],
        groups: Sequence[int],
        values: FloatArray,
        prior: FloatArray,
    ) -> None:
        self._prior = prior  # (G,)
        first = next(iter(predictions.values()))
        self._truth = values[first.levels]  # (n,)
        self._means = np.zeros((len(self._truth), max(groups) + 1))  # 0 without predictions
        for group in {groups[n] for n in predictions}:
            means = [
                member.probabilities @ values
                for n, member in predictions.items()
                if groups[n] == group
            ]
            self._means[:, group] = np.mean(means, axis=0)

    def weights(self, among: npt.NDArray[np.bool_]) -> FloatArray:
        """Return the weights of all groups, (G,); 0 of those that are not among."""
        out, count = np.zeros(len(among)), len(self._truth)
        best = least_squares_weights(self._means[:, among], self._truth)
        prior = self._not_worse(among) * self._prior[among]
        out[among] = (count * best + PRIOR_RATINGS * prior / prior.sum()) / (count + PRIOR_RATINGS)
        return out

    def _not_worse(self, among: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Return which groups are not significantly worse than the best."""
        errors = np.square(self._means[:, among] - self._truth[:, None])  # (n, G)
        behind = errors - errors[:, [int(errors.mean(0).argmin())]]
        standard_error = behind.std(0) / np.sqrt(len(behind))
        return np.asarray(behind.mean(0) <= STANDARD_ERRORS * standard_error)


def least_squares_weights(predictions: FloatArray, truth: FloatArray) -> FloatArray:
    """Return the weights of columns (n, G), non-negative with sum 1, of least squared error. (G,).

    There are few groups, so every subset is tried.
    """
    G = predictions.shape[1]
    errors = predictions - truth[:, None]
    products = errors.T @ errors / len(truth)  # the squared error of weights w is w·products·w
    best, lowest = np.full(G, 1 / G), np.inf
    for size in range(1, G + 1):
        for subset in map(list, combinations(range(G), size)):
            part = products[np.ix_(subset, subset)] + 1e-12 * np.eye(size)
            weights = np.linalg.solve(part, np.ones(size))
            weights /= weights.sum()
            error = float(weights @ part @ weights)
            if (weights >= 0).all() and error < lowest - 1e-12:
                best, lowest = np.zeros(G), error
                best[subset] = weights
    return best


def _prior(model: FittedModel) -> float:
    """Return the weight of a member where validation cannot decide."""
    return max(component.prior_weight for component in model.members[0].components.values())


def member_scores(
    members: Sequence[TrainedMember],
    predictions: Sequence[ValidationPredictions],
    weights: Weights,
    valid: Dataset,
) -> list[dict[str, Any]]:
    """Return side, validation RMSE, weights and time of every member, also of those left out."""
    values = valid.scale.array()
    errors = [rmse(valid.values, member.known.probabilities @ values) for member in predictions]
    return [
        {
            "side": member.plan.label,
            "valid_rmse": errors[number] if errors else None,
            "seconds": round(member.seconds, 2),
            "share": round(known, 4),
            "share_of_new": round(new, 4),
        }
        for number, (member, (known, new)) in enumerate(zip(members, weights, strict=True))
    ]
