"""The contract of rating models."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from cfnade.data.dataset import Dataset
from cfnade.data.synthetic import Synthetic, synthetic
from cfnade.evaluation.rating_metrics import rmse
from cfnade.exceptions import ModelError
from cfnade_baselines.base import FloatArray, MissingDependencyError, RatingPredictor
from cfnade_baselines.registry import RATING_PREDICTORS, baseline_class, create

CASES = tomllib.loads((Path(__file__).parent / "cases" / "rating.toml").read_text())
USERS, ITEMS = 150, 80


@dataclasses.dataclass(frozen=True)
class Parts:
    """Parts of synthetic ratings. The last user and the last item occur in the test only."""

    train: Dataset
    valid: Dataset
    test: Dataset
    made: Synthetic


@pytest.fixture(scope="module")
def parts() -> Parts:
    """Users differ in one factor, which few ratings suffice to learn."""
    made = synthetic(USERS, ITEMS, 6_000, seed=3, factors=1)
    ratings = made.ratings
    numbers = np.random.default_rng(0).choice(3, len(ratings), p=(0.8, 0.05, 0.15))
    numbers[(ratings.users == USERS - 1) | (ratings.items == ITEMS - 1)] = 2
    train, valid, test = (ratings.select(numbers == i) for i in range(3))
    return Parts(train, valid, test, made)


def case(name: str) -> dict[str, Any]:
    """Return base, changed and with; see cases/rating.toml."""
    return {"with": {}, **CASES[name]}


def fit(model: RatingPredictor, parts: Parts, seed: int = 1) -> RatingPredictor:
    try:
        return model.fit(parts.train, parts.valid, seed=seed, n_threads=1)
    except MissingDependencyError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def fitted(parts: Parts) -> Callable[[str], RatingPredictor]:
    """Fit each model once, for all tests that do not change it."""
    return cache(lambda name: fit(create(name, **case(name)["base"]), parts))


Fits = Callable[[str], RatingPredictor]


def predictions(model: RatingPredictor, parts: Parts) -> FloatArray:
    return model.predict(parts.test.users, parts.test.items)


every_model = pytest.mark.parametrize("name", RATING_PREDICTORS)


@every_model
def test_predictions_are_ratings(name: str, parts: Parts, fitted: Fits) -> None:
    ratings = predictions(fitted(name), parts)
    assert ratings.shape == (len(parts.test),)
    assert ratings.dtype == np.float64
    assert ratings.min() >= 1.0
    assert ratings.max() <= 5.0


@every_model
def test_probabilities_are_a_distribution_with_that_mean(
    name: str, parts: Parts, fitted: Fits
) -> None:
    model = fitted(name)
    probabilities = model.predict_proba(parts.test.users, parts.test.items)
    if probabilities is None:
        return
    assert probabilities.shape == (len(parts.test), 5)
    assert probabilities.min() >= 0.0
    np.testing.assert_allclose(probabilities.sum(1), 1.0, atol=1e-5)
    # Calibration and rounding move the mean a little.
    np.testing.assert_allclose(
        probabilities @ np.arange(1, 6), predictions(model, parts), atol=0.02
    )


@every_model
def test_unknown_users_and_items_get_finite_predictions(name: str, fitted: Fits) -> None:
    """-1, a user and an item without training ratings, in all combinations."""
    grid = np.meshgrid([-1, USERS - 1, 0], [-1, ITEMS - 1, 0])
    users, items = (axis.ravel() for axis in grid)
    ratings = fitted(name).predict(users, items)
    assert ratings.min() >= 1.0
    assert ratings.max() <= 5.0
    probabilities = fitted(name).predict_proba(users, items)
    if probabilities is not None:
        np.testing.assert_allclose(probabilities.sum(1), 1.0, atol=1e-5)


@every_model
def test_no_pairs_give_no_predictions(name: str, fitted: Fits) -> None:
    empty = np.empty(0, np.int64)
    assert fitted(name).predict(empty, empty).shape == (0,)


@every_model
def test_a_prediction_does_not_depend_on_other_pairs(name: str, parts: Parts, fitted: Fits) -> None:
    batch = predictions(fitted(name), parts)
    reverse = fitted(name).predict(parts.test.users[::-1], parts.test.items[::-1])
    np.testing.assert_allclose(reverse[::-1], batch, atol=1e-4)
    single = fitted(name).predict(parts.test.users[:1], parts.test.items[:1])
    np.testing.assert_allclose(single, batch[:1], atol=1e-4)


@every_model
def test_an_index_beyond_the_data_is_refused(name: str, fitted: Fits) -> None:
    for users, items in (([USERS], [0]), ([0], [ITEMS]), ([-2], [0])):
        with pytest.raises(ModelError, match=r"must lie in 0\.\.\d+, or be -1"):
            fitted(name).predict(np.array(users), np.array(items))


@every_model
def test_the_same_seed_gives_the_same_bits(name: str, parts: Parts, fitted: Fits) -> None:
    first = predictions(fitted(name), parts).tobytes()
    model = create(name, **case(name)["base"])
    if name != "means":  # nothing is random
        assert predictions(fit(model, parts, seed=2), parts).tobytes() != first
    assert predictions(fit(model, parts), parts).tobytes() == first
    assert predictions(fitted(name), parts).tobytes() == first


@every_model
def test_the_error_lies_between_those_of_means_and_truth(
    name: str, parts: Parts, fitted: Fits
) -> None:
    users, items, values = parts.test.users, parts.test.items, parts.test.values
    floor = fit(create("means", kind="global"), parts) if name == "means" else fitted("means")
    means = rmse(values, floor.predict(users, items))
    error = rmse(values, fitted(name).predict(users, items))
    assert rmse(values, parts.made.means(users, items)) < error < means - 0.02


@every_model
def test_every_option_changes_the_result(name: str, parts: Parts, fitted: Fits) -> None:
    options = case(name)
    fields = {field.name for field in dataclasses.fields(cast(Any, baseline_class(name)))}
    assert set(options["changed"]) == fields, (
        "cases/rating.toml must name every option, and no other"
    )
    for option, value in options["changed"].items():
        other_options = options["with"].get(option, {})
        base = options["base"] | other_options
        reference = fit(create(name, **base), parts) if other_options else fitted(name)
        changed = fit(create(name, **base | {option: value}), parts)
        same = predictions(changed, parts).tobytes() == predictions(reference, parts).tobytes()
        assert not same, f"{option}={value!r} makes no difference"


@every_model
def test_options_are_checked_and_frozen(name: str) -> None:
    model = create(name, **case(name)["base"])
    option = dataclasses.fields(cast(Any, model))[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(model, option, None)
    with pytest.raises(ModelError, match="colour"):
        create(name, colour="red")


@every_model
def test_a_model_learns_without_validation_but_not_without_ratings(name: str, parts: Parts) -> None:
    model, empty = create(name, **case(name)["base"]), parts.valid.select(np.arange(0))
    try:
        model = model.fit(parts.train, empty, n_threads=1)
    except MissingDependencyError as error:
        pytest.skip(str(error))
    floor = rmse(parts.test.values, np.full(len(parts.test), parts.train.values.mean()))
    assert rmse(parts.test.values, predictions(model, parts)) < floor
    with pytest.raises(ModelError, match="no ratings to learn from; give at least one"):
        model.fit(empty, empty)


def test_classes_are_named_as_registered() -> None:
    assert [baseline_class(name).name for name in RATING_PREDICTORS] == list(RATING_PREDICTORS)


def test_an_unknown_model_is_refused_with_a_hint() -> None:
    with pytest.raises(ModelError, match=r"unknown model 'autorek'; did you mean 'autorec'"):
        baseline_class("autorek")


def test_the_registry_imports_no_library() -> None:
    code = "import sys, cfnade_baselines.registry as r; r.preset_names(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "numba", "scipy", "cornac", "myfm", "surprise"} & set(done.stdout.split())
