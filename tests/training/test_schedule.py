"""Learning rates: where they start, where they end, and when a plateau cuts them."""

from __future__ import annotations

import itertools
from typing import Literal

import pytest

from cfnade.config import TrainingConfig
from cfnade.training.loop import FINAL_FACTOR, Schedule
from cfnade.training.state import LoopState


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
    schedule, state, cuts = Schedule.of(config, 1), LoopState(best_epoch=2), []
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
