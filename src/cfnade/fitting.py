"""What an estimator trains on and how: its arguments as settings, and back from a trained model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from annotated_types import Ge, Le

from cfnade.config import TrainingConfig
from cfnade.data.dataset import pair_keys
from cfnade.data.merge import merge
from cfnade.data.readers.frames import join_target
from cfnade.data.split_protocols import TRAIN, VALID, add_validation
from cfnade.data.splits import Split, apply_labels
from cfnade.exceptions import DataError, TrainingError
from cfnade.fitted_model import FittedModel
from cfnade.models.config import CFNADEConfig
from cfnade.native import read
from cfnade.parameters import as_given
from cfnade.recipes import Recipe, default_recipe, training_config
from cfnade.training.plan import is_automatic, member_fields
from cfnade.utils.validation import check_scalar

ARCHITECTURE = (
    *("ridge", "hidden", "factors", "shared", "activation"),
    *("context_scale", "target_weight", "ordinal_weight"),
)
TRAINING = (
    *("epochs", "batch_rows", "learning_rate", "weight_decay", "schedule"),
    *("average", "patience", "refit", "seed"),
)
"""The arguments that are fields of the model, and those that are fields of TrainingConfig."""

_SAID = (*ARCHITECTURE, *(name for name in TRAINING if name not in ("refit", "seed")))
_SAID += ("time", "seeds", "settings")
"""The arguments that say what a model is."""

_PLAIN = {"ridge": 0, "ordinal_weight": CFNADEConfig.ordinal_weight}
_BY_RECIPE = ("ridge", "hidden", "ordinal_weight")
_OPTIONAL = TRAINING[: TRAINING.index("refit")]  # None is what the side's default recipe says


def parts_of(data: Any, valid: Any, seed: int) -> Split:
    """What to train on and what to choose by."""
    check_scalar("seed", seed, int, Ge(0), Le(2**63 - 1), error=TrainingError)
    if isinstance(data, Split):
        if valid is not None:
            raise TrainingError("a Split has a validation part already; give no valid beside it")
        return data
    if valid is not None:
        joined = join_target(data, valid)  # fit(X, y)
        data, valid = (data, valid) if joined is None else (joined, None)
    ratings = read(data)
    if valid is None:
        parts = np.full(len(ratings), TRAIN, np.uint8)
        return apply_labels(ratings, add_validation(parts, seed), f"5 % validation, seed {seed}")
    chosen_by = read(valid, ratings.scale)
    both = merge(ratings, chosen_by)
    cells = pair_keys(both.users, both.items, both.n_items)
    if repeated := len(cells) - len(np.unique(cells)):
        raise DataError(
            f"{repeated:,} of {len(chosen_by):,} validation ratings are of a user and an item that "
            "the training data rates too; take them out of one of the two"
        )
    return apply_labels(
        both, np.repeat(_LABELS, [len(ratings), len(chosen_by)]), "validation given"
    )


_LABELS = np.array([TRAIN, VALID], np.uint8)


def automatic(given: Mapping[str, Any], usual: Mapping[str, Any]) -> bool:
    """Whether the members are to be chosen. given are all arguments, usual their defaults."""
    said = {name: given[name] for name in _SAID if given[name] != usual[name]}
    return is_automatic(given["side"], given["minutes"], said)


def describes_model(given: Mapping[str, Any], usual: Mapping[str, Any]) -> bool:
    """Return whether an argument says what the model is, apart from how it is trained."""
    names = (*ARCHITECTURE, "time", "seeds", "side")
    return any(given[name] != usual[name] and given[name] != "auto" for name in names)


def training_arguments(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the training options among the arguments."""
    own = {name: given[name] for name in TRAINING if given[name] is not None}
    return own | dict(given["settings"] or {})


def refuse_said(given: Mapping[str, Any], usual: Mapping[str, Any]) -> None:
    """Interactions have no ratings: nothing said of a model of ratings makes sense."""
    names = (*_SAID, "side", "minutes")
    said = [name for name in names if given[name] != usual[name] and given[name] != "auto"]
    if said or given["lists"] is False:
        name = said[0] if said else "lists"
        raise TrainingError(
            f"{name} (={given[name]!r}) is for ratings, and these data are interactions without "
            "any; leave it out"
        )


# -- arguments -----------------------------------------------------------------------------------


def fields_of(side: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The model's fields from arguments, None where the side's default recipe decides."""
    own = {name: value for name, value in given.items() if value is not None or name == "factors"}
    return _usual(side, given["ridge"]).model | own


def _usual(side: str, ridge: Any) -> Recipe:
    """What a side's arguments are if nothing is said."""
    if ridge is not None:
        check_scalar("ridge", ridge, int, Ge(0), error=TrainingError)
    return default_recipe(side, ridge)


def settings_of(side: str, given: Mapping[str, Any], extra: Any, ridge: Any) -> TrainingConfig:
    """From arguments, None where the side's default recipe decides, and rarer settings."""
    extra = {} if extra is None else extra
    if not isinstance(extra, Mapping):
        raise TrainingError(
            f"settings (={extra!r}) must be a mapping of training settings to values, such as "
            '{"smoothing": 10}'
        )
    for name in extra:
        if name in TRAINING:
            raise TrainingError(
                f"settings hold {name!r}, which is an argument itself; write "
                f"CFNADE({name}={extra[name]!r})"
            )
    own = {name: value for name, value in given.items() if value is not None}
    usual = _usual(side, ridge).training.to_dict()
    return training_config(usual | own | dict(extra), "CFNADE")


def arguments_of(fitted: FittedModel) -> dict[str, Any]:
    """Return the arguments that give a model again which the command line trained.

    They follow from what it says of its training; an estimator saves its own.
    """
    run = fitted.facts.get("run", {})
    if not fitted.rates:
        return {"seed": run["settings"]["seed"], "threads": run.get("threads")}
    if "auto" in fitted.facts:
        own = {"minutes": fitted.facts["auto"]["minutes"], "seed": run["settings"]["seed"]}
        own |= {name: fitted.facts["auto"][name] for name in ("lists", "refit")}
        return own | {"threads": run.get("threads"), "device": run.get("device", "cpu")}
    fields = {"ridge": 0} | member_fields(fitted.answering[0])
    base = default_recipe(fitted.side, fields["ridge"])
    usual, model = base.training.to_dict(), _PLAIN | base.model
    settings = TrainingConfig.from_dict(run["settings"]).to_dict() if "settings" in run else usual
    rare = {name: settings[name] for name in settings if name not in TRAINING}
    rare = {name: value for name, value in rare.items() if value != usual[name]}
    return {
        "side": fitted.side,
        **{
            name: _unless_usual(as_given(fields[name]), model.get(name))
            if name in _BY_RECIPE
            else as_given(fields[name])
            for name in ARCHITECTURE
            if name in fields
        },
        **{
            name: _unless_usual(settings[name], usual[name])
            for name in TRAINING
            if name in _OPTIONAL
        },
        **{name: settings[name] for name in TRAINING if name not in _OPTIONAL},
        "time": fitted.needs_times,
        "seeds": len(fitted.answering) - fitted.side.count(","),
        "settings": rare or None,
        "lists": True if fitted.interaction_model is not None else None,
        "threads": run.get("threads"),
        "device": run.get("device", "cpu"),
    }


def _unless_usual(value: Any, usual: Any) -> Any:
    return None if value == usual else value
