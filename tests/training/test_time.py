"""Models that know time: they learn by the right gradient, and a prediction must say when."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cfnade.components import Member
from cfnade.config import TrainingConfig
from cfnade.data.dataset import Dataset
from cfnade.data.splits import Split, split
from cfnade.data.synthetic import synthetic
from cfnade.exceptions import PredictionError, TrainingError
from cfnade.fitted_model import FittedModel
from cfnade.inference.query import Query
from cfnade.inference.scorer import Scorer
from cfnade.training.options import RunOptions
from cfnade.training.plan import plan_side
from cfnade.training.train import train

FIELDS: dict[str, Any] = {"hidden": (6,), "context_scale": "sqrt", "time": True}
QUICK = TrainingConfig(
    epochs=4,
    passes=2,
    batch_rows=20,
    batch_columns=15,
    learning_rate=5e-3,
    schedule="constant",
    optimizer="sparse_adam",
    context_rate=(0.8, 1.0),
    average=0.9,
    average_every=2,
)


def timed() -> Dataset:
    made = synthetic(60, 40, 1200, seed=3).ratings
    rng = np.random.default_rng(1)
    return made.replace(times=np.sort(rng.integers(0, 10**6, len(made))))


@pytest.fixture(scope="module")
def parts() -> Split:
    return split(timed(), "paper:0")


@pytest.fixture(scope="module")
def fitted(parts: Split) -> FittedModel:
    return train(parts, plan_side("both", FIELDS, QUICK), RunOptions(n_threads=1)).model


@pytest.mark.parametrize("side", ["user", "both"])
def test_a_model_learns_from_time_where_it_matters(side: str) -> None:
    """Levels that depend on the moment alone, and on nothing that ratings tell."""
    made = timed()
    assert made.times is not None
    mood = (made.times // 5000) % 2  # hours of good and bad mood, of everyone
    levels = np.where(mood == 1, len(made.scale) - 1, 0).astype(np.uint8)
    parts = split(made.replace(levels=levels), "paper:0")
    settings = replace(QUICK, epochs=12, passes=4)
    blind, knowing = (
        train(parts, plan_side(side, FIELDS | {"time": time}, settings)) for time in (False, True)
    )
    rmse = knowing.model.metadata["valid"]["rmse"]
    assert rmse < 0.7 * blind.model.metadata["valid"]["rmse"]


def test_predictions_need_times_and_change_with_them(parts: Split, fitted: FittedModel) -> None:
    test, scorer = parts.test, Scorer(fitted)
    assert fitted.needs_times
    with pytest.raises(PredictionError, match="needs to know when; give timestamp"):
        scorer.probabilities(test.users, test.items)
    assert test.times is not None
    now = scorer.probabilities(test.users, test.items, test.times)
    later = scorer.probabilities(test.users, test.items, np.asarray(test.times) + 10**5)
    assert np.abs(now - later).max() > 1e-6
    # What the moment says is added to the scores of the others.
    sides = fitted.members[0].components
    timeless = Member({name: side for name, side in sides.items() if name != "time"})
    others = Scorer(replace(fitted, members=(timeless,)))
    users, items = test.users.astype(np.int64), test.items.astype(np.int64)
    pairs = Query.of_pairs(fitted.context, users, items, test.times).pairs("user")
    added = sides["time"].scorer(pairs.rows).score_pairs(pairs)
    chances = others.probabilities(test.users, test.items) * np.exp(added)
    np.testing.assert_allclose(now, chances / chances.sum(1, keepdims=True), rtol=1e-4)


def test_time_needs_timestamps(parts: Split) -> None:
    bare = replace(parts, train=parts.train.replace(times=None))
    with pytest.raises(TrainingError, match="need ratings with timestamps"):
        train(bare, plan_side("both", FIELDS, QUICK))
