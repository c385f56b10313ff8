"""train(): from the parts of a data set to a model with everything that a prediction needs."""

from __future__ import annotations

import platform
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
from cfnade.errors import TrainingError
from cfnade.metrics import rmse
from cfnade.models.cfnade import CFNADE
from cfnade.training.loop import DivergedError, Reporter, Run, Saving
from cfnade.training.settings import Settings
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

    `architecture` are fields of CFNADE other than its sizes. `start` is an earlier model whose
    weights are taken over where its ids occur. split.test is never looked at.
    """
    settings = settings or Settings()
    _check_device(device, settings)
    if len(split.train) == 0:
        raise TrainingError("there are no ratings to train on; is the split right?")
    fields = dict(architecture or {})
    model = new_model(split.train, side, fields, settings, start)
    threads = torch.get_num_threads() if threads is None else threads
    facts = _facts(split, side, model, settings, device, threads)
    rows = split.train.rows(side)
    context = split.train.plus(split.valid)
    counts = level_counts(rows)
    before = Bundle(model=model, side=side, context=split.train, column_counts=counts)
    run = Run(
        model.to(device),
        rows,
        _stepper(model, rows, settings, device, threads),
        settings,
        score=_scorer(before, split.valid),
        saving=saving,
        identity=facts["run"],
        reporter=reporter,
    )
    diverged = None
    try:
        run.go(stop=stop)
    except DivergedError as error:
        if run.progress.best_epoch == 0:
            raise
        run.keep_best()
        diverged = str(error)
    progress = run.progress
    stopped = progress.epoch < settings.epochs and stop()
    bundle = replace(before, model=model.to("cpu").eval())
    calibration, metrics = _calibrated(bundle, split.valid)
    if settings.refit and not stopped and diverged is None:
        bundle = _refitted(bundle, context, fields, settings, progress.best_epoch, device, threads)
    done = {
        "epochs": progress.epoch,
        "best_epoch": progress.best_epoch,
        "seconds": round(progress.seconds, 2),
        "refit": settings.refit and bundle.model is not model,
        "valid": metrics,
        "context": "train + valid",
    }
    bundle = replace(bundle, context=context, calibration=calibration, facts=facts | done)
    return Trained(bundle, progress.history, stopped, diverged)


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


def _stepper(model: CFNADE, rows: Rows, settings: Settings, device: str, threads: int) -> Stepper:
    if device == "cpu":
        return CpuStepper(model, rows, settings, threads)
    return TorchStepper(model, rows, settings)


def _scorer(bundle: Bundle, valid: Ratings) -> Callable[[CFNADE], float] | None:
    """The RMSE of weights on the validation part, given the training part."""
    if len(valid) == 0:
        return None
    cells, values = Cells(bundle), valid.values
    stars = valid.scale.array()

    def score(weights: CFNADE) -> float:
        cells.bundle = replace(bundle, model=weights)
        return rmse(values, cells.probabilities(valid.users, valid.items) @ stars)

    return score


def _calibrated(bundle: Bundle, valid: Ratings) -> tuple[Any, dict[str, Any]]:
    if len(valid) == 0:
        return None, {}
    raw = Cells(bundle).probabilities(valid.users, valid.items)
    calibration = fit_calibration(raw, valid.levels, valid.scale.array())
    return calibration, {"rmse": rmse(valid.values, raw @ valid.scale.array())}


def _refitted(
    bundle: Bundle,
    context: Ratings,
    fields: Mapping[str, Any],
    settings: Settings,
    epochs: int,
    device: str,
    threads: int,
) -> Bundle:
    """The same from the start on all ratings, for as many epochs as validation chose."""
    rows = context.rows(bundle.side)
    model = new_model(context, bundle.side, fields, settings).to(device)
    Run(model, rows, _stepper(model, rows, settings, device, threads), settings).go(epochs=epochs)
    return replace(bundle, model=model.to("cpu").eval(), column_counts=level_counts(rows))


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
            "split": {"name": split.name, "fingerprint": split.fingerprint},
            "device": device,
            "threads": threads,
            "version": __version__,
        },
        "data": {"source": train.source, "users": train.n_users, "items": train.n_items},
        "ratings": {"train": len(train), "valid": len(split.valid), "test": len(split.test)},
        "versions": {
            "cfnade": __version__,
            "torch": torch.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
    }


def _as_json(given: dict[str, Any]) -> dict[str, Any]:
    return {name: list(v) if isinstance(v, tuple) else v for name, v in given.items()}
