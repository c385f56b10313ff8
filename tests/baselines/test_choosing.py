"""Which state of a fit is kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from cfnade import Dataset, synthetic
from cfnade.exceptions import TrainingError
from cfnade_baselines.base import Fitted, FloatArray, IntArray
from cfnade_baselines.choosing import best_by_validation

NAN = float("nan")


@dataclass(frozen=True)
class Off(Fitted):
    """Predicts every rating too high by the same."""

    by: float
    valid: Dataset

    def predict(self, users: IntArray, items: IntArray) -> FloatArray:
        assert (users == self.valid.users).all()
        assert (items == self.valid.items).all()
        return self.valid.values + self.by


@pytest.fixture(scope="module")
def valid() -> Dataset:
    return synthetic(5, 5, 10, seed=1).ratings


@pytest.mark.parametrize(
    ("offs", "until_worse", "best", "asked"),
    [
        ([3, 2, 4, 1, 5], False, 1, 5),
        ([3, 2, 4, 1, 5], True, 2, 3),
        ([3, 2, 1], True, 1, 3),
        ([NAN, 2, NAN], False, 2, 3),
    ],
)
def test_the_least_error_on_validation_is_kept(
    offs: list[float], until_worse: bool, best: float, asked: int, valid: Dataset
) -> None:
    count = 0

    def states() -> Iterator[Off]:
        nonlocal count
        for off in offs:
            count += 1
            yield Off(off, valid)

    kept = best_by_validation(states(), valid, cure="", until_worse=until_worse)
    assert (kept.by, count) == (best, asked)


def test_without_validation_the_last_is_kept(valid: Dataset) -> None:
    none = valid.select(np.arange(0))
    states = [Off(off, none) for off in (1, 3, 2)]
    for until_worse in (False, True):
        kept = best_by_validation(states, none, cure="", until_worse=until_worse)
        assert kept is states[-1]


def test_a_fit_without_numbers_has_diverged(valid: Dataset) -> None:
    with pytest.raises(TrainingError, match=r"diverged: no prediction is a number; lower it"):
        best_by_validation([Off(NAN, valid), Off(np.inf, valid)], valid, cure="lower it")
