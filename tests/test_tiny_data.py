"""Data of a few lines: a sensible model without warnings, or one sentence."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl
import pytest

import cfnade
from cfnade import CFNADE
from cfnade.data.split_protocols import TRAIN
from cfnade.data.splits import apply_labels
from cfnade.exceptions import CfnadeError

Lines = list[tuple[str, str, float]]

RATINGS: dict[str, Lines] = {
    "two of one user": [("a", "x", 3), ("a", "y", 4)],
    "three": [("a", "x", 3), ("a", "y", 4), ("b", "x", 5)],
    "three without overlap": [("a", "x", 3), ("b", "y", 4), ("c", "z", 5)],
    "three alike": [("a", "x", 4), ("a", "y", 4), ("b", "x", 4)],
    "one user": [("a", f"i{n}", 1 + n % 5) for n in range(12)],
    "one user, alike": [("a", f"i{n}", 5) for n in range(12)],
    "one item": [(f"u{n}", "x", 1 + n % 5) for n in range(12)],
    "one item, alike": [(f"u{n}", "x", 1) for n in range(12)],
    "two levels": [(f"u{n % 4}", f"i{n // 4}", 1 + n * 7 % 3 % 2) for n in range(12)],
    "all cells, alike": [(f"u{n % 4}", f"i{n // 4}", 3) for n in range(12)],
}


@pytest.fixture(autouse=True)
def no_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        yield


def loaded(lines: Lines, **options: Any) -> Any:
    users, items, ratings = zip(*lines, strict=True)
    frame: dict[str, Any] = {"user": users, "item": items}
    if not options.get("implicit"):
        frame["rating"] = ratings
    return cfnade.load(pl.DataFrame(frame), **options)


@pytest.mark.parametrize("name", RATINGS)
def test_predictions_of_tiny_data_lie_within_its_ratings(name: str) -> None:
    lines = RATINGS[name]
    data = loaded(lines, scale="1-5")
    model = CFNADE(time_budget=1e-3, n_threads=1).fit(data)  # factor analyses alone
    users, items, ratings = zip(*lines, strict=True)
    predictions = np.asarray(model.predict(list(users), list(items)))
    assert np.isfinite(predictions).all()
    assert (predictions > min(ratings) - 0.5).all()
    assert (predictions < max(ratings) + 0.5).all()
    probabilities = np.asarray(model.predict_proba([users[0]], [items[0]]))
    assert (probabilities >= 0).all()
    np.testing.assert_allclose(probabilities.sum(1), 1.0, atol=1e-6)
    model.recommend("a" if "a" in users else "u1", n=2)
    model.recommend(history={items[0]: ratings[0]}, n=2)


def test_equal_ratings_can_be_trained_with_and_without_validation() -> None:
    data = loaded(RATINGS["three alike"], scale="1-5")
    for ratings in (data, apply_labels(data, np.full(3, TRAIN, np.uint8), "no validation")):
        model = CFNADE(n_threads=1).fit(ratings)
        assert float(np.asarray(model.predict(["b"], ["y"]))[0]) == pytest.approx(4, abs=0.2)


@pytest.mark.parametrize("name", ["two of one user", "three", "one user", "one item"])
def test_tiny_interactions_are_learned(name: str) -> None:
    model = CFNADE(n_threads=1).fit(loaded(RATINGS[name], implicit=True))
    assert len(model.recommend(RATINGS[name][0][0], n=1)) <= 1


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([("a", "x", 3.0)], "needs at least 2 ratings"),
        ([("a", "x", 3.0), ("a", "y", 3.0)], "every rating is 3"),
    ],
)
def test_untrainable_data_is_an_error(lines: Lines, message: str) -> None:
    scale = {"scale": "1-5"} if len(lines) == 1 else {}
    with pytest.raises(CfnadeError, match=message):
        CFNADE().fit(loaded(lines, **scale))
