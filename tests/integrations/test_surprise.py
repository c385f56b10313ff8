"""Surprise drives the model as one of its own, and gets what the estimator says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest
from surprise import Dataset, Reader, accuracy, dump
from surprise.model_selection import GridSearchCV, KFold, cross_validate

from cfnade import CFNADE, synthetic
from cfnade.integrations.surprise import CFNADEAlgo

FAST: dict[str, Any] = {
    **{"side": "user", "ridge": 0, "hidden": (4,), "epochs": 2, "batch_rows": 8, "n_threads": 1}
}


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    drawn = synthetic(30, 20, 300, seed=3).ratings
    users = [f"u{one:02}" for one in drawn.users]
    return pd.DataFrame({"user": users, "item": drawn.items, "rating": drawn.values})


@pytest.fixture(scope="module")
def data(frame: pd.DataFrame) -> Dataset:
    return Dataset.load_from_df(frame, Reader(rating_scale=(1, 5)))


@pytest.fixture(scope="module")
def fitted(data: Dataset) -> CFNADEAlgo:
    return CFNADEAlgo(**FAST).fit(data.build_full_trainset())


def test_it_says_what_the_estimator_says(fitted: CFNADEAlgo) -> None:
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


def test_many_are_answered_as_one_by_one(fitted: CFNADEAlgo, data: Dataset) -> None:
    testset = [*data.build_full_trainset().build_testset()[:30], ("nobody", 3, 4.0)]
    together = fitted.test(testset)
    alone = [fitted.predict(*one) for one in testset]
    assert [one[:3] for one in together] == [one[:3] for one in alone]
    np.testing.assert_allclose([one.est for one in together], [one.est for one in alone], atol=1e-6)
    assert accuracy.rmse(together, verbose=False) > 0


def test_the_unknown_are_answered(fitted: CFNADEAlgo) -> None:
    for user, item in [("nobody", 3), ("u03", "nothing"), ("nobody", "nothing")]:
        said = fitted.predict(user, item)
        assert not said.details["was_impossible"]
        assert 1 < said.est < 5


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
