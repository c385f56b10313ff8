"""The one loop that every model goes through."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from cfnade._typing import IntArray
from cfnade.exceptions import TrainingError
from cfnade.training.schedule import Schedule
from cfnade.training.state import NAME, Progress, read_state, write_state
from cfnade.training.steps import Stepper


class Reporter(Protocol):
    """Who is told how training goes."""

    def step(self, done: float, cost: float) -> None:
        """After each step: the share of the epoch that is done, and its mean cost so far."""

    def epoch(self, record: dict[str, Any]) -> None:
        """After each epoch: what the history gets."""


def tell_stage(reporter: object, name: str, member: int | None = None) -> None:
    """Tell a reporter with a method `stage` what is worked on from now on; member is its number."""
    stage = getattr(reporter, "stage", None)
    if stage is not None:
        stage(name, member)


class Silent:
    """Tells nobody."""

    def step(self, done: float, cost: float) -> None:
        pass

    def epoch(self, record: dict[str, Any]) -> None:
        pass


@dataclass(frozen=True)
class Saving:
    """Where and how often the state of a run is written."""

    folder: Path
    seconds: float = 30.0
    resume: bool = False

    def due(self, step: int, seconds: float) -> bool:
        """Whether it is time, so long after the last one."""
        del step
        return seconds > self.seconds

    def write(
        self, tensors: dict[str, Tensor], progress: Progress, identity: dict[str, Any]
    ) -> None:
        write_state(self.folder, tensors, progress, identity)

    def read(self, identity: dict[str, Any]) -> tuple[dict[str, Tensor], Progress]:
        return read_state(self.folder, identity)

    def there(self) -> bool:
        """Whether there is a state to go on from."""
        return (self.folder / NAME).exists()


class DivergedError(TrainingError):
    """The cost is no longer a number; the run still holds the best weights before that."""


class Validated(NamedTuple):
    """How good weights are on the validation part."""

    rmse: float
    nll: float


class Run:
    """A model on its way from start values to the weights that validation chose.

    `score` says how good weights are: the averaged ones are scored and selected as such, by the
    measure that the settings name. Without it the last ones count. `identity` says which run this
    is, so that another one does not go on from its state.
    """

    def __init__(
        self,
        model: nn.Module,
        stepper: Stepper,
        *,
        score: Callable[[Any], Validated] | None = None,
        saving: Saving | None = None,
        identity: dict[str, Any] | None = None,
        reporter: Reporter | None = None,
    ) -> None:
        settings, rows = stepper.draws.settings, stepper.draws.n_rows
        self.model, self.settings, self.progress = model, settings, Progress()
        self._rows, self._stepper, self._score = rows, stepper, score
        self._average = averaged(model, settings.average) if settings.average else None
        batches = max(1, math.ceil(rows / settings.batch_size(rows)))
        # Of equal size: a last batch of a few rows would move the model as far as a full one.
        self._bounds = [rows * i // batches for i in range(1, batches * settings.passes + 1)]
        self._schedule = Schedule(settings, len(self._bounds) * settings.epochs)
        self._best: dict[str, Tensor] = {}
        self._saving, self._identity = saving, identity or {}
        self._reporter = reporter or Silent()
        self._began = self._saved_at = time.monotonic()
        if saving is not None and saving.resume:
            self._restore(saving)

    def go(self, *, epochs: int | None = None, stop: Callable[[], bool] = lambda: False) -> None:
        """Train to the end, or for the given number of epochs of the same schedule.

        `stop` is asked after every epoch. In the end the model has the chosen weights.
        """
        last = self.settings.epochs if epochs is None else epochs
        progress = self.progress
        if last == 0:
            self._reporter.step(1.0, 0.0)  # the start was all that there is to do
        while progress.epoch < last:
            if self._schedule.finished(progress.epoch, progress.best_epoch):
                break
            self._epoch()
            if stop():
                break
        self._save()
        self.keep_best()

    def go_or_keep_best(self, stop: Callable[[], bool]) -> str | None:
        """Train to the end; if it diverges, keep the best weights before and return the reason.

        These may be the start's (epoch 0). Without any, the error is raised.
        """
        try:
            self.go(stop=stop)
        except DivergedError as error:
            if not self._best:
                raise
            self.keep_best()
            return str(error)
        return None

    def consider_start(self) -> None:
        """Let the weights that a run begins with be chosen too, as those of epoch 0."""
        if self._score is not None and self.progress.step == 0:
            validated = self._score(self.model)
            if math.isfinite(validated.rmse):
                self._compare(validated, self.model)

    def _epoch(self) -> None:
        progress = self.progress
        rng = np.random.default_rng((self.settings.seed, progress.epoch))
        passes = range(self.settings.passes)
        order = np.concatenate([rng.permutation(self._rows) for _ in passes])
        self._began = time.monotonic() - progress.epoch_seconds
        for number, end in enumerate(self._bounds):
            if end <= progress.epoch_rows:
                continue  # done before the run was interrupted
            rows = order[progress.epoch_rows : end]
            self._expect(order, number)
            rate = self._schedule.factor(progress.step)
            cost = self._stepper.step(rows, step=progress.step, rate=rate)
            progress.step += 1
            self._require_finite(cost, "cost", progress.epoch + 1)
            if self._average is not None and progress.step % self.settings.average_every == 0:
                self._average.update_parameters(self.model)
            progress.epoch_cost += cost * len(rows)
            progress.epoch_rows += len(rows)
            progress.epoch_seconds = time.monotonic() - self._began
            mean_cost = progress.epoch_cost / progress.epoch_rows
            self._reporter.step(progress.epoch_rows / len(order), mean_cost)
            since = time.monotonic() - self._saved_at
            if self._saving and self._saving.due(progress.step, since):
                self._save()
        self._end_epoch()

    def _expect(self, order: IntArray, number: int) -> None:
        """Tell which rows follow in this epoch, from the batch of that number on."""
        draws = self._stepper.draws
        ends = [self.progress.epoch_rows, *self._bounds[number : number + draws.at_once]]
        batches = [order[lo:hi] for lo, hi in pairwise(ends)]
        draws.expect(batches, self.progress.step)

    def _end_epoch(self) -> None:
        progress = self.progress
        progress.epoch += 1
        weights = self.model
        if self._average is not None and int(self._average.n_averaged) > 0:
            weights = self._average.module
        validated = None if self._score is None else self._score(weights)
        if validated is None:
            progress.best_epoch = progress.epoch
            self._remember(weights)
        else:
            self._require_finite(validated.rmse, "validation RMSE", progress.epoch)
            self._compare(validated, weights)
        progress.seconds += time.monotonic() - self._began
        nll = math.inf if validated is None else validated.nll
        record = {
            "epoch": progress.epoch,
            "cost": progress.epoch_cost / max(1, progress.epoch_rows),
            "valid_rmse": None if validated is None else validated.rmse,
            "valid_nll": nll if math.isfinite(nll) else None,  # JSON has no ∞
            "best_rmse": progress.best_rmse,
            "best_epoch": progress.best_epoch,
            "rate": self.settings.learning_rate * self._schedule.factor(progress.step - 1),
            "seconds": round(progress.seconds, 3),
        }
        progress.history.append(record)
        progress.epoch_cost, progress.epoch_rows, progress.epoch_seconds = 0.0, 0, 0.0
        self._schedule.after_epoch(progress.epoch, progress.best_epoch)
        self._reporter.epoch(record)

    def _compare(self, validated: Validated, weights: nn.Module) -> None:
        """Keep the weights if they are the best so far."""
        progress, by = self.progress, self.settings.choose_by
        best = {"rmse": progress.best_rmse, "nll": progress.best_nll}[by]
        if best is None or getattr(validated, by) < best:
            progress.best_epoch, progress.best_rmse, progress.best_nll = progress.epoch, *validated
            self._remember(weights)

    def _remember(self, weights: nn.Module) -> None:
        """Keep a copy as the best; in place of the last one, as two may not fit into memory."""
        for name, tensor in weights.state_dict().items():
            if name in self._best:
                self._best[name].copy_(tensor)
            else:
                self._best[name] = tensor.detach().clone()

    def keep_best(self) -> None:
        """Give the model the weights of the best epoch."""
        if self._best:
            self.model.load_state_dict(self._best)

    def _require_finite(self, number: float, what: str, epoch: int) -> None:
        if not math.isfinite(number):
            step = self.progress.step
            raise DivergedError(
                f"training diverged: the {what} is {number} at step {step} (epoch {epoch}); try a "
                f"lower learning rate than {self.settings.learning_rate:g}, or more weight decay"
            )

    # -- state ------------------------------------------------------------------------------

    def _tensors(self) -> dict[str, Tensor]:
        parts = {
            "model": self.model.state_dict(),
            "average": {} if self._average is None else self._average.state_dict(),
            "best": self._best,
            "stepper": self._stepper.state(),
        }
        return {f"{part}/{name}": t for part, held in parts.items() for name, t in held.items()}

    def _save(self) -> None:
        if self._saving is not None:
            self.progress.quarters = self._schedule.quarters
            self.progress.last_cut = self._schedule.last_cut
            self._saving.write(self._tensors(), self.progress, self._identity)
            self._saved_at = time.monotonic()

    def _restore(self, saving: Saving) -> None:
        tensors, self.progress = saving.read(self._identity)
        parts: dict[str, dict[str, Tensor]] = {}
        for key, tensor in tensors.items():
            part, _, name = key.partition("/")
            parts.setdefault(part, {})[name] = tensor
        self.model.load_state_dict(parts["model"])
        if self._average is not None:
            self._average.load_state_dict(parts["average"])
        self._best = parts.get("best", {})
        self._stepper.restore(parts.get("stepper", {}), self.progress.step)
        self._schedule.quarters = self.progress.quarters
        self._schedule.last_cut = self.progress.last_cut


def averaged(model: nn.Module, keep: float) -> AveragedModel:
    """A copy of the model whose weights are a running average of it: what is scored and kept."""
    return AveragedModel(model, multi_avg_fn=_growing(keep))


def _growing(keep: float) -> Callable[[Any, Any, Tensor | int], None]:
    """An exponential average whose horizon grows with the number of updates, up to `keep`.

    From the start on it forgets the beginning quickly, later slowly: (1+m)/(4+m) after m updates.
    """

    @torch.no_grad()
    def update(average: Any, current: Any, updates: Tensor | int) -> None:
        m = float(updates)
        torch._foreach_lerp_(average, current, 1.0 - min(keep, (1.0 + m) / (4.0 + m)))

    return update
