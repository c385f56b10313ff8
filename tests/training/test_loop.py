"""The loop: it learns, it chooses by validation, it can be interrupted anywhere."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
import torch

from cfnade.components.optimizers import member_network
from cfnade.components.registry import new_member
from cfnade.config import TrainingConfig
from cfnade.data.splits import Split
from cfnade.exceptions import TrainingError
from cfnade.training import state
from cfnade.training.loop import FINAL_FACTOR, DivergedError, LoopOptions, Schedule, TrainingLoop
from cfnade.training.state import LoopState, StateStore
from cfnade.training.steps import make_stepper

QUICK = TrainingConfig(epochs=6, batch_rows=16, learning_rate=5e-3, weight_decay=1e-3, average=0.9)
FIELDS: dict[str, Any] = {"hidden": (8,)}


def make_loop(
    parts: Split,
    config: TrainingConfig = QUICK,
    score: Callable[[torch.nn.Module], float] | None = None,
    **options: Any,
) -> TrainingLoop:
    member = new_member(("item",), parts.train, FIELDS, config)
    stepper = make_stepper(member, parts.train, FIELDS, config, device="cpu", threads=1)
    sampler = stepper.sampler
    loop_options = LoopOptions.from_config(config, sampler.n_steps)
    validate = None if score is None else lambda model: {"rmse": score(model), "nll": 0.0}
    return TrainingLoop(
        member_network(member), sampler, stepper, loop_options, validate=validate, **options
    )


def weights(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def test_the_same_seed_gives_the_same_bits(parts: Split) -> None:
    runs = [make_loop(parts) for _ in range(2)]
    for loop in runs:
        loop.run()
    assert torch.equal(weights(runs[0].model), weights(runs[1].model))


def test_the_best_epoch_is_kept(parts: Split) -> None:
    scores = iter([0.9, 0.7, 0.8, 0.75, 0.9, 0.9])
    seen: list[torch.Tensor] = []

    def score(model: torch.nn.Module) -> float:
        seen.append(weights(model).clone())
        return next(scores)

    loop = make_loop(parts, score=score)
    loop.run()
    assert loop.state.best_epoch == 2
    assert torch.equal(weights(loop.model), seen[1])
    assert [r["best_rmse"] for r in loop.state.history] == [0.9, 0.7, 0.7, 0.7, 0.7, 0.7]


def test_the_best_epoch_may_be_that_of_the_lowest_nll(parts: Split) -> None:
    scores = iter([(0.9, 1.3), (0.7, 1.2), (0.8, 1.1)])
    settings = replace(QUICK, epochs=3, choose_by="nll")
    loop = make_loop(parts, settings)
    loop.validate = lambda _: dict(zip(("rmse", "nll"), next(scores), strict=True))
    loop.run()
    assert [r["best_epoch"] for r in loop.state.history] == [1, 2, 3]
    assert [r["best_rmse"] for r in loop.state.history] == [0.9, 0.7, 0.8]
    assert [r["valid_nll"] for r in loop.state.history] == [1.3, 1.2, 1.1]


def test_the_start_may_be_the_best(parts: Split) -> None:
    scores = iter([0.6, 0.7, 0.65])
    loop = make_loop(parts, replace(QUICK, epochs=2), score=lambda _: next(scores))
    start = {name: tensor.clone() for name, tensor in loop.model.state_dict().items()}
    loop.validate_start()
    loop.run()
    assert loop.state.best_epoch == 0
    assert [r["best_rmse"] for r in loop.state.history] == [0.6, 0.6]
    assert all(torch.equal(start[name], t) for name, t in loop.model.state_dict().items())


def test_a_run_that_diverges_keeps_the_start_if_that_was_validated(parts: Split) -> None:
    scores = iter([0.6, math.nan])
    loop = make_loop(parts, replace(QUICK, epochs=2), score=lambda _: next(scores))
    start = {name: tensor.clone() for name, tensor in loop.model.state_dict().items()}
    loop.validate_start()
    reason = loop.run_until_diverged()
    assert reason is not None
    assert "validation RMSE is nan" in reason
    assert loop.state.best_epoch == 0
    assert all(torch.equal(start[name], t) for name, t in loop.model.state_dict().items())


def test_a_start_without_a_finite_score_is_not_kept(parts: Split) -> None:
    scores = iter([math.nan, 0.7, 0.8])
    loop = make_loop(parts, replace(QUICK, epochs=2), score=lambda _: next(scores))
    loop.validate_start()
    loop.run()
    assert loop.state.best_epoch == 1


def test_averaged_weights_are_scored_and_selected(parts: Split) -> None:
    raw = make_loop(parts, replace(QUICK, average=0.0))
    averaged = make_loop(parts)
    for loop in (raw, averaged):
        loop.run()
    assert not torch.equal(weights(raw.model), weights(averaged.model))


def test_a_run_too_short_for_an_average_keeps_its_weights(parts: Split) -> None:
    raw = make_loop(parts, replace(QUICK, epochs=1, average=0.0))
    short = make_loop(parts, replace(QUICK, epochs=1, average_every=100))
    for loop in (raw, short):
        loop.run()
    assert torch.equal(weights(raw.model), weights(short.model))


def test_patience_ends_a_run(parts: Split) -> None:
    loop = make_loop(parts, replace(QUICK, epochs=50, patience=3), score=lambda _: 1.0)
    loop.run()
    assert loop.state.epoch == 4


@pytest.mark.parametrize("name", ["cosine", "linear"])
def test_rates_fall_from_one_to_the_least(name: Literal["cosine", "linear"]) -> None:
    schedule = Schedule(name, 200, 1e-3)
    factors = [schedule.factor(step) for step in range(201)]
    assert factors[0] == pytest.approx(1.0)
    assert factors[-1] == pytest.approx(FINAL_FACTOR)
    assert all(a >= b for a, b in itertools.pairwise(factors))


def test_cosine_is_half_way_in_the_middle() -> None:
    assert Schedule("cosine", 100, 1e-3).factor(50) == pytest.approx((1 + FINAL_FACTOR) / 2)


def test_a_linear_rate_is_held_at_first() -> None:
    schedule = Schedule("linear", 100, 1e-3)
    assert schedule.factor(10) == pytest.approx(1.0)
    assert schedule.factor(20) < 0.95


def test_a_plateau_quarters_the_rate_and_ends_at_the_smallest() -> None:
    config = TrainingConfig(schedule="plateau", patience=3, learning_rate=1e-3)
    schedule, state, cuts = Schedule.from_config(config, 1), LoopState(best_epoch=2), []
    for state.epoch in range(1, 60):  # no epoch is better than the second
        schedule.end_epoch(state)
        if state.last_cut == state.epoch:
            cuts.append(state.epoch)
        if schedule.finished(state):
            break
    # 1e-3 → 2.5e-4 → 6.2e-5 → 1.6e-5 → 3.9e-6, below 1e-5 and so the last
    assert cuts == [5, 8, 11, 14]
    assert schedule.factor(0, state.rate_cuts) == pytest.approx(0.25**4)
    assert state.epoch == 17


def test_patience_stops_other_schedules() -> None:
    schedule = Schedule("cosine", 100, 1e-3, patience=4)
    assert not schedule.finished(LoopState(epoch=7, best_epoch=4))
    assert schedule.finished(LoopState(epoch=8, best_epoch=4))
    assert not Schedule("cosine", 100, 1e-3).finished(LoopState(epoch=99, best_epoch=1))


# -- resumed ---------------------------------------------------------------------------------------


class InterruptedRunError(Exception):
    pass


def interrupted_run(parts: Split, folder: Path, steps: int) -> None:
    """Train until a step at which the process dies, having saved after every step."""
    loop = make_loop(parts, score=uneven_score, store=StateStore(folder, seconds=0.0))
    real, count = loop.stepper.step, [0]

    def step(*args: Any, **kwargs: Any) -> float:
        if count[0] == steps:
            raise InterruptedRunError
        count[0] += 1
        return real(*args, **kwargs)

    loop.stepper.step = step  # type: ignore[method-assign]
    with pytest.raises(InterruptedRunError):
        loop.run()


def uneven_score(model: torch.nn.Module) -> float:
    """Depends on the weights, and is not always better later."""
    return float(torch.sin(weights(model).sum() * 100))


@pytest.mark.parametrize("steps", [1, 3, 5, 14])
def test_an_interrupted_run_ends_with_the_same_bits(
    parts: Split, tmp_path: Path, steps: int
) -> None:
    whole = make_loop(parts, score=uneven_score)
    whole.run()
    interrupted_run(parts, tmp_path, steps)
    resumed = make_loop(parts, score=uneven_score, store=StateStore(tmp_path, resume=True))
    assert resumed.state.step == steps
    resumed.run()
    assert torch.equal(weights(whole.model), weights(resumed.model))
    assert resumed.state.best_epoch == whole.state.best_epoch
    for ours, theirs in zip(resumed.state.history, whole.state.history, strict=True):
        assert {**ours, "seconds": 0} == {**theirs, "seconds": 0}


def test_a_finished_run_that_is_resumed_is_finished(parts: Split, tmp_path: Path) -> None:
    loop = make_loop(parts, store=StateStore(tmp_path))
    loop.run()
    again = make_loop(parts, store=StateStore(tmp_path, resume=True))
    again.run()
    assert torch.equal(weights(loop.model), weights(again.model))
    assert again.state.epoch == QUICK.epochs


def test_another_run_does_not_go_on_from_this_state(parts: Split, tmp_path: Path) -> None:
    make_loop(parts, store=StateStore(tmp_path), identity={"seed": 1, "side": "item"}).run()
    with pytest.raises(TrainingError, match=r"another run: seed was 1, now 2\. Give the same"):
        make_loop(
            parts, store=StateStore(tmp_path, resume=True), identity={"seed": 2, "side": "item"}
        )


def test_there_must_be_something_to_resume(parts: Split, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="holds no unfinished training"):
        make_loop(parts, store=StateStore(tmp_path, resume=True))


def test_a_damaged_state_is_refused(parts: Split, tmp_path: Path) -> None:
    make_loop(parts, store=StateStore(tmp_path)).run()
    file = tmp_path / state.NAME
    raw = bytearray(file.read_bytes())
    raw[len(raw) // 2] ^= 4
    file.write_bytes(bytes(raw))
    with pytest.raises(TrainingError, match=r"cannot be resumed: .*damaged"):
        make_loop(parts, store=StateStore(tmp_path, resume=True))


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_divergence_says_where_and_what_to_change(parts: Split, number: float) -> None:
    loop = make_loop(parts)
    real, count = loop.stepper.step, [0]

    def step(*args: Any, **kwargs: Any) -> float:
        count[0] += 1
        return number if count[0] == 5 else real(*args, **kwargs)

    loop.stepper.step = step  # type: ignore[method-assign]
    message = r"the cost is (nan|inf) at step 5 \(epoch 2\); try a lower learning rate than 0\.005"
    with pytest.raises(DivergedError, match=message):
        loop.run()
