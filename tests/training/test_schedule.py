"""Learning rates: where they start, where they end, and when a plateau cuts them."""

from __future__ import annotations

import itertools
from typing import Literal

import pytest

from cfnade.config import TrainingConfig
from cfnade.training.schedule import LEAST, Schedule


@pytest.mark.parametrize("name", ["cosine", "linear"])
def test_rates_fall_from_one_to_the_least(name: Literal["cosine", "linear"]) -> None:
    schedule = Schedule(TrainingConfig(schedule=name), steps=200)
    factors = [schedule.factor(step) for step in range(201)]
    assert factors[0] == pytest.approx(1.0)
    assert factors[-1] == pytest.approx(LEAST)
    assert all(a >= b for a, b in itertools.pairwise(factors))


def test_cosine_is_half_way_in_the_middle() -> None:
    assert Schedule(TrainingConfig(), steps=100).factor(50) == pytest.approx((1 + LEAST) / 2)


def test_a_linear_rate_is_held_at_first() -> None:
    schedule = Schedule(TrainingConfig(schedule="linear"), steps=100)
    assert schedule.factor(10) == pytest.approx(1.0)
    assert schedule.factor(20) < 0.95


def test_a_plateau_quarters_the_rate_and_ends_at_the_smallest() -> None:
    settings = TrainingConfig(schedule="plateau", patience=3, learning_rate=1e-3)
    schedule = Schedule(settings, steps=1)
    cuts = []
    for epoch in range(1, 60):  # nothing is ever better than epoch 2
        schedule.after_epoch(epoch, 2)
        if schedule.last_cut == epoch:
            cuts.append(epoch)
        if schedule.finished(epoch, 2):
            break
    # 1e-3 → 2.5e-4 → 6.2e-5 → 1.6e-5 → 3.9e-6, below 1e-5 and so the last
    assert cuts == [5, 8, 11, 14]
    assert schedule.factor(0) == pytest.approx(0.25**4)
    assert epoch == 17


def test_patience_stops_other_schedules() -> None:
    schedule = Schedule(TrainingConfig(patience=4), steps=100)
    assert not schedule.finished(7, 4)
    assert schedule.finished(8, 4)
    assert not Schedule(TrainingConfig(), steps=100).finished(99, 1)
