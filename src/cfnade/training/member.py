"""One member of a run: trained from one seed, chosen by validation, maybe trained again on all."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from cfnade.components import Member, new_member
from cfnade.components.base import other_axis
from cfnade.components.widening import places_of, recounted, widened
from cfnade.config import TrainingConfig
from cfnade.data.dataset import Dataset
from cfnade.data.splits import Split
from cfnade.exceptions import TrainingError
from cfnade.fitted_model import FittedModel, trained_on
from cfnade.training.gains import copy_gains, tune
from cfnade.training.loop import DivergedError, Reporter, Run, Saving
from cfnade.training.state import Progress
from cfnade.training.steps import stepper_of
from cfnade.training.validation import score_by
from cfnade.utils.text import option


@dataclass(frozen=True)
class TrainedMember:
    """A model of one member; `chosen` by validation, `final` that or the refit."""

    chosen: FittedModel
    final: FittedModel
    progress: Progress
    seed: int
    seconds: float
    stopped: bool
    diverged: str | None

    @property
    def refitted(self) -> bool:
        return self.final is not self.chosen


@dataclass(frozen=True)
class Job:
    """What a training run and its refit have in common."""

    side: str
    names: tuple[str, ...]
    """The sides of a member."""
    fields: dict[str, Any]
    """Fields of the sides that do not follow from the data."""
    settings: TrainingConfig
    start: FittedModel | None
    device: str
    threads: int
    reporter: Reporter | None = field(default=None)
    stop: Callable[[], bool] = field(default=lambda: False)
    refresh: bool = False
    """Whether all weights of `start` are gone on with, those too that could be made anew."""

    def train(
        self, split: Split, identity: Callable[[Member], dict[str, Any]], saving: Saving | None
    ) -> TrainedMember:
        """Train on split.train, choose by split.valid; `identity` says which run that is."""
        began = time.monotonic()
        fitted = self._fitted(split.train)
        member = fitted.members[0]
        run = self._run(
            fitted,
            score=score_by(fitted, split.valid),
            saving=saving,
            identity=identity(member),
        )
        if self.refresh or any(side.starts_well for side in member.components.values()):
            run.consider_start()
        diverged = run.go_or_keep_best(self.stop)
        stopped = run.progress.epoch < self.settings.epochs and self.stop()
        _settle(fitted)
        tune(fitted, split.valid)
        final = fitted
        if self.settings.refit and not stopped and diverged is None:
            final = self._refit(split, run.progress.best_epoch, member) or fitted
            stopped = final is fitted and self.stop()  # the refit can be gone on with too
        seconds = max(time.monotonic() - began, run.progress.seconds)  # longer if it was resumed
        return TrainedMember(
            fitted, final, run.progress, self.settings.seed, seconds, stopped, diverged
        )

    def _fitted(self, ratings: Dataset) -> FittedModel:
        """A model of one member with its start values, and what it is trained on."""
        if self.start is not None and self.refresh:
            member = gone_on(self.start, ratings, self.settings)
        else:
            member = new_member(self.names, ratings, self.fields, self.settings)
            if self.start is not None:
                take_over(member, self.start, ratings, self.side)
        return FittedModel((member,), self.side, ratings, trained_on(member.axes, ratings))

    def _run(self, fitted: FittedModel, **how: Any) -> Run:
        member = fitted.members[0].to(self.device)
        stepper = stepper_of(
            member,
            fitted.context,
            self.fields,
            self.settings,
            device=self.device,
            threads=self.threads,
        )
        return Run(member, stepper, reporter=self.reporter, **how)

    def _refit(self, split: Split, epochs: int, chosen: Member) -> FittedModel | None:
        """The same from the start on all ratings, for as many epochs as validation chose.

        Gains are those that validation found.

        None if it was stopped or diverged: the model that validation chose then stays.
        """
        fitted = self._fitted(split.train.concat(split.valid))
        run = self._run(fitted)
        try:
            run.go(epochs=epochs, stop=self.stop)
        except DivergedError:
            return None
        if run.progress.epoch < epochs:
            return None
        _settle(fitted)
        copy_gains(chosen, fitted.members[0])
        return fitted


def _settle(fitted: FittedModel) -> None:
    """The end of training, on the CPU, where predictions are made."""
    settle_member(fitted.members[0].to("cpu").eval(), fitted.context)


def settle_member(member: Member, ratings: Dataset) -> None:
    """The last touch of each of its sides."""
    for side in member.components.values():
        side.finish(ratings, member)


def gone_on(start: FittedModel, ratings: Dataset, settings: TrainingConfig) -> Member:
    """The one member of an earlier model, for these ratings."""
    earlier, had = start.context, dict(start.trained_on)
    member = widened(start.members[0], earlier, ratings, had)
    for side in member.components.values():
        if side.axis is not None:
            axis = other_axis(side.axis)
            places = places_of(ratings.ids(axis), earlier.ids(axis))
            side.update(ratings, recounted(had[axis], places), settings)
    return member


def take_over(member: Member, start: FittedModel, ratings: Dataset, side: str) -> None:
    """Weights of an earlier model: all dense ones, and those of the columns that it knows."""
    earlier = start.members[0].components
    refused = f"the earlier model cannot be continued with side {side!r}: "
    if list(earlier) != list(member.components):
        had, has = (" + ".join(sides) for sides in (earlier, member.components))
        raise TrainingError(
            f"{refused}its sides are {had}, not {has}; give the same side, and "
            f"{option('ridge', 0)} for a model "
            "without a ridge part"
        )
    if start.context.scale != ratings.scale:
        raise TrainingError(f"{refused}its scale differs")
    if len(start.members) > 1:
        raise TrainingError(
            f"the earlier model cannot be continued: it is the mean of {len(start.members)} models"
        )
    for name, part in member.components.items():
        part.take_over(earlier[name], ratings, start.context)
