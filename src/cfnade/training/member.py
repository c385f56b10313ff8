"""One model of a run: trained from one seed, chosen by validation, maybe trained again on all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from cfnade.bundle import Bundle, Sides, Single
from cfnade.data.ratings import Ratings
from cfnade.data.splits import Split
from cfnade.data.when import When
from cfnade.models.joint import JointCFNADE
from cfnade.training.loop import DivergedError, Reporter, Run, Saving
from cfnade.training.settings import Settings
from cfnade.training.start import level_counts, new_model
from cfnade.training.state import Progress
from cfnade.training.steppers import CpuStepper, Stepper, TorchStepper
from cfnade.training.validation import scorer


@dataclass(frozen=True)
class Member:
    """A trained model; `chosen` by validation, `final` that or the refit."""

    chosen: Bundle
    final: Bundle
    progress: Progress
    seed: int
    stopped: bool
    diverged: str | None

    @property
    def refitted(self) -> bool:
        return self.final is not self.chosen


@dataclass(frozen=True)
class Job:
    """What a training run and its refit have in common."""

    side: Sides
    fields: dict[str, Any]
    settings: Settings
    start: Bundle | None
    device: str
    threads: int

    def train(
        self,
        split: Split,
        identity: Callable[[Single], dict[str, Any]],
        saving: Saving | None,
        reporter: Reporter | None,
        stop: Callable[[], bool],
    ) -> Member:
        """Train on split.train, choose by split.valid; `identity` says which run that is."""
        model = self.model(split.train)
        bundle = self.bundle(model, split.train)
        run = Run(
            model.to(self.device),
            *self.stepper(bundle, split.train),
            score=scorer(bundle, split.valid),
            saving=saving,
            identity=identity(model),
            reporter=reporter,
        )
        diverged = _go(run, stop)
        stopped = run.progress.epoch < self.settings.epochs and stop()
        model.to("cpu").eval()
        final = bundle
        if self.settings.refit and not stopped and diverged is None:
            whole, epochs = split.train.plus(split.valid), run.progress.best_epoch
            final = self.refit(whole, epochs, reporter, stop) or bundle
        return Member(bundle, final, run.progress, self.settings.seed, stopped, diverged)

    def model(self, ratings: Ratings) -> Single:
        return new_model(ratings, self.side, self.fields, self.settings, self.start)

    def bundle(self, model: Single, ratings: Ratings) -> Bundle:
        """The model with what training counted."""
        columns = level_counts(ratings.rows("item" if self.side == "item" else "user"))
        rows = level_counts(ratings.rows("item")) if self.side == "both" else None
        bundle = Bundle(model, self.side, ratings, columns, row_counts=rows)
        return replace(bundle, when=When.of(ratings)) if bundle.knows_time else bundle

    def stepper(self, bundle: Bundle, ratings: Ratings) -> tuple[int, Stepper, Settings]:
        """How many rows there are, what moves the model by some of them, and how."""
        settings, model = self.settings, bundle.model
        if isinstance(model, JointCFNADE):
            from cfnade.training.joint import JointStepper

            users, items = settings.block(ratings.n_users, ratings.n_items)
            settings = replace(settings, batch_rows=users, batch_columns=items)
            stepper = JointStepper(model, ratings, settings, self.threads, bundle.when)
            return ratings.n_users, stepper, settings
        rows, one = ratings.rows("item" if self.side == "item" else "user"), bundle.one_sided_model
        if self.device == "cpu":
            return len(rows), CpuStepper(one, rows, settings, self.threads), settings
        return len(rows), TorchStepper(one, rows, settings), settings

    def refit(
        self,
        ratings: Ratings,
        epochs: int,
        reporter: Reporter | None,
        stop: Callable[[], bool],
    ) -> Bundle | None:
        """The same from the start on all ratings, for as many epochs as validation chose.

        None if it was stopped or diverged: the model that validation chose then stays.
        """
        model = self.model(ratings)
        bundle = self.bundle(model, ratings)
        run = Run(model.to(self.device), *self.stepper(bundle, ratings), reporter=reporter)
        try:
            run.go(epochs=epochs, stop=stop)
        except DivergedError:
            return None
        if run.progress.epoch < epochs:
            return None
        model.to("cpu").eval()
        return bundle


def _go(run: Run, stop: Callable[[], bool]) -> str | None:
    """Train to the end; if it diverges after a good epoch, keep that and say what happened."""
    try:
        run.go(stop=stop)
    except DivergedError as error:
        if run.progress.best_epoch == 0:
            raise
        run.keep_best()
        return str(error)
    return None
