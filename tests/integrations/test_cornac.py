"""Cornac evaluates the model like its own, with the predictions of the estimator."""

from __future__ import annotations

from pathlib import Path

import cornac
import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest
from cornac.eval_methods import RatioSplit
from cornac.metrics import RMSE, Recall
from tests.integrations.exported import FAST
from tests.support.close import assert_close

from cfnade import CFNADE, synthetic
from cfnade.integrations.cornac import CFNADERecommender


@pytest.fixture(scope="module")
def split() -> RatioSplit:
    drawn = synthetic(30, 60, 400, seed=3).ratings
    users = [f"u{user:02}" for user in drawn.users]
    cells = [*zip(users, drawn.items.tolist(), drawn.values.tolist(), strict=True)]
    return RatioSplit(cells, test_size=0.2, seed=1, exclude_unknowns=False)


@pytest.fixture(scope="module")
def fitted(split: RatioSplit) -> CFNADERecommender:
    return CFNADERecommender(**FAST).fit(split.train_set)


@pytest.fixture(scope="module")
def plain(split: RatioSplit) -> CFNADE:
    columns = dict(zip(["user", "item", "rating"], split.train_set.uir_tuple, strict=True))
    return CFNADE(**FAST).fit(pd.DataFrame(columns))


def test_predictions_are_those_of_the_estimator(fitted: CFNADERecommender, plain: CFNADE) -> None:
    every = np.arange(fitted.total_items)
    found = fitted.score(3)
    np.testing.assert_allclose(found, plain.predict(3, every, unknown="mean"), atol=1e-6)
    assert fitted.score(3, 5) == pytest.approx(found[5], abs=1e-6)
    assert fitted.rate(3, 5) == pytest.approx(found[5], abs=1e-6)


def test_an_experiment_lists_the_rmse_that_there_is(
    split: RatioSplit, plain: CFNADE, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where Cornac writes its log
    ours, theirs = CFNADERecommender(**FAST), cornac.models.MF(seed=1)
    metrics = [RMSE(), Recall(k=5)]
    table = cornac.Experiment(split, [theirs, ours], metrics, user_based=False, verbose=False)
    table.run()
    users, items, values = split.test_set.uir_tuple
    known = split.train_set.num_users, split.train_set.num_items
    users, items = np.where(users < known[0], users, -1), np.where(items < known[1], items, -1)
    gaps = values - plain.predict(users, items, unknown="mean")
    found = {result.model_name: result.metric_avg_results for result in table.result}
    assert set(found) == {"MF", "CF-NADE"}
    assert found["CF-NADE"]["RMSE"] == pytest.approx(np.sqrt(np.mean(gaps**2)), rel=1e-5)
    assert 0 < found["CF-NADE"]["Recall@5"] < 1


def test_a_clone_takes_other_arguments() -> None:
    clone = CFNADERecommender(**FAST, name="ours").clone({"epochs": 7})
    assert (clone.name, clone.epochs, clone.hidden) == ("ours", 7, (4,))


def test_lists_leave_out_what_was_seen(fitted: CFNADERecommender, split: RatioSplit) -> None:
    train = split.train_set
    raws = {at: item for item, at in train.iid_map.items()}
    seen = {raws[at] for who, at, _ in zip(*train.uir_tuple, strict=True) if who == 3}
    user = next(raw for raw, at in train.uid_map.items() if at == 3)
    listed = fitted.recommend(user, k=5, remove_seen=True, train_set=train)
    assert len(listed) == 5
    assert not seen & {*listed}


@pytest.mark.filterwarnings("ignore:unclosed file")  # Cornac leaves it so
def test_a_saved_one_says_the_same(fitted: CFNADERecommender, tmp_path: Path) -> None:
    found = CFNADERecommender.load(fitted.save(str(tmp_path)))
    assert_close(found.score(3), fitted.score(3))
