"""What every model in the comparison must do, whoever wrote it."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import tomllib
from collections.abc import Callable
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
class MadeUp:
    """Parts of made-up ratings. The last user and the last item occur in the test only."""

    train: Dataset
    valid: Dataset
    test: Dataset
    made: Synthetic


@pytest.fixture(scope="module")
def parts() -> MadeUp:
    """People differ in one way only, and strongly: few ratings suffice to find out how."""
    made = synthetic(USERS, ITEMS, 6_000, seed=3, factors=1)
    ratings = made.ratings
    numbers = np.random.default_rng(0).choice(3, len(ratings), p=(0.8, 0.05, 0.15))
    numbers[(ratings.users == USERS - 1) | (ratings.items == ITEMS - 1)] = 2
    train, valid, test = (ratings.select(numbers == i) for i in range(3))
    return MadeUp(train, valid, test, made)


def case(name: str) -> dict[str, Any]:
    """Return base, changed and with; see cases/rating.toml."""
    return {"with": {}, **CASES[name]}


def fit(model: RatingPredictor, parts: MadeUp, seed: int = 1) -> RatingPredictor:
    try:
        return model.fit(parts.train, parts.valid, seed=seed, n_threads=1)
    except MissingDependencyError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def fitted(parts: MadeUp) -> Callable[[str], RatingPredictor]:
    """Each model fitted once, for all tests that only look at it."""
    done: dict[str, RatingPredictor] = {}

    def one(name: str) -> RatingPredictor:
        if name not in done:
            done[name] = fit(create(name, **case(name)["base"]), parts)
        return done[name]

    return one


Fits = Callable[[str], RatingPredictor]


def predictions(model: RatingPredictor, parts: MadeUp) -> FloatArray:
    return model.predict(parts.test.users, parts.test.items)


every = pytest.mark.parametrize("name", RATING_PREDICTORS)


@every
def test_predictions_are_ratings(name: str, parts: MadeUp, fitted: Fits) -> None:
    stars = predictions(fitted(name), parts)
    assert stars.shape == (len(parts.test),)
    assert stars.dtype == np.float64
    assert stars.min() >= 1.0
    assert stars.max() <= 5.0


@every
def test_probabilities_are_a_distribution_with_that_mean(
    name: str, parts: MadeUp, fitted: Fits
) -> None:
    model = fitted(name)
    chances = model.predict_proba(parts.test.users, parts.test.items)
    if chances is None:
        return
    assert chances.shape == (len(parts.test), 5)
    assert chances.min() >= 0.0
    np.testing.assert_allclose(chances.sum(1), 1.0, atol=1e-5)
    # Calibration and rounding move the mean a little.
    np.testing.assert_allclose(chances @ np.arange(1, 6), predictions(model, parts), atol=0.02)


@every
def test_the_unknown_gets_a_finite_answer(name: str, fitted: Fits) -> None:
    """-1, a user and an item without training ratings, in all combinations."""
    grid = np.meshgrid([-1, USERS - 1, 0], [-1, ITEMS - 1, 0])
    users, items = (axis.ravel() for axis in grid)
    stars = fitted(name).predict(users, items)
    assert stars.min() >= 1.0
    assert stars.max() <= 5.0
    chances = fitted(name).predict_proba(users, items)
    if chances is not None:
        np.testing.assert_allclose(chances.sum(1), 1.0, atol=1e-5)


@every
def test_no_question_is_no_answer(name: str, fitted: Fits) -> None:
    none = np.empty(0, np.int64)
    assert fitted(name).predict(none, none).shape == (0,)


@every
def test_order_and_company_of_questions_do_not_matter(
    name: str, parts: MadeUp, fitted: Fits
) -> None:
    together = predictions(fitted(name), parts)
    back = fitted(name).predict(parts.test.users[::-1], parts.test.items[::-1])
    np.testing.assert_allclose(back[::-1], together, atol=1e-4)
    alone = fitted(name).predict(parts.test.users[:1], parts.test.items[:1])
    np.testing.assert_allclose(alone, together[:1], atol=1e-4)


@every
def test_an_index_beyond_the_data_is_refused(name: str, fitted: Fits) -> None:
    for users, items in (([USERS], [0]), ([0], [ITEMS]), ([-2], [0])):
        with pytest.raises(ModelError, match=r"must lie in 0\.\.\d+, or be -1"):
            fitted(name).predict(np.array(users), np.array(items))


@every
def test_the_same_seed_gives_the_same_bits_however_often(
    name: str, parts: MadeUp, fitted: Fits
) -> None:
    first = predictions(fitted(name), parts).tobytes()
    model = create(name, **case(name)["base"])
    if name != "means":  # nothing in them is drawn
        assert predictions(fit(model, parts, seed=2), parts).tobytes() != first
    assert predictions(fit(model, parts), parts).tobytes() == first
    assert predictions(fitted(name), parts).tobytes() == first


@every
def test_it_beats_the_means_and_not_the_truth(name: str, parts: MadeUp, fitted: Fits) -> None:
    """There is taste to be found."""
    users, items, values = parts.test.users, parts.test.items, parts.test.values
    floor = fit(create("means", kind="global"), parts) if name == "means" else fitted("means")
    means = rmse(values, floor.predict(users, items))
    error = rmse(values, fitted(name).predict(users, items))
    assert rmse(values, parts.made.means(users, items)) < error < means - 0.02


@every
def test_every_option_changes_the_result(name: str, parts: MadeUp, fitted: Fits) -> None:
    options = case(name)
    fields = {field.name for field in dataclasses.fields(cast(Any, baseline_class(name)))}
    assert set(options["changed"]) == fields, (
        "cases/rating.toml must name every option, and no other"
    )
    for option, value in options["changed"].items():
        further = options["with"].get(option, {})
        base = options["base"] | further
        usual = fit(create(name, **base), parts) if further else fitted(name)
        changed = fit(create(name, **base | {option: value}), parts)
        same = predictions(changed, parts).tobytes() == predictions(usual, parts).tobytes()
        assert not same, f"{option}={value!r} makes no difference"


@every
def test_options_cannot_be_changed_and_unknown_ones_are_refused(name: str) -> None:
    model = create(name, **case(name)["base"])
    option = dataclasses.fields(cast(Any, model))[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(model, option, None)
    with pytest.raises(ModelError, match="colour"):
        create(name, colour="red")


@every
def test_it_learns_without_validation(name: str, parts: MadeUp) -> None:
    model, none = create(name, **case(name)["base"]), parts.valid.select(np.arange(0))
    try:
        model = model.fit(parts.train, none, n_threads=1)
    except MissingDependencyError as error:
        pytest.skip(str(error))
    floor = rmse(parts.test.values, np.full(len(parts.test), parts.train.values.mean()))
    assert rmse(parts.test.values, predictions(model, parts)) < floor


def test_all_classes_are_there_and_named_as_registered() -> None:
    assert [baseline_class(name).name for name in RATING_PREDICTORS] == list(RATING_PREDICTORS)


def test_an_unknown_model_is_refused_with_a_hint() -> None:
    with pytest.raises(ModelError, match=r"unknown model 'autorek'; did you mean 'autorec'"):
        baseline_class("autorek")


def test_looking_at_the_registry_imports_no_library() -> None:
    code = "import sys, cfnade_baselines.registry as r; r.preset_names(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "numba", "scipy", "cornac", "myfm", "surprise"} & set(done.stdout.split())
