"""Which state of a fit is kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pytest

from cfnade import Dataset, synthetic
from cfnade.exceptions import ModelError, TrainingError
from cfnade.utils.validation import options
from cfnade_baselines.base import (
    FloatArray,
    IntArray,
    NotFittedError,
    RatingPredictor,
    select_by_validation,
)

NAN = float("nan")


@options(ModelError)
class Biased(RatingPredictor):
    """Predicts every validation rating plus an offset."""

    name: ClassVar[str] = "biased"

    def _fit(self, train: Dataset, valid: Dataset, seed: int, n_threads: int | None) -> None:
        raise NotImplementedError

    def predict(self, users: IntArray, items: IntArray) -> FloatArray:
        valid: Dataset = self.valid_
        assert (users == valid.users).all()
        assert (items == valid.items).all()
        return valid.values + float(self.offset_)


@pytest.fixture(scope="module")
def valid() -> Dataset:
    return synthetic(5, 5, 10, seed=1).ratings


def select(offsets: list[float], valid: Dataset, **arguments: Any) -> tuple[float, int]:
    """Return the offset that is kept, and how many states were evaluated."""
    count = 0

    def states() -> Iterator[dict[str, Any]]:
        nonlocal count
        for offset in offsets:
            count += 1
            yield {"offset_": offset, "valid_": valid}

    model = Biased()
    select_by_validation(model, states(), valid, **{"remedy": "lower it"} | arguments)
    return model.offset_, count


@pytest.mark.parametrize(
    ("offsets", "until_worse", "best", "n_states"),
    [
        ([3, 2, 4, 1, 5], False, 1, 5),
        ([3, 2, 4, 1, 5], True, 2, 3),
        ([3, 2, 1], True, 1, 3),
        ([NAN, 2, NAN], False, 2, 3),
    ],
)
def test_the_least_error_on_validation_is_kept(
    offsets: list[float], until_worse: bool, best: float, n_states: int, valid: Dataset
) -> None:
    assert select(offsets, valid, until_worse=until_worse) == (best, n_states)


@pytest.mark.parametrize("until_worse", [False, True])
def test_without_validation_the_last_is_kept(valid: Dataset, until_worse: bool) -> None:
    empty = valid.select(np.arange(0))
    assert select([1, 3, 2], empty, until_worse=until_worse) == (2, 3)


def test_a_fit_without_finite_predictions_has_diverged(valid: Dataset) -> None:
    with pytest.raises(TrainingError, match=r"diverged: no prediction is a finite number; lower"):
        select([NAN, np.inf], valid)


def test_a_model_that_is_not_fitted_says_so(valid: Dataset) -> None:
    with pytest.raises(NotFittedError, match="biased is not fitted; call fit first"):
        Biased().predict(valid.users, valid.items)
    with pytest.raises(AttributeError, match="has no attribute 'colour'"):
        _ = Biased().colour
