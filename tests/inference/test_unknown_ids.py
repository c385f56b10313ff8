"""Unknown users and items: means, NaN, or an error, as the caller asks."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from tests.inference.cases import estimator, make

from cfnade.estimator import CFNADE
from cfnade.exceptions import PredictionError

USERS, ITEMS = [0, 4711, 10, 4711, "me"], [101, 101, 999, 888, 101]
AFFECTED = np.array([False, True, True, True, False])
HISTORIES = {"me": {103: 5}}
METHODS = ["predict", "predict_proba", "predict_frame"]
each_method = pytest.mark.parametrize("method", METHODS)


@pytest.fixture(scope="module")
def model() -> CFNADE:
    return CFNADE()._set_model(make("user"))


def numbers(answer: Any) -> Any:
    """Predictions (n,) or probabilities (n, K) of an answer."""
    if isinstance(answer, np.ndarray):
        return answer
    return answer.select(r"^(prediction|std|p_.*)$").to_numpy()


def ask(model: CFNADE, method: str, *, new: bool, **options: Any) -> Any:
    """With a new person among the users, or without."""
    asked, beside = slice(None, None if new else 4), {"histories": HISTORIES} if new else {}
    return numbers(getattr(model, method)(USERS[asked], ITEMS[asked], **beside, **options))


@each_method
@pytest.mark.parametrize("new", [True, False])
def test_unknown_ids_get_means_nan_or_an_error(model: CFNADE, method: str, new: bool) -> None:
    affected = AFFECTED if new else AFFECTED[:4]
    means = ask(model, method, new=new, unknown="mean")
    assert np.isfinite(means).all()
    gaps = ask(model, method, new=new, unknown="nan")
    assert np.isnan(gaps[affected]).all()
    np.testing.assert_array_equal(gaps[~affected], means[~affected])
    message = (
        r"^unknown to the model: user 4711 and 2 items \(such as 999\); "
        r"unknown=\"mean\" predicts means, unknown=\"nan\" returns NaN$"
    )
    with pytest.raises(PredictionError, match=message):
        ask(model, method, new=new, unknown="raise")


@each_method
@pytest.mark.parametrize("new", [True, False])
def test_without_the_option_one_warning_names_them(model: CFNADE, method: str, new: bool) -> None:
    with pytest.warns(UserWarning, match="user 4711 and 2 items") as record:
        found = ask(model, method, new=new)
    (warning,) = record
    assert "3 predictions based on means" in str(warning.message)
    assert warning.filename == __file__  # the caller, not the library
    np.testing.assert_array_equal(found, ask(model, method, new=new, unknown="mean"))


def test_one_is_one(model: CFNADE) -> None:
    with pytest.warns(UserWarning, match=r": item 999; 1 prediction based"):
        model.predict(0, [101, 999])
    with pytest.raises(PredictionError, match=r": user 777;"):
        model.predict([777, 777], [101, 102], unknown="raise")


@each_method
def test_nothing_is_said_where_everything_is_known(model: CFNADE, method: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for unknown in (None, "mean", "nan", "raise"):
            ask_one = getattr(model, method)
            found = ask_one(["me", 0], 101, histories=HISTORIES, unknown=unknown)
            assert np.isfinite(numbers(found)).all()
    with pytest.raises(PredictionError, match=r"unknown \(='zero'\) must be one of mean, nan"):
        getattr(model, method)(0, 101, unknown="zero")


def test_a_predictor_predicts_means_without_a_warning() -> None:
    model = estimator(make("user")).predictor_
    assert np.isfinite(model.predict([4711], [999]).predictions).all()
