"""Adapters against the predictions of the libraries."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cfnade.data.dataset import Dataset
from cfnade.data.synthetic import synthetic
from cfnade.exceptions import ModelError
from cfnade_baselines.base import MissingDependencyError, RatingPredictor, import_library
from cfnade_baselines.registry import create


@pytest.fixture(scope="module")
def ratings() -> Dataset:
    return synthetic(40, 30, 600, seed=7).ratings


def fit(name: str, ratings: Dataset, **options: Any) -> RatingPredictor:
    none = ratings.select(np.arange(0))
    return create(name, **options).fit(ratings, none, seed=3, n_threads=1)


def _installed(module: str) -> Any:
    try:
        return import_library(module, module, "this test")
    except MissingDependencyError as error:
        pytest.skip(str(error))


def _recording(models: list[Any], fit: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return a `fit` that also records its model."""

    def recording(self: Any, data: Any) -> Any:
        models.append(self)
        return fit(self, data)

    return recording


PAIRS = np.repeat(np.arange(40), 30), np.tile(np.arange(30), 40)


@pytest.mark.parametrize("name", ["biasmf", "pmf", "pmf-linear"])
def test_cornac_predicts_the_same_itself(
    name: str, ratings: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = _installed("cornac.models")
    fitted: list[Any] = []
    for kind in (models.MF, models.PMF):
        monkeypatch.setattr(kind, "fit", _recording(fitted, kind.fit))
    options = {"variant": "linear"} if name == "pmf-linear" else {}
    model = fit(name.split("-")[0], ratings, epochs=5, **options)
    expected = [fitted[0].score(user, item) for user, item in zip(*PAIRS, strict=True)]
    np.testing.assert_allclose(model.predict(*PAIRS), np.clip(expected, 1, 5), rtol=1e-5)


@pytest.mark.parametrize(("name", "kind"), [("svd", "SVD"), ("svdpp", "SVDpp")])
def test_surprise_predicts_the_same_itself(name: str, kind: str, ratings: Dataset) -> None:
    surprise = _installed("surprise")
    model = fit(name, ratings, epochs=5, factors=4, learning_rate=0.01)
    library = getattr(surprise, kind)(n_factors=4, n_epochs=5, lr_all=0.01, random_state=3)
    library.fit(_trainset(surprise.Trainset, ratings))
    expected = [
        library.predict(u, i).est for u, i in zip(*(c.tolist() for c in PAIRS), strict=True)
    ]
    np.testing.assert_allclose(model.predict(*PAIRS), expected, rtol=1e-9)


def _trainset(kind: Any, ratings: Dataset) -> Any:
    users: dict[int, list[tuple[int, float]]] = {u: [] for u in range(40)}
    items: dict[int, list[tuple[int, float]]] = {i: [] for i in range(30)}
    for u, i, r in zip(ratings.users, ratings.items, ratings.values, strict=True):
        users[int(u)].append((int(i), float(r)))
        items[int(i)].append((int(u), float(r)))
    same_users, same_items = ({n: n for n in group} for group in (users, items))
    return kind(users, items, 40, 30, len(ratings), (1, 5), same_users, same_items)


def test_myfm_gets_one_user_and_one_item_a_row(ratings: Dataset) -> None:
    _installed("myfm")
    model = fit("bfm", ratings, rank=3, iterations=12, kept_samples=4)
    samples = model.model_.predictor_.samples
    users, items = PAIRS
    expected = np.mean(
        [
            fm.w0
            + fm.w[users]
            + fm.w[40 + items]
            + (np.asarray(fm.V)[users] * np.asarray(fm.V)[40 + items]).sum(1)
            for fm in samples
        ],
        axis=0,
    )
    assert len(samples) == 4
    np.testing.assert_allclose(model.predict(users, items), np.clip(expected, 1, 5), rtol=1e-6)
    alone = np.mean([fm.w0 + fm.w[5] for fm in samples])
    assert model.predict(np.array([5]), np.array([-1]))[0] == pytest.approx(alone)


def test_ordered_probit_handles_levels_without_ratings(ratings: Dataset) -> None:
    _installed("myfm")
    without = ratings.select(ratings.levels != 2)
    probabilities = fit("bfm-ordinal", without, rank=2, iterations=8, kept_samples=4).predict_proba(
        *PAIRS
    )
    assert probabilities is not None
    assert (probabilities[:, 2] == 0).all()
    np.testing.assert_allclose(probabilities.sum(1), 1.0)


def test_lenskit_solves_the_least_squares_it_should(ratings: Dataset) -> None:
    """A user's factors are the ridge solution for the items' final factors."""
    try:
        model = fit("als", ratings, factors=3, epochs=2, user_regularization=0.2, damping=5.0)
    except MissingDependencyError as error:
        pytest.skip(str(error))
    is_user = ratings.users == 7
    items, values = ratings.items[is_user], ratings.values[is_user]
    above = values - ratings.values.mean() - model.item_biases_[items]
    bias = above.sum() / (len(items) + 5.0)
    factors = model.item_factors_[items]
    system = factors.T @ factors + 0.2 * len(items) * np.eye(3)
    user = np.linalg.solve(system, factors.T @ (above - bias))
    np.testing.assert_allclose(model.user_biases_[7], bias, rtol=1e-4)
    np.testing.assert_allclose(model.user_factors_[7], user, rtol=2e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["biasmf", "svd", "svdpp"])
def test_a_user_without_ratings_is_predicted_as_unknown(name: str, ratings: Dataset) -> None:
    """The random start vector of a library has no effect."""
    without = ratings.select((ratings.users != 5) & (ratings.items != 6))
    try:
        model = fit(name, without, epochs=3)
    except MissingDependencyError as error:
        pytest.skip(str(error))
    all_users, all_items = np.arange(40), np.arange(30)
    five, unknown_user = np.full(30, 5), np.full(30, -1)
    assert (model.predict(five, all_items) == model.predict(unknown_user, all_items)).all()
    six, unknown_item = np.full(40, 6), np.full(40, -1)
    assert (model.predict(all_users, six) == model.predict(all_users, unknown_item)).all()
    assert model.predict(five[:1], six[:1])[0] == pytest.approx(without.values.mean(), rel=1e-6)


def test_the_substitute_of_pkg_resources_is_removed(ratings: Dataset) -> None:
    _installed("myfm")
    before = sys.modules.get("pkg_resources")
    fit("bfm", ratings, rank=1, iterations=2, kept_samples=1)
    assert sys.modules.get("pkg_resources") is before


def test_lenskits_users_and_items_come_back_by_index(ratings: Dataset) -> None:
    """LensKit drops users and items without ratings and numbers the others anew."""
    _installed("lenskit.als")
    without = ratings.select((ratings.users != 3) & (ratings.items != 8))
    model = fit("als", without, factors=2)
    assert model.user_factors_.shape == (40, 2)
    assert (model.user_factors_[3] == 0).all()
    assert (model.item_factors_[8] == 0).all()
    mean = without.values.mean()
    for item in (7, 9):
        above = without.values[without.items == item] - mean
        np.testing.assert_allclose(
            model.item_biases_[item], above.sum() / (len(above) + 5.0), rtol=1e-4
        )


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("bfm", {"kept_samples": 300}, r"kept_samples \(=300\) must not exceed iterations \(100\)"),
        ("cfnade", {"recipe": "no-such"}, "unknown recipe 'no-such'"),
        ("cfnade", {"model": {"colour": 1}}, "unknown parameter of CFNADE 'colour'"),
        ("cfnade", {"training": {"seed": 1}}, "the seed is an argument of fit"),
    ],
)
def test_impossible_options_are_refused(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises((ModelError, ValueError), match=message):
        create(name, **options)
