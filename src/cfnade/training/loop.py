"""The training loop of every model that is trained in epochs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from cfnade.config import TrainingConfig
from cfnade.exceptions import TrainingError
from cfnade.training.callbacks import Callback, Stage
from cfnade.training.state import LoopState, StateStore

FINAL_FACTOR = 0.02
"""Final factor of the linear and cosine schedules: with 0, the last steps would be wasted."""
LINEAR_START = 0.1
"""Fraction of the steps before the linear schedule begins to fall."""
PLATEAU_CUT, MIN_RATE = 0.25, 1e-5
"""The plateau schedule of the paper's authors."""

MAXIMIZED = {"ndcg"}
"""Validation scores of which larger values are better."""

Validate = Callable[[Any], Mapping[str, float] | None]


class DivergedError(TrainingError):
    """The cost is no longer a finite number; the loop still holds the best weights before."""


class Batch(Protocol):
    """What a step learns from."""

    @property
    def n_rows(self) -> int:
        """Rows of the epoch's order that the batch covers."""


BatchT = TypeVar("BatchT", bound=Batch)
BatchT_contra = TypeVar("BatchT_contra", bound=Batch, contravariant=True)
BatchT_co = TypeVar("BatchT_co", bound=Batch, covariant=True)


class Sampler(Protocol[BatchT_co]):
    """Samples the batches of an epoch."""

    n_steps: int
    """Steps of an epoch."""
    rows_per_epoch: int
    """Rows of an epoch, counting each as often as it comes."""

    def epoch(self, epoch: int, *, first_row: int = 0) -> Iterator[BatchT_co]:
        """Yield the batches of an epoch, from a row of its order on."""


class Stepper(Protocol[BatchT_contra]):
    """Updates a model's parameters; `state` is all that it keeps besides them."""

    def step(self, batch: BatchT_contra, *, rate: float) -> float:
        """Make a step with a factor of the learning rate, and return its cost."""

    def state(self) -> dict[str, Tensor]:
        """Return what a resumed run needs besides the parameters; shares memory."""

    def restore(self, state: Mapping[str, Tensor], steps: int) -> None:
        """Continue from a state after so many steps."""


@dataclass(frozen=True)
class Schedule:
    """The learning rate as a factor of the initial one, and the end of training."""

    kind: str
    """cosine, linear, constant or plateau."""
    n_steps: int
    learning_rate: float
    patience: int | None = None

    @classmethod
    def from_config(cls, config: TrainingConfig, steps_per_epoch: int) -> Schedule:
        """Return the schedule of these training options."""
        steps = steps_per_epoch * config.epochs
        return cls(config.schedule, steps, config.learning_rate, config.patience)

    def factor(self, step: int, rate_cuts: int = 0) -> float:
        """Return the factor of a step, from 0."""
        fraction = step / max(1, self.n_steps)
        match self.kind:
            case "cosine":
                return FINAL_FACTOR + (1 - FINAL_FACTOR) * 0.5 * (1 + math.cos(math.pi * fraction))
            case "linear":
                falling = min(1.0, (1 - fraction) / (1 - LINEAR_START))
                return FINAL_FACTOR + (1 - FINAL_FACTOR) * falling
            case "plateau":
                return float(PLATEAU_CUT**rate_cuts)
            case _:
                return 1.0

    def end_epoch(self, state: LoopState) -> None:
        """Cut the rate of a plateau after `patience` epochs without improvement."""
        if self.kind != "plateau" or self.patience is None:
            return
        stale = state.epoch - max(state.best_epoch, state.last_cut)
        if stale >= self.patience and self._rate(state) > MIN_RATE:
            state.rate_cuts += 1
            state.last_cut = state.epoch

    def finished(self, state: LoopState) -> bool:
        """Return whether training ends before its last epoch."""
        if self.patience is None:
            return False
        if self.kind == "plateau":
            stale = state.epoch - max(state.best_epoch, state.last_cut)
            return self._rate(state) <= MIN_RATE and stale >= self.patience
        return state.epoch - state.best_epoch >= self.patience

    def _rate(self, state: LoopState) -> float:
        return self.learning_rate * float(PLATEAU_CUT**state.rate_cuts)


@dataclass(frozen=True)
class LoopOptions:
    """Options of a training loop."""

    epochs: int
    schedule: Schedule
    average: float = 0.0
    """Decay of the average of the weights; 0 disables it."""
    average_every: int = 1
    average_start: bool = False
    """Whether the initial weights are part of the average; otherwise it starts with the first."""
    metrics: tuple[str, ...] = ("rmse", "nll")
    """Validation scores; the first one must be finite."""
    criterion: str = "rmse"
    """The score that selects the best epoch."""
    validate_every: int = 1
    """Epochs between validations; the last one is always validated."""

    @classmethod
    def from_config(cls, config: TrainingConfig, steps_per_epoch: int) -> LoopOptions:
        """Return the options of a rating member."""
        return cls(
            epochs=config.epochs,
            schedule=Schedule.from_config(config, steps_per_epoch),
            average=config.average,
            average_every=config.average_every,
            criterion=config.choose_by,
        )


