"""A prediction and a recommendation pass few modules and functions, so that a reader can follow."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.support.walks import ROOT, entered_functions

from cfnade.data.synthetic import synthetic
from cfnade.estimator import CFNADE

MOST = {"predict": (20, 80), "recommend": (25, 114)}
"""Modules and functions, compiled ones among them; the aim for both is 20 and 90."""
HISTORY = {3: 5.0, 8: 2.0, 12: 4.0}


@pytest.fixture(scope="module")
def model() -> CFNADE:
    ratings = synthetic(60, 40, 900, seed=2).ratings
    settings = {"epochs": 1, "batch_rows": 16}
    return CFNADE(side="user", ridge=0, hidden=(6,), **settings).fit(ratings)  # type: ignore[arg-type]


@pytest.mark.parametrize("question", ["predict", "recommend"])
def test_an_answer_takes_a_short_walk(model: CFNADE, question: str) -> None:
    asked: dict[str, Callable[[], object]] = {
        "predict": lambda: model.predict([3], [5]),
        "recommend": lambda: model.recommend(history=HISTORY, n=3),
    }
    model.predict([4], [6])  # what is computed once, and compiled
    model.recommend(history={4: 3.0}, n=3)
    entered = entered_functions(asked[question])
    modules = sorted({code.co_filename.removeprefix(ROOT) for code in entered})
    functions = sorted(code.co_qualname for code in entered)
    most_modules, most_functions = MOST[question]
    assert len(modules) <= most_modules, modules
    assert len(functions) <= most_functions, functions
