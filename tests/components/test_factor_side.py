"""The side that is factor analysis alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.components.given import network_of
from tests.queries import component_scores

from cfnade import CFNADE
from cfnade.components import Axis
from cfnade.components.factor_analysis import FactorComponent
from cfnade.components.registry import new_member
from cfnade.config import TrainingConfig
from cfnade.data.splits import split
from cfnade.data.synthetic import synthetic
from cfnade.inference.scorer import Scorer
from cfnade.training.plan import plan_side
from cfnade.training.train import train

STILL = TrainingConfig(epochs=0)
RATINGS = synthetic(60, 40, 1_200, factors=2, seed=2).ratings


def some_side(axis: Axis) -> FactorComponent:
    side = new_member((f"{axis}-factors",), RATINGS, {"ridge": 3}, STILL).components[
        f"{axis}-factors"
    ]
    assert isinstance(side, FactorComponent)
    return side


@pytest.mark.parametrize("axis", ["user", "item"])
def test_the_expected_rating_is_that_of_bayesian_regression(axis: Axis) -> None:
    """A row's ratings against the loadings of their columns, by ridge regression on all of them."""
    side = some_side(axis)
    net, rows = network_of(side).double(), RATINGS.rows(axis)
    a, c, mean, noise = (part.numpy() for part in (net.a, net.c, net.mean[:, 0], net.noise[0]))
    column = 3
    for row in range(0, 30, 5):
        own = slice(rows.offsets[row], rows.offsets[row + 1])
        known, levels = rows.columns[own], rows.levels[own].astype(float)
        rest = known != column
        A, left = a[known[rest]], levels[rest] - mean[known[rest]]
        precision = np.eye(3) + (A.T @ A + np.diag(c[known[rest]].sum(0))) / noise
        expected = mean[column] + a[column] @ np.linalg.solve(precision, A.T @ left / noise)
        cell = (row, column) if axis == "user" else (column, row)
        scores = component_scores(side, RATINGS, *(np.array([n]) for n in cell))[0]
        chances = np.exp(scores - scores.max())
        found = chances @ np.arange(5) / chances.sum()
        assert found == pytest.approx(np.clip(expected, 0.03, 3.97), abs=0.01)


def test_levels_are_expected_as_often_as_they_came() -> None:
    side = some_side("user")
    users, items = RATINGS.users.astype(np.int64), RATINGS.items.astype(np.int64)
    scores = component_scores(side, RATINGS, users, items)
    chances = torch.from_numpy(scores).softmax(1).mean(0).numpy()
    came = np.bincount(RATINGS.levels, minlength=5) / len(RATINGS)
    np.testing.assert_allclose(chances, came, atol=0.02)


@pytest.mark.parametrize("samples", [None, 5])
@pytest.mark.parametrize("side", ["user-factors", "item-factors", "factors-neighborhood"])
def test_what_is_made_needs_no_settings(side: str, samples: int | None) -> None:
    parts = split(RATINGS, "paper:0")
    found = CFNADE(side=side, samples=samples).fit(parts).evaluate(parts.test)
    assert found.rmse < parts.test.values.std()  # what the mean of all gives


def test_nothing_is_trained_and_a_refit_knows_validation_too() -> None:
    parts = split(RATINGS, "paper:0")
    once = train(parts, plan_side("user-factors", {}, TrainingConfig(epochs=5, average=0.0))).model
    still = train(parts, plan_side("user-factors", {}, STILL)).model
    cells = parts.test.users, parts.test.items
    one, other = (Scorer(model).probabilities(*cells) for model in (once, still))
    np.testing.assert_array_equal(one, other)
    again = train(parts, plan_side("user-factors", {}, TrainingConfig(epochs=0, refit=True))).model
    assert np.abs(Scorer(again).probabilities(*cells) - other).max() > 1e-4


def test_ratings_that_follow_a_rule_leave_some_noise() -> None:
    """Everyone gives the same to everything: nothing may be divided by what is left."""
    rule = RATINGS.select(np.arange(len(RATINGS)))
    levels = (rule.users % 5).astype(np.uint8)

    fitted = train(
        split(rule.replace(levels=levels), "paper:0"), plan_side("user-factors", {}, STILL)
    )
    said = Scorer(fitted.model).probabilities(rule.users[:50], rule.items[:50])
    assert np.isfinite(said).all()
    assert (said.argmax(1) == levels[:50]).mean() > 0.9