class TrainingLoop:
    """Trains a model from its initial weights to those of the best validation score.

    The averaged weights are validated and selected. Without validation, those of the last epoch
    count.
    """

    def __init__(
        self,
        model: nn.Module,
        sampler: Sampler[BatchT],
        stepper: Stepper[BatchT],
        options: LoopOptions,
        *,
        validate: Validate | None = None,
        store: StateStore | None = None,
        identity: dict[str, Any] | None = None,
        callback: Callback | None = None,
        stage: Stage | None = None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> None:
        """Prepare the loop, and continue from the saved state if the store is to resume.

        Args:
            model: The weights that the stepper updates.
            sampler: Gives the batches of an epoch.
            stepper: Makes a step.
            options: Epochs, schedule, average and criterion.
            validate: Returns the validation scores of weights; None without validation.
            store: Where the state is saved.
            identity: Describes the run: the state of another run is refused.
            callback: Receives the progress.
            stage: What the callback calls this training.
            should_stop: Asked after every epoch.
        """
        self.model: Any = model
        self.sampler, self.stepper, self.options = sampler, stepper, options
        self.schedule, self.state = options.schedule, LoopState()
        self.validate, self.should_stop = validate, should_stop
        self._average = weight_average(model, options) if options.average else None
        self._best: dict[str, Tensor] = {}
        self._store, self._identity = store, identity or {}
        self._callback, self._stage = callback or Callback(), stage or Stage("training")
        self._began = self._saved_at = time.monotonic()
        if store is not None and store.resume:
            self._resume(store)

    def run(self, epochs: int | None = None) -> None:
        """Train to the end, or for so many epochs of the same schedule; keep the best weights."""
        last = self.options.epochs if epochs is None else epochs
        if last == 0:  # the initial weights are the model
            self._callback.on_step_end(self._stage, 0.0, None)
        while self.state.epoch < last and not self.schedule.finished(self.state):
            state = self.state
            self._began = time.monotonic() - state.epoch_seconds
            for batch in self.sampler.epoch(state.epoch, first_row=state.epoch_rows):
                rate = self.schedule.factor(state.step, state.rate_cuts)
                cost = self.stepper.step(batch, rate=rate)
                self._record_step(cost, batch.n_rows)
            self._record_epoch(last)
            if self.should_stop():
                break
        self.save_state()
        self.restore_best()

    def run_until_diverged(self) -> str | None:
        """Run; if training diverges, keep the best weights before and return the reason.

        These may be the initial weights. Without any, the error is raised.
        """
        try:
            self.run()
        except DivergedError as error:
            if not self._best:
                raise
            self.restore_best()
            return str(error)
        return None

    @property
    def selected_epochs(self) -> int:
        """Epochs of the selected weights, those done without validation."""
        return self.state.best_epoch if self.state.best is not None else self.state.epoch

    def validate_start(self) -> None:
        """Let validation select the initial weights too, as those of epoch 0."""
        if self.validate is not None and self.state.step == 0:
            scores = self.validate(self.model)
            if scores is not None and math.isfinite(scores[self.options.metrics[0]]):
                self._compare(scores, self.model)

    def restore_best(self) -> None:
        """Give the model the weights of the best epoch."""
        if self._best:
            self.model.load_state_dict(self._best)

    # -- steps and epochs ---------------------------------------------------------------------

    def _record_step(self, cost: float, n_rows: int) -> None:
        state = self.state
        state.step += 1
        self._require_finite(cost, "cost", state.epoch + 1)
        if self._average is not None and state.step % self.options.average_every == 0:
            self._average.update_parameters(self.model)
        state.epoch_cost += cost * n_rows
        state.epoch_rows += n_rows
        state.epoch_seconds = time.monotonic() - self._began
        fraction = state.epoch_rows / self.sampler.rows_per_epoch
        mean_cost = state.epoch_cost / state.epoch_rows
        self._callback.on_step_end(self._stage, state.epoch + fraction, mean_cost)
        seconds = time.monotonic() - self._saved_at
        if self._store is not None and self._store.is_due(state.step, seconds):
            self.save_state()

    def _record_epoch(self, last: int) -> None:
        state, options = self.state, self.options
        state.epoch += 1
        scores: Mapping[str, float] | None = None
        if state.epoch % options.validate_every == 0 or state.epoch == last:
            scores = self._validate()
        state.seconds += time.monotonic() - self._began
        scored, best = scores or {}, state.best or {}
        record: dict[str, Any] = {
            "epoch": state.epoch,
            "cost": state.epoch_cost / max(1, state.epoch_rows),
            "criterion": options.criterion,
            **{f"valid_{name}": _finite(scored.get(name)) for name in options.metrics},
            **{f"best_{name}": _finite(best.get(name)) for name in options.metrics},
            "best_epoch": state.best_epoch,
            "rate": self.schedule.learning_rate
            * self.schedule.factor(state.step - 1, state.rate_cuts),
            "seconds": round(state.seconds, 3),
        }
        state.history.append(record)
        state.epoch_cost, state.epoch_rows, state.epoch_seconds = 0.0, 0, 0.0
        self.schedule.end_epoch(state)
        number = {"member": self._stage.member} if self._stage.numbered else {}
        refit = {"refit": True} if self._stage.refit else {}
        self._callback.on_epoch_end({**number, **record, **refit})

    def _validate(self) -> Mapping[str, float] | None:
        """Score the averaged weights, and keep them if they are the best so far."""
        weights = self.model
        if self._average is not None and int(self._average.n_averaged) > 0:
            weights = self._average.module
        scores = None if self.validate is None else self.validate(weights)
        if scores is None:
            self.state.best_epoch = self.state.epoch
            self._remember(weights)
        else:
            first = self.options.metrics[0]
            self._require_finite(scores[first], f"validation {first.upper()}", self.state.epoch)
            self._compare(scores, weights)
        return scores

    def _compare(self, scores: Mapping[str, float], weights: nn.Module) -> None:
        """Keep the weights if they are the best so far."""
        state, name = self.state, self.options.criterion
        sign = -1 if name in MAXIMIZED else 1
        if state.best is None or sign * scores[name] < sign * state.best[name]:
            state.best_epoch, state.best = state.epoch, dict(scores)
            self._remember(weights)

    def _remember(self, weights: nn.Module) -> None:
        """Copy the weights over the best ones so far: two copies may not fit into memory."""
        for name, tensor in weights.state_dict().items():
            if name in self._best:
                self._best[name].copy_(tensor)
            else:
                self._best[name] = tensor.detach().clone()

    def _require_finite(self, number: float, quantity: str, epoch: int) -> None:
        if not math.isfinite(number):
            rate = self.schedule.learning_rate
            raise DivergedError(
                f"training diverged: the {quantity} is {number} at step {self.state.step} (epoch "
                f"{epoch}); try a lower learning rate than {rate:g}, or more weight decay"
            )

    # -- state --------------------------------------------------------------------------------

    def save_state(self) -> None:
        """Write the state, if there is a store."""
        if self._store is not None:
            parts = {
                "model": self.model.state_dict(),
                "average": {} if self._average is None else self._average.state_dict(),
                "best": self._best,
                "stepper": self.stepper.state(),
            }
            tensors = {f"{part}/{n}": t for part, held in parts.items() for n, t in held.items()}
            self._store.write(tensors, self.state, self._identity)
            self._saved_at = time.monotonic()

    def _resume(self, store: StateStore) -> None:
        tensors, self.state = store.read(self._identity)
        parts: dict[str, dict[str, Tensor]] = {}
        for key, tensor in tensors.items():
            part, _, name = key.partition("/")
            parts.setdefault(part, {})[name] = tensor
        self.model.load_state_dict(parts.get("model", {}))
        if self._average is not None:
            self._average.load_state_dict(parts["average"])
        self._best = parts.get("best", {})
        self.stepper.restore(parts.get("stepper", {}), self.state.step)


def weight_average(model: nn.Module, options: LoopOptions) -> AveragedModel:
    """Return a copy of the model whose weights are an exponential moving average.

    Its horizon grows with the number of updates, so it forgets the beginning quickly: the decay is
    (1 + m) / (4 + m) after m updates, up to `average`.
    """

    @torch.no_grad()
    def update(average: Any, current: Any, updates: Tensor | int) -> None:
        m = float(updates)
        decay = min(options.average, (1.0 + m) / (4.0 + m))
        torch._foreach_lerp_(average, current, 1.0 - decay)

    averaged = AveragedModel(model, multi_avg_fn=update).requires_grad_(False)
    if options.average_start:
        averaged.update_parameters(model)
    return averaged


def _finite(score: float | None) -> float | None:
    """Return a score as JSON can hold it."""
    return score if score is not None and math.isfinite(score) else None
