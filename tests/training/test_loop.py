"""The loop: it learns, it chooses by validation, it can be interrupted anywhere."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cfnade.data.splits import Split, split
from cfnade.errors import TrainingError
from cfnade.evaluation import evaluate
from cfnade.models.cfnade import CFNADE
from cfnade.settings import Settings
from cfnade.training import state
from cfnade.training.loop import DivergedError, Run, Saving
from cfnade.training.run import train
from cfnade.training.start import new_model
from cfnade.training.steppers import CpuStepper

QUICK = Settings(epochs=6, batch_rows=16, learning_rate=5e-3, weight_decay=1e-3, average=0.9)
FIELDS: dict[str, Any] = {"hidden": (8,)}


def run_of(
    parts: Split,
    settings: Settings = QUICK,
    score: Callable[[CFNADE], float] | None = None,
    **more: Any,
) -> Run:
    model = new_model(parts.train, "item", FIELDS, settings)
    rows = parts.train.rows("item")
    stepper = CpuStepper(model, rows, settings, 1)
    return Run(model, len(rows), stepper, settings, score=score, **more)


def weights(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def test_training_beats_the_mean_and_stays_above_what_is_possible(parts: Split) -> None:
    trained = train(parts, side="item", architecture=FIELDS, settings=replace(QUICK, epochs=30))
    spread = float(np.std(parts.valid.values))
    best = trained.bundle.facts["valid"]["rmse"]
    assert best < 0.95 * spread
    assert best == pytest.approx(min(r["valid_rmse"] for r in trained.history))


def test_the_same_seed_gives_the_same_bits(parts: Split) -> None:
    runs = [run_of(parts) for _ in range(2)]
    for run in runs:
        run.go()
    assert torch.equal(weights(runs[0].model), weights(runs[1].model))


def test_the_best_epoch_is_kept(parts: Split) -> None:
    scores = iter([0.9, 0.7, 0.8, 0.75, 0.9, 0.9])
    seen: list[torch.Tensor] = []

    def score(model: CFNADE) -> float:
        seen.append(weights(model).clone())
        return next(scores)

    run = run_of(parts, score=score)
    run.go()
    assert run.progress.best_epoch == 2
    assert torch.equal(weights(run.model), seen[1])
    assert [r["best_rmse"] for r in run.progress.history] == [0.9, 0.7, 0.7, 0.7, 0.7, 0.7]


def test_averaged_weights_are_scored_and_selected(parts: Split) -> None:
    raw = run_of(parts, replace(QUICK, average=0.0))
    averaged = run_of(parts)
    for run in (raw, averaged):
        run.go()
    assert not torch.equal(weights(raw.model), weights(averaged.model))


def test_a_run_too_short_for_an_average_keeps_its_weights(parts: Split) -> None:
    raw = run_of(parts, replace(QUICK, epochs=1, average=0.0))
    short = run_of(parts, replace(QUICK, epochs=1, average_every=100))
    for run in (raw, short):
        run.go()
    assert torch.equal(weights(raw.model), weights(short.model))


def test_patience_ends_a_run(parts: Split) -> None:
    run = run_of(parts, replace(QUICK, epochs=50, patience=3), score=lambda _: 1.0)
    run.go()
    assert run.progress.epoch == 4


def test_a_plateau_quarters_the_rate(parts: Split) -> None:
    settings = replace(QUICK, epochs=5, schedule="plateau", patience=2)
    run = run_of(parts, settings, score=lambda _: 1.0)
    run.go()
    rates = [record["rate"] for record in run.progress.history]
    assert rates == pytest.approx([5e-3, 5e-3, 5e-3, 1.25e-3, 1.25e-3])


class InterruptedRunError(Exception):
    pass


def interrupted_run(parts: Split, folder: Path, steps: int) -> None:
    """Train until a step at which the process dies, having saved after every step."""
    run = run_of(parts, score=score_of(parts), saving=Saving(folder, seconds=0.0))
    real, count = run._stepper.step, [0]

    def step(*args: Any, **kwargs: Any) -> float:
        if count[0] == steps:
            raise InterruptedRunError
        count[0] += 1
        return real(*args, **kwargs)

    run._stepper.step = step  # type: ignore[method-assign]
    with pytest.raises(InterruptedRunError):
        run.go()


def score_of(parts: Split) -> Callable[[CFNADE], float]:
    """Depends on the weights, and is not always better later."""
    del parts
    return lambda model: float(torch.sin(weights(model).sum() * 100))


@pytest.mark.parametrize("steps", [1, 2, 3, 5, 9, 14])
def test_an_interrupted_run_ends_with_the_same_bits(
    parts: Split, tmp_path: Path, steps: int
) -> None:
    whole = run_of(parts, score=score_of(parts))
    whole.go()
    interrupted_run(parts, tmp_path, steps)
    resumed = run_of(parts, score=score_of(parts), saving=Saving(tmp_path, resume=True))
    assert resumed.progress.step == steps
    resumed.go()
    assert torch.equal(weights(whole.model), weights(resumed.model))
    assert resumed.progress.best_epoch == whole.progress.best_epoch
    for ours, theirs in zip(resumed.progress.history, whole.progress.history, strict=True):
        assert {**ours, "seconds": 0} == {**theirs, "seconds": 0}


def test_a_finished_run_that_is_resumed_is_finished(parts: Split, tmp_path: Path) -> None:
    run = run_of(parts, saving=Saving(tmp_path))
    run.go()
    again = run_of(parts, saving=Saving(tmp_path, resume=True))
    again.go()
    assert torch.equal(weights(run.model), weights(again.model))
    assert again.progress.epoch == QUICK.epochs


def test_another_run_does_not_go_on_from_this_state(parts: Split, tmp_path: Path) -> None:
    run_of(parts, saving=Saving(tmp_path), identity={"seed": 1, "side": "item"}).go()
    with pytest.raises(TrainingError, match=r"another run: seed was 1, now 2\. Give the same"):
        run_of(parts, saving=Saving(tmp_path, resume=True), identity={"seed": 2, "side": "item"})


def test_there_must_be_something_to_resume(parts: Split, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="holds no unfinished training"):
        run_of(parts, saving=Saving(tmp_path, resume=True))


def test_a_damaged_state_is_refused(parts: Split, tmp_path: Path) -> None:
    run_of(parts, saving=Saving(tmp_path)).go()
    file = tmp_path / state.NAME
    raw = bytearray(file.read_bytes())
    raw[len(raw) // 2] ^= 4
    file.write_bytes(bytes(raw))
    with pytest.raises(TrainingError, match=r"cannot be resumed: .*damaged"):
        run_of(parts, saving=Saving(tmp_path, resume=True))


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_divergence_says_where_and_what_to_change(parts: Split, number: float) -> None:
    run = run_of(parts)
    real, count = run._stepper.step, [0]

    def step(*args: Any, **kwargs: Any) -> float:
        count[0] += 1
        return number if count[0] == 5 else real(*args, **kwargs)

    run._stepper.step = step  # type: ignore[method-assign]
    message = r"the cost is (nan|inf) at step 5 \(epoch 2\); try a lower learning rate than 0\.005"
    with pytest.raises(DivergedError, match=message):
        run.go()


def test_a_run_that_diverges_keeps_its_best_model(
    parts: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = CpuStepper.step

    def step(self: CpuStepper, *args: Any, **kwargs: Any) -> float:
        cost = real(self, *args, **kwargs)
        return math.nan if kwargs["step"] == 7 else cost

    monkeypatch.setattr(CpuStepper, "step", step)
    trained = train(parts, side="item", architecture=FIELDS, settings=QUICK)
    assert trained.diverged is not None
    assert "step 8" in trained.diverged
    assert trained.bundle.facts["best_epoch"] >= 1
    assert torch.isfinite(weights(trained.bundle.model)).all()


def test_stop_is_asked_after_every_epoch(parts: Split) -> None:
    trained = train(parts, side="user", architecture=FIELDS, settings=QUICK, stop=lambda: True)
    assert trained.stopped
    assert len(trained.history) == 1


def test_refit_trains_on_validation_too(parts: Split) -> None:
    plain = train(parts, side="item", architecture=FIELDS, settings=QUICK)
    refit = train(parts, side="item", architecture=FIELDS, settings=replace(QUICK, refit=True))
    assert refit.bundle.facts["refit"]
    assert refit.bundle.facts["valid"] == plain.bundle.facts["valid"]
    total = len(parts.train) + len(parts.valid)
    assert refit.bundle.column_counts.sum() == total
    assert plain.bundle.column_counts.sum() == len(parts.train)
    assert not torch.equal(weights(plain.bundle.model), weights(refit.bundle.model))


def test_the_context_is_train_and_validation(parts: Split) -> None:
    bundle = train(parts, side="item", architecture=FIELDS, settings=QUICK).bundle
    assert len(bundle.context) == len(parts.train) + len(parts.valid)
    assert bundle.facts["context"] == "train + valid"


def test_an_earlier_model_can_be_continued(parts: Split) -> None:
    first = train(parts, side="item", architecture=FIELDS, settings=QUICK)
    still = replace(QUICK, epochs=1, learning_rate=1e-12)
    more = train(parts, side="item", architecture=FIELDS, settings=still, start=first.bundle)
    assert torch.allclose(weights(more.bundle.model), weights(first.bundle.model), atol=1e-6)
    with pytest.raises(TrainingError, match="cannot be continued: its hidden differs"):
        train(parts, side="item", architecture={"hidden": (9,)}, settings=QUICK, start=first.bundle)
    with pytest.raises(TrainingError, match="cannot be continued: its side differs"):
        train(parts, side="user", architecture=FIELDS, settings=QUICK, start=first.bundle)


def test_nothing_to_train_on_is_said(parts: Split) -> None:
    empty = replace(parts, train=parts.train.select(np.zeros(len(parts.train), bool)))
    with pytest.raises(TrainingError, match="no ratings to train on"):
        train(empty, side="item")


def test_what_is_given_of_held_out_users_is_context_but_not_trained_on(parts: Split) -> None:
    whole = parts.train.plus(parts.valid).plus(parts.test)
    held = split(whole, "users:0:3")
    trained = train(held, side="user", architecture=FIELDS, settings=QUICK)
    context = trained.bundle.context
    assert len(context) == len(held.train) + len(held.valid) + len(held.given)
    assert trained.bundle.column_counts.sum() == len(held.train)
    assert trained.bundle.facts["context"] == "train + valid + given"
    scores = evaluate(trained.bundle, held.test)
    assert {str(bucket): bucket.n for bucket in scores.by_user if bucket.n} == {"1–4": scores.n}


def test_a_refit_starts_where_the_run_started(parts: Split) -> None:
    first = train(parts, side="item", architecture=FIELDS, settings=QUICK).bundle
    still = replace(QUICK, epochs=1, learning_rate=1e-12, refit=True)
    again = train(parts, side="item", architecture=FIELDS, settings=still, start=first)
    assert again.bundle.facts["refit"]
    assert torch.allclose(weights(again.bundle.model), weights(first.model), atol=1e-6)


def test_a_refit_that_diverges_leaves_the_chosen_model(
    parts: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = CpuStepper.step, [0]

    def step(self: CpuStepper, *args: Any, **kwargs: Any) -> float:
        calls[0] += 1
        cost = real(self, *args, **kwargs)
        return cost if calls[0] <= 18 else math.nan  # the first run takes 18 steps

    monkeypatch.setattr(CpuStepper, "step", step)
    trained = train(parts, side="item", architecture=FIELDS, settings=replace(QUICK, refit=True))
    assert not trained.bundle.facts["refit"]
    assert torch.isfinite(weights(trained.bundle.model)).all()


def test_facts_say_on_what_data_and_how_good(parts: Split) -> None:
    facts = train(parts, side="item", architecture=FIELDS, settings=QUICK).bundle.facts
    assert facts["run"]["data"] == parts.data
    assert facts["run"]["split"]["fingerprint"] == parts.fingerprint
    names = {"rmse", "nll", "nll_raw", "calibration_error", "calibration_error_raw"}
    assert set(facts["valid"]) == names
    assert facts["valid"]["nll"] <= facts["valid"]["nll_raw"]


def test_torch_has_the_threads_that_were_asked_for(parts: Split) -> None:
    """Else two runs of one thread each would fight for two cores with four."""
    seen: list[int] = []

    def stop() -> bool:  # asked inside the run
        seen.append(torch.get_num_threads())
        return False

    before = torch.get_num_threads()
    train(parts, side="user", settings=QUICK, threads=3, stop=stop)
    assert set(seen) == {3}
    assert torch.get_num_threads() == before
