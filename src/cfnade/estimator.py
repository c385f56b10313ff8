"""CFNADE: ratings in, predictions out, by the conventions of scikit-learn.

The work is done elsewhere: load() reads, train() trains, Predictor answers, checkpoint keeps.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self

import numpy as np
import numpy.typing as npt

from cfnade import checkpoint
from cfnade.config import TrainingConfig
from cfnade.data.scale import Scale
from cfnade.data.splits import Split
from cfnade.exceptions import CfnadeError, CheckpointError, PredictionError, TrainingError
from cfnade.fitted_model import FittedModel
from cfnade.inference.predictor import Predictor
from cfnade.native import kind_of
from cfnade.parameters import Arguments, restored_arguments, saved_arguments
from cfnade.questions import Questions

if TYPE_CHECKING:  # what trains imports torch, which takes longer than everything else
    from cfnade.training.callbacks import Callback
    from cfnade.training.plan import TrainingPlan

FloatArray = npt.NDArray[np.float64]

_log = logging.getLogger("cfnade")


class NotFittedError(PredictionError, AttributeError):
    """Asked before fit(); an AttributeError too, so that hasattr() says what is there."""


@dataclass(kw_only=True, eq=False, repr=False)
class CFNADE(Arguments, Questions):
    """Learns how people rate, and gives the distribution of a rating that was not given.

    Arguments are stored as they are and checked by fit(). What ends in an underscore is there
    after fit() or load().
    """

    fitted_: FittedModel = field(init=False)
    """The model with all that a prediction needs; fitted_.facts says how it was trained."""
    predictor_: Predictor = field(init=False)
    history_: list[dict[str, Any]] = field(init=False)
    """One record an epoch: cost, valid_rmse, best_rmse, best_epoch, rate, seconds."""
    diverged_: str | None = field(init=False)
    """Why training ended early with the best weights so far, if it did."""
    scale_: Scale = field(init=False)
    classes_: FloatArray = field(init=False)  # (K,) ratings that the columns of predict_proba mean
    n_users_: int = field(init=False)
    n_items_: int = field(init=False)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            if name in _FITTED:
                raise NotFittedError(
                    f"this CFNADE is not fitted, so there is no {name}; call fit(ratings) first, "
                    "or take a saved one with CFNADE.load(folder)"
                )
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    # -- training -----------------------------------------------------------------------------

    def fit(
        self,
        data: Any,
        valid: Any = None,
        *,
        init_model: CFNADE | str | Path | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> Self:
        """Train on ratings or interactions.

        Args:
            data: Ratings, a Split, or anything that load() takes. fit(X, y) takes users and items
                in the two columns of X, and their ratings in y. The test part of a Split is not
                used.
            valid: Ratings to select the best epoch and to calibrate by. Without them, 5 % of the
                data, sampled by the seed, are held out. Later predictions condition on both.
            init_model: A trained model or its folder. Training continues with its weights; users
                and items are matched by id. Data must hold all ratings to condition on, the
                earlier ones too. Without arguments that describe a model, it stays as it is.
            callbacks: Objects that receive the progress, such as
                cfnade.integrations.callbacks.TensorBoardCallback("runs/mine").
        """
        from cfnade import fitting
        from cfnade.training.options import RunOptions
        from cfnade.training.progress import ProgressCallback
        from cfnade.training.train import train
        from cfnade.training.validation import warn_below_baseline

        split = fitting.parts_of(data, valid, self.seed)
        self._fitted_to = kind_of(data)
        earlier = _fitted_of(init_model)
        options = RunOptions(
            n_threads=self.threads,
            device=self.device,
            init_model=earlier,
            callbacks=[*callbacks, *([ProgressCallback()] if self.verbose else [])],
        )
        trained = train(split, self._plan(split, earlier), options)
        if trained.diverged is not None:
            _log.warning("%s; the best weights before that were kept", trained.diverged)
        if (warning := warn_below_baseline(trained.model.facts)) is not None:
            _log.warning(warning)
        facts = trained.model.facts | {"diverged": trained.diverged}
        return self._adopt(self._with_arguments(replace(trained.model, facts=facts)))

    def _with_arguments(self, fitted: FittedModel) -> FittedModel:
        """Return the model with the arguments of this estimator, for `load`."""
        arguments = saved_arguments(self.get_params())
        return replace(fitted, facts=fitted.facts | {"arguments": arguments})

    def _plan(self, split: Split, init_model: FittedModel | None) -> TrainingPlan:
        """Return what to train."""
        from cfnade import fitting
        from cfnade.training.plan import (
            TrainingPlan,
            plan_automatic,
            plan_continuation,
            plan_implicit,
            plan_side,
        )

        ratings, seed = split.train, self.seed
        if ratings.implicit:
            fitting.refuse_said(self.get_params(), self.usual_params())
            return TrainingPlan(implicit=plan_implicit(ratings, True, (), seed=seed))
        if init_model is not None and self.minutes is not None:
            raise TrainingError(
                f"minutes (={self.minutes!r}) is for a model that is trained from the start; leave "
                "it out, or init_model"
            )
        automatic = fitting.automatic(self.get_params(), self.usual_params())
        if automatic and init_model is None:
            return plan_automatic(
                ratings,
                time_budget=self.minutes,
                seed=seed,
                refit=self.refit,
                learn_interactions=self.lists,
            )
        described = fitting.describes_model(self.get_params(), self.usual_params())
        if init_model is not None and not described:
            plan = plan_continuation(init_model, fitting.training_arguments(self.get_params()))
        else:
            plan = plan_side(
                self.side or "user", self._fields(), self._settings(), n_seeds=self.seeds
            )
        implicit = plan_implicit(ratings, self.lists, plan.members, seed=seed)
        return replace(plan, implicit=implicit)

    def _fields(self) -> dict[str, Any]:
        from cfnade.fitting import ARCHITECTURE, fields_of

        arguments = {name: getattr(self, name) for name in (*ARCHITECTURE, "time")}
        return fields_of(self.side or "user", arguments)

    def _settings(self) -> TrainingConfig:
        from cfnade.fitting import TRAINING, settings_of

        arguments = {name: getattr(self, name) for name in TRAINING}
        return settings_of(self.side or "user", arguments, self.settings, self.ridge)

    def _adopt(self, fitted: FittedModel) -> Self:
        self.predictor_ = Predictor(fitted)
        self.fitted_ = fitted
        self.history_ = fitted.facts.get("history", [])
        self.diverged_ = fitted.facts.get("diverged")
        self.scale_ = fitted.context.scale
        self.classes_ = self.scale_.array()
        self.n_users_, self.n_items_ = fitted.context.n_users, fitted.context.n_items
        return self

    # -- other processes ----------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        """Arguments and the model: what a predictor keeps beside them is made anew."""
        kept = self.get_params() | {"_output": self._output, "_fitted_to": self._fitted_to}
        return kept | ({"fitted_": self.fitted_} if "fitted_" in self.__dict__ else {})

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update({name: state[name] for name in state if name != "fitted_"})
        if "fitted_" in state:
            self._adopt(state["fitted_"])

    # -- keeping ------------------------------------------------------------------------------

    def save(self, folder: str | Path, *, with_context: bool = True) -> None:
        """Write the fitted model into a folder; docs/checkpoint.md has the format.

        Without context no one's ratings are in it; then only histories can be answered.
        """
        checkpoint.save(self.fitted_, folder, with_context=with_context)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """A fitted estimator from a folder, with the arguments that it was trained with."""
        fitted = checkpoint.load(folder)
        try:
            return cls(**_arguments_of(fitted))._adopt(fitted)
        except (CfnadeError, TypeError, AttributeError, LookupError) as error:
            raise CheckpointError(
                f"{folder}: its training arguments cannot be used: {error}"
            ) from error


_FITTED = frozenset(option.name for option in fields(CFNADE) if not option.init)


def _arguments_of(fitted: FittedModel) -> dict[str, Any]:
    """Return the arguments that a model was trained with."""
    saved = fitted.facts.get("arguments")
    if saved is not None:
        return restored_arguments(saved)
    from cfnade.fitting import arguments_of

    return arguments_of(fitted)


def _fitted_of(init_model: CFNADE | str | Path | None) -> FittedModel | None:
    if init_model is None:
        return None
    return init_model.fitted_ if isinstance(init_model, CFNADE) else checkpoint.load(init_model)
