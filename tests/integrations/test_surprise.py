"""Surprise evaluates the model like its own, with the predictions of the estimator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest
from surprise import Dataset, Reader, accuracy, dump
from surprise.model_selection import GridSearchCV, KFold, cross_validate
from tests.integrations.exported import FAST

from cfnade import CFNADE, synthetic
from cfnade.integrations.surprise import CFNADEAlgo


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    drawn = synthetic(30, 20, 300, seed=3).ratings
    users = [f"u{user:02}" for user in drawn.users]
    return pd.DataFrame({"user": users, "item": drawn.items, "rating": drawn.values})


@pytest.fixture(scope="module")
def data(frame: pd.DataFrame) -> Dataset:
    return Dataset.load_from_df(frame, Reader(rating_scale=(1, 5)))


@pytest.fixture(scope="module")
def fitted(data: Dataset) -> CFNADEAlgo:
    return CFNADEAlgo(**FAST).fit(data.build_full_trainset())


def test_predictions_are_those_of_the_estimator(fitted: CFNADEAlgo) -> None:
    """Surprise numbers users and items as they come; ours is told the same, in its own order."""
    trainset = fitted.trainset
    cells = [*trainset.all_ratings()]
    plain = CFNADE(**FAST).fit(pd.DataFrame(cells, columns=["user", "item", "rating"]))
    for user, item in [("u03", 7), ("u11", 2)]:
        inner = trainset.to_inner_uid(user), trainset.to_inner_iid(item)
        said = fitted.predict(user, item)
        assert said.est == pytest.approx(
            plain.predict([inner[0]], [inner[1]], unknown="mean")[0], abs=1e-6
        )
        chances = plain.predict_proba([inner[0]], [inner[1]], unknown="mean")[0]
        assert [*said.details["probabilities"].values()] == pytest.approx(chances, abs=1e-6)
        assert [*said.details["probabilities"]] == [1, 2, 3, 4, 5]


def test_many_pairs_are_predicted_as_single_ones(fitted: CFNADEAlgo, data: Dataset) -> None:
    testset = [*data.build_full_trainset().build_testset()[:30], ("nobody", 3, 4.0)]
    testset += [("u03", "nothing", 2.0), ("nobody", "nothing", 1.0)]
    batch, singles = fitted.test(testset), [fitted.predict(*cell) for cell in testset]
    assert [prediction[:3] for prediction in batch] == [prediction[:3] for prediction in singles]
    batch_estimates, estimates = ([p.est for p in part] for part in (batch, singles))
    np.testing.assert_allclose(batch_estimates, estimates, atol=1e-6)
    assert accuracy.rmse(batch, verbose=False) > 0
    for prediction in singles[-3:]:  # of unknown users and items
        assert not prediction.details["was_impossible"]
        assert 1 < prediction.est < 5


def test_cross_validate_is_that_by_hand(data: Dataset) -> None:
    folds = KFold(2, random_state=0)
    found = cross_validate(CFNADEAlgo(**FAST), data, ["rmse"], cv=folds)["test_rmse"]
    by_hand = []
    for train, test in folds.split(data):
        frame = pd.DataFrame([*train.all_ratings()], columns=["user", "item", "rating"])
        model, gaps = CFNADE(**FAST).fit(frame), []
        for user, item, rating in test:
            users = train._raw2inner_id_users.get(user, -1), train._raw2inner_id_items.get(item, -1)
            gaps.append(rating - model.predict([users[0]], [users[1]], unknown="mean")[0])
        by_hand.append(np.sqrt(np.mean(np.square(gaps))))
    np.testing.assert_allclose(found, by_hand, rtol=1e-5)


def test_a_grid_is_searched(data: Dataset) -> None:
    grid = {name: [value] for name, value in FAST.items()} | {"epochs": [1, 3]}
    search = GridSearchCV(CFNADEAlgo, grid, ["rmse"], cv=2, refit=True)
    search.fit(data)
    assert len({*search.cv_results["mean_test_rmse"]}) == 2
    assert search.best_estimator["rmse"].epochs == search.best_params["rmse"]["epochs"]
    assert 1 < search.predict("u03", 7).est < 5


@pytest.mark.filterwarnings("ignore:unclosed file")  # Surprise leaves it so
def test_a_dumped_one_says_the_same(fitted: CFNADEAlgo, tmp_path: Path) -> None:
    dump.dump(str(tmp_path / "algo"), algo=fitted)
    _, found = dump.load(str(tmp_path / "algo"))
    assert found.predict("u03", 7) == fitted.predict("u03", 7)
