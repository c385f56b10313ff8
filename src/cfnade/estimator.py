"""CFNADE: ratings in, predictions out, by the conventions of scikit-learn.

The work is done elsewhere: load() reads, train() trains, Predictor answers, checkpoint keeps.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self

import numpy as np
import numpy.typing as npt

from cfnade import checkpoint
from cfnade.data.scale import Scale
from cfnade.data.splits import Split
from cfnade.errors import CfnadeError, CheckpointError, PredictionError, TrainingError
from cfnade.fitted import FittedModel
from cfnade.fitting import (
    ARCHITECTURE,
    TRAINING,
    EpochLines,
    arguments_of,
    automatic,
    chosen_plans,
    fields_of,
    lists_plan,
    parts_of,
    refuse_said,
    settings_of,
)
from cfnade.options import unknown
from cfnade.predictor import Predictor
from cfnade.questions import Questions
from cfnade.recipes import kinds_in, plans_beside
from cfnade.settings import Settings
from cfnade.training.floor import behind_means
from cfnade.training.run import Plan, train, train_picks

FloatArray = npt.NDArray[np.float64]

_log = logging.getLogger("cfnade")


class NotFittedError(PredictionError, AttributeError):
    """Asked before fit(); an AttributeError too, so that hasattr() says what is there."""


@dataclass(kw_only=True, eq=False, repr=False)
class CFNADE(Questions):
    """Learns how people rate, and gives the distribution of a rating that was not given.

    Arguments are stored as they are and checked by fit(). What ends in an underscore is there
    after fit() or load().
    """

    side: str | None = None
    """Whose ratings predict a rating: "user", the person's others; "item", the item's others;
    "both"; or "auto", which tries several and lets validation say what each counts. "both,user"
    trains members of these kinds; arguments below are those of the first, the others take their
    default recipes. None is "auto" if nothing below says what the model is, else "user"."""

    minutes: float | None = None
    """How long "auto" may take, about, on two cores; None is 40 seconds for most data."""

    lists: bool | None = None
    """Whether it also learns what people pick, so that `recommend` lists what they would take up
    and like. None: if side is "auto" and it takes at most a third more time. Data without ratings
    are learnt that way alone."""

    ridge: int | None = None
    """Dimensions of the ridge part beside the network, an exact Bayesian fold-in: with it a handful
    of ratings is made the most of. 0 is the paper's model; None is 20 for side "user", else 0."""

    hidden: Sequence[int] | None = None
    """Units of each hidden layer; None is (100,) beside a ridge part, (500,) without."""

    factors: int | None = None
    """Rank of factored weights: less memory with many items (side "item": users); None is full."""

    shared: bool = True
    """Whether a level also learns from those below it."""

    activation: str = "tanh"
    """tanh, sigmoid, relu, softplus or elu."""

    context_scale: str = "sqrt"
    """"sqrt" tempers what is known of those who rated much; "sum" is the paper's."""

    target_weight: str = "unit"
    """"unit": each drawn target counts the same; "paper" gives each row the paper's weight."""

    ordinal_weight: float | None = None
    """Share of the ordinal cost, 0 to 1; the rest is plain likelihood. None is 0 beside a ridge
    part, 1 without."""

    time: bool = False
    """Whether the model knows when ratings were given. A prediction then needs times."""

    epochs: int | None = None
    batch_rows: int | None = None
    learning_rate: float | None = None
    weight_decay: float | None = None
    schedule: str | None = None
    average: float | None = None
    patience: int | None = None
    refit: bool = Settings.refit
    seed: int = Settings.seed
    """Training, as in cfnade.settings.Settings, where each is explained. None takes what
    the default recipe of the side says."""

    seeds: int = 1
    """How many models to train, from `seed` on; their distributions are averaged."""

    settings: Mapping[str, Any] | None = None
    """Rarer fields of Settings, such as {"smoothing": 10}."""

    threads: int | None = None
    """None takes torch's number. Another number may change the last bits."""

    device: str = "cpu"
    """Where to train; predictions are made on the CPU."""

    verbose: bool = False
    """Whether fit() prints a line an epoch."""

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

    # -- arguments ----------------------------------------------------------------------------

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002
        """The arguments; `deep` is scikit-learn's and changes nothing, as none is an estimator."""
        return {name: getattr(self, name) for name in _PARAMETERS}

    def set_params(self, **params: Any) -> Self:
        """Change arguments; the next fit() uses them."""
        for name in params:
            if name not in _PARAMETERS:
                raise TrainingError(unknown("argument of CFNADE", name, _PARAMETERS))
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        given = [
            f"{name}={getattr(self, name)!r}"
            for name, default in _PARAMETERS.items()
            if getattr(self, name) != default
        ]
        return f"CFNADE({', '.join(given)})"

    # -- training -----------------------------------------------------------------------------

    def fit(
        self, data: Any, valid: Any = None, *, start: CFNADE | str | Path | None = None
    ) -> Self:
        """Train on ratings: Ratings, a Split, or anything that load() takes.

        valid are ratings to choose the best epoch and to calibrate by; without them 5 % of the
        data, drawn by the seed, are held back for that. A Split brings its own; its test part is
        not touched. Later predictions condition on both. start is an earlier model (or its folder)
        whose weights this one takes over where ids are the same; data must then hold all ratings
        to condition on, the earlier ones too.
        """
        split = parts_of(data, valid, self.seed)
        if split.train.implicit:
            return self._fit_picks(split, start)
        auto = start is None and automatic(self.get_params(), _PARAMETERS)
        plans = self._plans(split, auto=auto)
        trained = train(
            split,
            side=plans[0].side,
            architecture=plans[0].architecture,
            settings=plans[0].settings,
            seeds=self.seeds,
            beside=plans[1:],
            choose=auto,
            lists=lists_plan(split, self.lists, plans, auto=auto, seed=self.seed),
            start=_fitted_of(start),
            device=self.device,
            threads=self.threads,
            reporter=EpochLines() if self.verbose else None,
            say=print if self.verbose else _nothing,
        )
        if trained.diverged is not None:
            _log.warning("%s; the best weights before that were kept", trained.diverged)
        if (warning := behind_means(trained.fitted.facts)) is not None:
            _log.warning(warning)
        facts = trained.fitted.facts | {"history": trained.history, "diverged": trained.diverged}
        facts |= {"auto": {"minutes": self.minutes, "lists": self.lists}} if auto else {}
        return self._adopt(replace(trained.fitted, facts=facts))

    def _fit_picks(self, split: Split, start: object) -> Self:
        """Of interactions, which have no ratings."""
        refuse_said(self.get_params(), _PARAMETERS)
        if start is not None:
            raise TrainingError("start is for models of ratings; train on all interactions anew")
        plan = lists_plan(split, True, (), auto=False, seed=self.seed)
        assert plan is not None
        say = print if self.verbose else _nothing
        return self._adopt(train_picks(split, plan, threads=self.threads, say=say).fitted)

    def _plans(self, split: Split, *, auto: bool) -> list[Plan]:
        """What to train: of the first `seeds` members."""
        if auto:
            return chosen_plans(split, self.minutes, self.seed, self.refit)
        side, settings = self.side or "user", self._settings()
        first = Plan(kinds_in(side)[0], self._fields(), settings)
        return [first, *plans_beside(side, settings.seed)]

    def _fields(self) -> dict[str, Any]:
        given = {name: getattr(self, name) for name in (*ARCHITECTURE, "time")}
        return fields_of(self.side or "user", given)

    def _settings(self) -> Settings:
        given = {name: getattr(self, name) for name in TRAINING}
        return settings_of(self.side or "user", given, self.settings, self.ridge)

    def _adopt(self, fitted: FittedModel) -> Self:
        self.predictor_ = Predictor(fitted)
        self.fitted_ = fitted
        self.history_ = fitted.facts.get("history", [])
        self.diverged_ = fitted.facts.get("diverged")
        self.scale_ = fitted.context.scale
        self.classes_ = self.scale_.array()
        self.n_users_, self.n_items_ = fitted.context.n_users, fitted.context.n_items
        return self

    # -- keeping ------------------------------------------------------------------------------

    def save(self, folder: str | Path, *, with_context: bool = True, half: bool = False) -> None:
        """Write the fitted model into a folder; docs/checkpoint.md has the format.

        Without context no one's ratings are in it; then only histories can be answered. `half`
        writes weights as float16 where that changes no probability by more than 0.001.
        """
        checkpoint.save(self.fitted_, folder, with_context=with_context, half=half)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """A fitted estimator from a folder, with the arguments that it was trained with."""
        fitted = checkpoint.load(folder)
        try:
            return cls(**arguments_of(fitted))._adopt(fitted)
        except (CfnadeError, TypeError, AttributeError, LookupError) as error:
            raise CheckpointError(
                f"{folder}: its training arguments cannot be used: {error}"
            ) from error


_PARAMETERS = {option.name: option.default for option in fields(CFNADE) if option.init}
_FITTED = frozenset(option.name for option in fields(CFNADE) if not option.init)


def _nothing(_: str) -> None:
    """Says nothing."""


def _fitted_of(start: CFNADE | str | Path | None) -> FittedModel | None:
    if start is None:
        return None
    return start.fitted_ if isinstance(start, CFNADE) else checkpoint.load(start)
