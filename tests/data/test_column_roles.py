"""Roles of columns: no column that looks like ratings is ignored silently."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from cfnade import DataError, load

PAIRS = [(user, item) for user in range(8) for item in range(5)]


def table(name: str, values: list[Any]) -> pl.DataFrame:
    """Return 40 pairs with a third column, whose values are repeated."""
    users, items = zip(*PAIRS, strict=True)
    column = (values * len(PAIRS))[: len(PAIRS)]
    return pl.DataFrame({"user": users, "item": items, name: column})


PREFERENCES: list[tuple[str, list[Any]]] = [
    ("liked", [True, False, True]),
    ("thumbs", [-1, 1, 1]),
    ("Feedback", [1, 9, 10, 7, 3]),
    ("Bewertung", [5, 4, 1]),
    ("sentiment", [0.0, 0.5, 1.0]),
    ("label", [0, 1]),
    ("opinion", ["4 stars", "2 stars"]),
    ("sentiment", [0.11, 0.37, 0.92, 0.58]),
    ("x", [0.5, 1.5, 2.0]),
    ("Note", ["3,5", "1,5", "2,0"]),
    ("satisfaction", ["very", "hardly", "so so"]),
]
_WORDS = ("opinion", "satisfaction")


@pytest.mark.parametrize(("name", "values"), PREFERENCES)
@pytest.mark.parametrize("as_text", [True, False])
def test_a_column_that_looks_like_ratings_is_ambiguous(
    name: str, values: list[Any], as_text: bool, tmp_path: Path
) -> None:
    data: Any = table(name, values)
    if as_text:
        data.write_csv(tmp_path / "own.csv")
        data = tmp_path / "own.csv"
    message = f'''column '{name}' looks like ratings.*rating="{name}".*implicit=True'''
    with pytest.raises(DataError, match=message) as caught:
        load(data)
    if "weight=" in str(caught.value):  # what a message offers must work
        assert load(data, weight=name).weights is not None
    if name not in _WORDS and values[0] != 0.11:
        assert len(load(data, rating=name).scale) >= 2
    assert load(data, implicit=True).implicit


def test_only_positive_columns_are_offered_as_weights() -> None:
    with pytest.raises(DataError, match='weight="Feedback"'):
        load(table("Feedback", [1, 9, 10, 7]))
    for name, values in (("liked", [True, False]), ("thumbs", [1, -1]), ("label", [0, 1])):
        with pytest.raises(DataError) as caught:
            load(table(name, values))
        assert "weight=" not in str(caught.value)


OTHERS: list[tuple[str, list[Any]]] = [
    ("note", [f"seen with {n} friends" for n in range(40)]),
    ("comment", ["fine", "I like it", "meh"]),
    ("liked", [True]),
    ("label", [1]),
    ("age", list(range(18, 58))),
    ("year", [1999, 2003]),
    ("price", [9.99, 12.5, 3.2]),
    ("country", ["fr", "de"]),
]


@pytest.mark.parametrize(("name", "values"), OTHERS)
def test_other_columns_are_ignored(name: str, values: list[Any], tmp_path: Path) -> None:
    frame = table(name, values)
    frame.write_csv(tmp_path / "own.csv")
    assert load(frame).implicit
    assert load(tmp_path / "own.csv").implicit


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("liked", [True, False], {0.0, 1.0}),
        ("liked", ["True", "FALSE"], {0.0, 1.0}),
        ("thumbs", [-1, 1], {-1.0, 1.0}),
    ],
)
def test_two_levels_are_ratings(
    name: str, values: list[Any], expected: set[float], tmp_path: Path
) -> None:
    frame = table(name, values)
    frame.write_csv(tmp_path / "own.csv")
    for data in (frame, tmp_path / "own.csv"):
        ratings = load(data, rating=name)
        assert len(ratings.scale) == 2
        assert set(ratings.values.tolist()) == expected
        first = expected - {ratings.values[1]}
        assert {ratings.values[0]} == first


def plays() -> list[int]:
    counts: list[int] = np.random.default_rng(0).geometric(0.02, len(PAIRS)).tolist()
    return counts


@pytest.mark.parametrize("counts", [plays(), [n * 37 for n in plays()], [1, 1, 1, 2, 3, 90]])
def test_unnamed_counts_suggest_weights(counts: list[int], tmp_path: Path) -> None:
    rows = [(u, i, (counts * 40)[n] ** 2) for n, (u, i) in enumerate(PAIRS)]
    path = tmp_path / "plays.csv"
    path.write_text("".join(f"{u},{i},{n}\n" for u, i, n in rows))
    for data in (rows, path):
        with pytest.raises(DataError, match=r"plays, hours\), give weight=2"):
            load(data)
        weights = load(data, weight=2).weights
        assert weights is not None
        np.testing.assert_allclose(weights, [float(n) for *_, n in rows], rtol=1e-6)


def test_a_first_line_with_true_or_false_is_data(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text("ann,alien,True\nbob,alien,False\nbob,heat,True\n")
    assert load(path).values.tolist() == [1.0, 0.0, 1.0]


def test_two_columns_of_one_name_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text("user,item,rating,rating\n1,2,3,5\n1,3,4,1\n")
    with pytest.raises(DataError, match="2 columns are named 'rating'; give the position"):
        load(path)
    assert load(path, rating=3).values.tolist() == [5.0, 1.0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"separator": 5}, r"separator \(=5\) must be"),
        ({"item": ["a"]}, r"item \(=\['a'\]\) must be a string or a whole number, or None"),
        ({"user": 1.0}, r"user \(=1\.0\) must be a string or a whole number"),
        ({"rating": True}, r"rating \(=True\) must be a string or a whole number"),
        ({"time": True}, r"time \(=True\) must be .* or False, or None"),
        ({"implicit": "yes"}, r"implicit \(='yes'\) must be"),
        ({"rating": "rating", "implicit": True}, "rating= and implicit=True exclude each other"),
        ({"colour": 1}, "unknown load option 'colour'"),
        ({"repeats": "last"}, "unknown load option 'repeats'"),
    ],
)
def test_options_of_a_wrong_type_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        load([(1, 2, 3), (1, 3, 4)], **options)
