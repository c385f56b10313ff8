"""Turn the parameters of the estimator into a training plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from annotated_types import Ge, Gt

from cfnade.config import TrainingConfig
from cfnade.data.dataset import Dataset
from cfnade.exceptions import TrainingError
from cfnade.fitted_model import FittedModel
from cfnade.recipes import default_recipe, training_config
from cfnade.training.implicit import implicit_plan
from cfnade.training.plan import (
    TrainingPlan,
    is_automatic,
    plan_automatic,
    plan_continuation,
    plan_implicit,
    plan_side,
)
from cfnade.utils.validation import check_scalar

Parameters = Mapping[str, Any]

ARCHITECTURE = (
    *("ridge", "samples", "hidden", "factors", "shared", "activation"),
    *("context_scale", "target_weight", "ordinal_weight"),
)
"""Parameters that are fields of a component."""
_MODEL = (*ARCHITECTURE, "use_timestamps", "n_seeds")
_OPTIONAL = (
    *("epochs", "batch_rows", "learning_rate", "weight_decay"),
    *("schedule", "average", "patience"),
)
TRAINING = (*_OPTIONAL, "refit", "seed")
"""Parameters that are fields of TrainingConfig; the optional ones default to the recipe's."""


def plan_from_parameters(
    parameters: Parameters,
    changed: Parameters,
    ratings: Dataset,
    init_model: FittedModel | None = None,
) -> TrainingPlan:
    """Return what to train.

    Args:
        parameters: All parameters of the estimator.
        changed: Those that are not the defaults.
        ratings: The training part.
        init_model: A model to continue.
    """
    plan = _plan(parameters, changed, ratings, init_model)
    return plan.with_metric(parameters["metric"], parameters["k"])


def _plan(
    parameters: Parameters,
    changed: Parameters,
    ratings: Dataset,
    init_model: FittedModel | None,
) -> TrainingPlan:
    side, seed = parameters["side"], parameters["seed"]
    if ratings.implicit:
        _refuse_rating_parameters(changed)
        minutes = parameters["time_budget"]
        if minutes is not None:
            check_scalar("time_budget", minutes, float, Gt(0), error=TrainingError)
        return TrainingPlan(implicit=implicit_plan(ratings, seed=seed, time_budget=minutes))
    described = {name: changed[name] for name in _MODEL if name in changed}
    if init_model is None:
        further = {
            name: changed[name] for name in (*_OPTIONAL, "training_options") if name in changed
        }
        if is_automatic(side, parameters["time_budget"], described | further):
            return plan_automatic(
                ratings,
                time_budget=parameters["time_budget"],
                seed=seed,
                refit=parameters["refit"],
                learn_interactions=parameters["learn_interactions"],
            )
    elif parameters["time_budget"] is not None:
        raise TrainingError(
            f"time_budget (={parameters['time_budget']!r}) is for a model that is trained from the "
            "start; leave it out, or init_model"
        )
    elif is_automatic(side, None, described):
        values = {name: parameters[name] for name in TRAINING if parameters[name] is not None}
        plan = plan_continuation(init_model, values | dict(parameters["training_options"] or {}))
        implicit = plan_implicit(ratings, parameters["learn_interactions"], plan.members, seed=seed)
        return replace(plan, implicit=implicit)
    plan = plan_side(
        side, model_fields(parameters), training_options(parameters), n_seeds=parameters["n_seeds"]
    )
    implicit = plan_implicit(ratings, parameters["learn_interactions"], plan.members, seed=seed)
    return replace(plan, implicit=implicit)


def model_fields(parameters: Parameters) -> dict[str, Any]:
    """Return the fields of a model; None where the side's default recipe decides."""
    values = {name: parameters[name] for name in ARCHITECTURE} | {
        "time": parameters["use_timestamps"]
    }
    values = {
        name: value for name, value in values.items() if value is not None or name == "factors"
    }
    recipe = default_recipe(parameters["side"], _checked_ridge(parameters))
    return recipe.model | values


def training_options(parameters: Parameters) -> TrainingConfig:
    """Return the training options; None where the side's default recipe decides."""
    further = parameters["training_options"]
    further = {} if further is None else further
    if not isinstance(further, Mapping):
        raise TrainingError(
            f"training_options (={further!r}) must be a mapping of training options to values, "
            'such as {"smoothing": 10}'
        )
    for name in further:
        if name in TRAINING:
            raise TrainingError(
                f"training_options contain {name!r}, which is a parameter itself; write "
                f"CFNADE({name}={further[name]!r})"
            )
    values = {name: parameters[name] for name in TRAINING if parameters[name] is not None}
    recipe = default_recipe(parameters["side"], _checked_ridge(parameters))
    return training_config(recipe.training.to_dict() | values | dict(further), "CFNADE")


def _checked_ridge(parameters: Parameters) -> int | None:
    ridge: int | None = parameters["ridge"]
    if ridge is not None:
        check_scalar("ridge", ridge, int, Ge(0), error=TrainingError)
    return ridge


def _refuse_rating_parameters(changed: Parameters) -> None:
    """Refuse parameters of rating models for data without ratings."""
    names = [*_MODEL, *_OPTIONAL, "training_options", "side"]
    if changed.get("learn_interactions") is False:
        names.append("learn_interactions")
    for name in names:
        if name in changed:
            raise TrainingError(
                f"{name} (={changed[name]!r}) is for ratings, and these data are interactions "
                "without any; leave it out"
            )
