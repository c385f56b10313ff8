"""CFNADE(side="both"): its own defaults, several seeds, times, and back from a folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cfnade import CFNADE, Split, split, synthetic
from cfnade.errors import PredictionError
from cfnade.recipes import recipe

SMALL: dict[str, Any] = {"side": "both", "hidden": (6,), "epochs": 2, "threads": 1}


@pytest.fixture(scope="module")
def parts() -> Split:
    made = synthetic(40, 20, 400, seed=4).ratings
    return split(replace(made, times=np.arange(len(made)) * 60), "paper:0")


def predictions(estimator: CFNADE, parts: Split) -> Any:
    test = parts.test
    times = test.times if estimator.time else None
    return estimator.predict(test.user_ids[test.users], test.item_ids[test.items], times=times)


def test_what_is_not_given_comes_from_the_default_recipe_of_the_side() -> None:
    assert CFNADE(side="both")._settings() == recipe("default-both").training
    given = CFNADE(side="both", learning_rate=0.5, settings={"passes": 3})._settings()
    wanted = replace(recipe("default-both").training, learning_rate=0.5, passes=3)
    assert given == wanted
    model = recipe("default-both").model
    assert all(getattr(CFNADE(side="both"), name) == value for name, value in model.items())


@pytest.mark.parametrize("more", [{}, {"seeds": 2}, {"time": True}, {"time": True, "seeds": 2}])
def test_a_saved_estimator_comes_back(parts: Split, tmp_path: Path, more: dict[str, Any]) -> None:
    options = SMALL | more | {"settings": {"passes": 2, "batch_columns": 9}}
    estimator = CFNADE(**options).fit(parts)
    estimator.save(tmp_path)
    back = CFNADE.load(tmp_path)
    assert back.get_params() == estimator.get_params()
    np.testing.assert_array_equal(predictions(back, parts), predictions(estimator, parts))
    assert back.evaluate(parts.test) == estimator.evaluate(parts.test)
    again = back.fit(parts)
    np.testing.assert_array_equal(predictions(again, parts), predictions(estimator, parts))


def test_everything_can_be_asked(parts: Split) -> None:
    estimator = CFNADE(**SMALL).fit(parts)
    user, item = int(parts.train.user_ids[0]), int(parts.train.item_ids[0])
    assert estimator.predict_proba([user], [item]).sum() == pytest.approx(1.0)
    assert len(estimator.recommend([user], n=3)) == 3
    assert len(estimator.explain(user=user, item=item)) > 0
    history = {int(raw): 5.0 for raw in parts.train.item_ids[:4]}
    low = dict.fromkeys(history, 1.0)
    for rated in (history, low):
        assert len(estimator.recommend(history=rated, n=3)) == 3
    glad, sad = (
        estimator.predict("x", item, histories={"x": rated})[0] for rated in (history, low)
    )
    assert glad > sad


def test_time_changes_predictions_and_must_be_given(parts: Split) -> None:
    knowing, blind = (CFNADE(**SMALL, time=time).fit(parts) for time in (True, False))
    assert np.abs(predictions(knowing, parts) - predictions(blind, parts)).max() > 1e-6
    with pytest.raises(PredictionError, match="give times"):
        knowing.predict([1], [1])
