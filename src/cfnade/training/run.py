"""train(): from the parts of a data set to a model with everything that a prediction needs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from cfnade import __version__
from cfnade.bundle import Bundle
from cfnade.calibration import fit as fit_calibration
from cfnade.cells import Cells
from cfnade.data.ratings import Ratings, Side
from cfnade.data.rows import Rows
from cfnade.data.splits import Split
from cfnade.errors import ModelError, TrainingError
from cfnade.metrics import calibration_error, nll, rmse
from cfnade.models.cfnade import CFNADE
from cfnade.training.loop import DivergedError, Reporter, Run, Saving
from cfnade.training.settings import Settings
from cfnade.training.state import Progress
from cfnade.training.steppers import CpuStepper, Stepper, TorchStepper


@dataclass(frozen=True)
class Trained:
    """The model, and whether it was stopped before its end."""

    bundle: Bundle
    history: list[dict[str, Any]]
    stopped: bool
    diverged: str | None = None


def train(
    split: Split,
    *,
    side: Side,
    architecture: Mapping[str, Any] | None = None,
    settings: Settings | None = None,
    start: Bundle | None = None,
    device: str = "cpu",
    threads: int | None = None,
    saving: Saving | None = None,
    reporter: Reporter | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Trained:
    """Train on split.train, choose by split.valid, and condition on both from then on.

    What is given of users held out whole (split.given) is conditioned on too, never trained on.
    `architecture` are fields of CFNADE other than its sizes. `start` is an earlier model whose
    weights are taken over where its ids occur. split.test is never looked at.
    """
    settings = settings or Settings()
    _check_device(device, settings)
    if len(split.train) == 0:
        raise TrainingError("there are no ratings to train on; is the split right?")
    threads = torch.get_num_threads() if threads is None else threads
    job = _Job(side, dict(architecture or {}), settings, start, device, threads)
    model = job.model(split.train)
    rows = split.train.rows(side)
    bundle = Bundle(model=model, side=side, context=split.train, column_counts=level_counts(rows))
    facts = _facts(split, side, model, settings, device, threads)
    run = Run(
        model.to(device),
        rows,
        job.stepper(model, rows),
        settings,
        score=_scorer(bundle, split.valid),
        saving=saving,
        identity=facts["run"],
        reporter=reporter,
    )
    diverged = _go(run, stop)
    stopped = run.progress.epoch < settings.epochs and stop()
    model.to("cpu").eval()
    calibration, metrics = _calibrated(bundle, split.valid)
    refitted = None
    if settings.refit and not stopped and diverged is None:
        refitted = job.refit(split.train.plus(split.valid), run.progress.best_epoch, reporter, stop)
    facts |= _outcome(run.progress, metrics, refitted is not None, len(split.given) > 0)
    bundle = replace(
        refitted or bundle,
        context=split.train.plus(split.valid).plus(split.given),
        calibration=calibration,
        facts=facts,
    )
    return Trained(bundle, run.progress.history, stopped, diverged)


@dataclass(frozen=True)
class _Job:
    """What a training run and its refit have in common."""

    side: Side
    fields: dict[str, Any]
    settings: Settings
    start: Bundle | None
    device: str
    threads: int

    def model(self, ratings: Ratings) -> CFNADE:
        return new_model(ratings, self.side, self.fields, self.settings, self.start)

    def stepper(self, model: CFNADE, rows: Rows) -> Stepper:
        if self.device == "cpu":
            return CpuStepper(model, rows, self.settings, self.threads)
        return TorchStepper(model, rows, self.settings)

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
        rows, model = ratings.rows(self.side), self.model(ratings).to(self.device)
        run = Run(model, rows, self.stepper(model, rows), self.settings, reporter=reporter)
        try:
            run.go(epochs=epochs, stop=stop)
        except DivergedError:
            return None
        if run.progress.epoch < epochs:
            return None
        model.to("cpu").eval()
        counts = level_counts(rows)
        return Bundle(model=model, side=self.side, context=ratings, column_counts=counts)


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


def _outcome(
    progress: Progress, metrics: dict[str, Any], refit: bool, given: bool
) -> dict[str, Any]:
    return {
        "epochs": progress.epoch,
        "best_epoch": progress.best_epoch,
        "seconds": round(progress.seconds, 2),
        "refit": refit,
        "valid": metrics,
        "context": "train + valid + given" if given else "train + valid",
        "history": progress.history,
    }


def new_model(
    ratings: Ratings,
    side: Side,
    fields: Mapping[str, Any],
    settings: Settings,
    start: Bundle | None = None,
) -> CFNADE:
    """A model for these ratings with its start values."""
    rows = ratings.rows(side)
    sizes: dict[str, Any] = {"columns": rows.n_columns, "levels": rows.n_levels}
    if fields.get("context_scale") == "sqrt" and fields.get("mean_context") is None:
        sizes["mean_context"] = rows.n_ratings / max(1, int((rows.counts() > 0).sum()))
    model = CFNADE(**{**fields, **sizes})
    model.initialise(torch.Generator().manual_seed(settings.seed))
    model.initialise_biases(torch.from_numpy(level_counts(rows)), smoothing=settings.smoothing)
    if start is not None:
        _take_over(model, start, ratings, side)
    return model


def level_counts(rows: Rows) -> npt.NDArray[np.int64]:
    """How many ratings each column has at each level. Returns (M, K)."""
    cells = rows.columns.astype(np.int64) * rows.n_levels + rows.levels
    counts = np.bincount(cells, minlength=rows.n_columns * rows.n_levels)
    return counts.reshape(rows.n_columns, rows.n_levels)


def _check_device(device: str, settings: Settings) -> None:
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise TrainingError(f"device {device!r} cannot be used: {reason}; try cpu") from error
    if device != "cpu" and (settings.rowwise or settings.touched_only):
        raise TrainingError(f"rowwise and touched_only need the device cpu, not {device!r}")


def _scorer(bundle: Bundle, valid: Ratings) -> Callable[[CFNADE], float] | None:
    """The RMSE of weights on the validation part, given the training part."""
    if len(valid) == 0:
        return None
    cells, values = Cells(bundle), valid.values
    stars = valid.scale.array()

    def score(weights: CFNADE) -> float:
        cells.bundle = replace(bundle, model=weights)
        try:
            return rmse(values, cells.probabilities(valid.users, valid.items) @ stars)
        except ModelError:  # weights so large that no probabilities come of them
            return math.nan

    return score


def _calibrated(bundle: Bundle, valid: Ratings) -> tuple[Any, dict[str, Any]]:
    if len(valid) == 0:
        return None, {}
    raw = Cells(bundle).probabilities(valid.users, valid.items)
    stars = valid.scale.array()
    calibration = fit_calibration(raw, valid.levels, stars)
    after = calibration.apply(raw, stars)
    metrics = {"rmse": rmse(valid.values, raw @ stars)}
    for name, measure in (("nll", nll), ("calibration_error", calibration_error)):
        metrics[f"{name}_raw"] = measure(raw, valid.levels)
        metrics[name] = measure(after, valid.levels)
    # A level that the model held impossible has no finite likelihood, and JSON no infinity.
    return calibration, {name: v if math.isfinite(v) else None for name, v in metrics.items()}


def _take_over(model: CFNADE, start: Bundle, ratings: Ratings, side: Side) -> None:
    """Weights of an earlier model: all dense ones, and those of the columns that it knows."""
    known, wanted = start.model.config, model.config
    same = ("levels", "hidden", "factors", "shared", "activation")
    differ = [name for name in same if getattr(known, name) != getattr(wanted, name)]
    if start.side != side or start.context.scale != ratings.scale or differ:
        what = ", ".join(differ) or ("side" if start.side != side else "scale")
        raise TrainingError(f"the earlier model cannot be continued: its {what} differs")
    column_ids = ratings.item_ids if side == "user" else ratings.user_ids
    old_ids = start.context.item_ids if side == "user" else start.context.user_ids
    place = {raw: i for i, raw in enumerate(old_ids.tolist())}
    pairs = [(i, place[raw]) for i, raw in enumerate(column_ids.tolist()) if raw in place]
    new, old = (torch.tensor([pair[i] for pair in pairs], dtype=torch.long) for i in (0, 1))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            source = start.model.get_parameter(name)
            if name in ("W", "V", "A", "P", "b"):
                weight[new] = source[old]
            else:
                weight.copy_(source)


def _facts(
    split: Split, side: Side, model: CFNADE, settings: Settings, device: str, threads: int
) -> dict[str, Any]:
    """What model.json says of a run; "run" is what must be the same for a run to be resumed."""
    train = split.train
    return {
        "run": {
            "side": side,
            "model": model.config.to_dict(),
            "settings": _as_json(settings.to_dict()),
            "data": split.data,
            "split": {"name": split.name, "fingerprint": split.fingerprint},
            "device": device,
            "threads": threads,
            "version": __version__,
        },
        "data": {"source": train.source, "users": train.n_users, "items": train.n_items},
        "ratings": {"train": len(train), "valid": len(split.valid), "test": len(split.test)},
    }


def _as_json(given: dict[str, Any]) -> dict[str, Any]:
    return {name: list(v) if isinstance(v, tuple) else v for name, v in given.items()}
