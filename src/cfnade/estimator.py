"""CFNADE: ratings in, predictions out, by the conventions of scikit-learn.

The work is done elsewhere: load() reads, train() trains, Predictor answers, checkpoint keeps.
"""

from __future__ import annotations

import logging
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
    from cfnade.training.loop import Reporter
    from cfnade.training.run import Plan

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
        start: CFNADE | str | Path | None = None,
        reporter: Reporter | None = None,
    ) -> Self:
        """Train on ratings: Ratings, a Split, or anything that load() takes.

        fit(X, y) takes users and items in the two columns of X, and their ratings in y.

        valid are ratings to choose the best epoch and to calibrate by; without them 5 % of the
        data, drawn by the seed, are held back for that. A Split brings its own; its test part is
        not touched. Later predictions condition on both. start is an earlier model (or its folder)
        whose weights this one takes over where ids are the same; data must then hold all ratings
        to condition on, the earlier ones too. reporter is told of every step and epoch, such as
        cfnade.journals.TensorBoard("runs/mine").
        """
        from cfnade import fitting
        from cfnade.training.floor import behind_means
        from cfnade.training.run import checked_seeds, train

        split = fitting.parts_of(data, valid, self.seed)
        self._fitted_to = kind_of(data)
        if split.train.implicit:
            return self._fit_picks(split, start)
        auto = start is None and fitting.automatic(self.get_params(), self.usual_params())
        plans = self._plans(split, auto=auto)
        names = [plans[0].side] * (checked_seeds(self.seeds) - 1) + [plan.side for plan in plans]
        trained = train(
            split,
            side=plans[0].side,
            architecture=plans[0].architecture,
            settings=plans[0].settings,
            seeds=self.seeds,
            beside=plans[1:],
            choose=auto,
            lists=fitting.lists_plan(split, self.lists, plans, auto=auto, seed=self.seed),
            start=_fitted_of(start),
            device=self.device,
            threads=self.threads,
            reporter=_told(reporter, fitting.EpochLines(names) if self.verbose else None),
            say=print if self.verbose else _nothing,
        )
        if trained.diverged is not None:
            _log.warning("%s; the best weights before that were kept", trained.diverged)
        if (warning := behind_means(trained.fitted.facts)) is not None:
            _log.warning(warning)
        facts = trained.fitted.facts | {"history": trained.history, "diverged": trained.diverged}
        return self._adopt(self._with_arguments(replace(trained.fitted, facts=facts)))

    def _fit_picks(self, split: Split, start: object) -> Self:
        """Of interactions, which have no ratings."""
        from cfnade import fitting
        from cfnade.training.run import train_picks

        fitting.refuse_said(self.get_params(), self.usual_params())
        if start is not None:
            raise TrainingError("start is for models of ratings; train on all interactions anew")
        plan = fitting.lists_plan(split, True, (), auto=False, seed=self.seed)
        assert plan is not None
        say = print if self.verbose else _nothing
        fitted = train_picks(split, plan, threads=self.threads, say=say).fitted
        return self._adopt(self._with_arguments(fitted))

    def _with_arguments(self, fitted: FittedModel) -> FittedModel:
        """Return the model with the arguments of this estimator, for `load`."""
        arguments = saved_arguments(self.get_params())
        return replace(fitted, facts=fitted.facts | {"arguments": arguments})

    def _plans(self, split: Split, *, auto: bool) -> list[Plan]:
        """What to train: of the first `seeds` members."""
        from cfnade import fitting
        from cfnade.recipes import member_kinds
        from cfnade.training.plan import further_member_plans
        from cfnade.training.run import Plan

        if auto:
            return fitting.chosen_plans(split, self.minutes, self.seed, self.refit)
        side, settings = self.side or "user", self._settings()
        first = Plan(member_kinds(side)[0], self._fields(), settings)
        return [first, *further_member_plans(side, settings.seed)]

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


def _told(*reporters: Reporter | None) -> Reporter | None:
    """All that there are, as one."""
    from cfnade.journals import Several

    told = [one for one in reporters if one is not None]
    return Several(*told) if told else None


def _nothing(_: str) -> None:
    """Says nothing."""


def _fitted_of(start: CFNADE | str | Path | None) -> FittedModel | None:
    if start is None:
        return None
    return start.fitted_ if isinstance(start, CFNADE) else checkpoint.load(start)
