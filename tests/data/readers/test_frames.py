"""Ratings in memory: every container gives the same ratings, or one clear error."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import polars as pl
import pytest
import scipy.sparse as sp

from cfnade import CFNADE, DataError, load
from cfnade.data.readers.frames import join_target

ROWS = [(1, 10, 5), (1, 11, 3.5), (2, 10, 1), (4, 12, 4)]
NAMES = ["user", "item", "rating"]
FRAME = pl.DataFrame(ROWS, schema=NAMES, orient="row", strict=False)
FIELDS = [("user", "i4"), ("item", "i8"), ("rating", "f4")]


@pytest.mark.parametrize(
    "data",
    [
        ROWS,
        tuple(ROWS),
        [list(row) for row in ROWS],
        [np.array(row) for row in ROWS],
        [tuple(map(np.float32, row)) for row in ROWS],
        np.array(ROWS),
        np.array(ROWS, object),
        np.asfortranarray(np.array(ROWS, np.float32)),
        np.array(ROWS, FIELDS).view(np.recarray),
        FRAME.lazy().filter(pl.col("rating") > 0).select(pl.all().reverse()).reverse(),
        FRAME.to_pandas().set_index(["user", "item"]),
        FRAME.to_pandas().set_index("user"),
        FRAME.to_pandas().set_index(["user", "item"])["rating"].to_frame(),
        tuple(FRAME[name].to_numpy() for name in NAMES),
        tuple(FRAME[name] for name in NAMES),
        tuple(FRAME.to_pandas()[name] for name in NAMES),
        [dict(reversed(list(zip(NAMES, row, strict=True)))) for row in ROWS[:1]]
        + [dict(zip(NAMES, row, strict=True)) for row in ROWS[1:]],
        {1: {10: 5, 11: 3.5}, 2: {10: 1}, 3: {}, 4: {12: 4}},
        {name: FRAME[name] for name in NAMES},
        {name: FRAME[name].to_numpy() for name in NAMES},
        {name: pd.Series(FRAME[name].to_list()) for name in NAMES},
        sp.coo_array(
            (FRAME["rating"].to_numpy(), (FRAME["user"].to_list(), FRAME["item"].to_list()))
        ),
    ],
    ids=lambda data: type(data).__name__,
)
def test_containers_give_the_ratings_of_the_frame(data: Any) -> None:
    assert load(data) == load(FRAME)


def test_a_fourth_column_is_the_time() -> None:
    rows = [(*row, 1000 + n) for n, row in enumerate(ROWS)]
    for data in (rows, np.array(rows)):
        times = load(data).times
        assert times is not None
        assert times.tolist() == [1000, 1001, 1002, 1003]


def test_texts_bytes_and_dates_of_structured_arrays() -> None:
    fields = [("film", "S5"), ("name", "U5"), ("stars", "u1"), ("date", "M8[s]")]
    rows = [(b"a", "ann", 5, "1970-01-02"), ("é".encode(), "bob", 3, "1970-01-01T00:00:07")]
    ratings = load(np.array(rows, fields), user="name")
    assert (ratings.user_ids.tolist(), ratings.item_ids.tolist()) == (["ann", "bob"], ["a", "é"])
    assert ratings.times is not None
    assert ratings.times.tolist() == [86_400, 7]


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "lil", "dok", "bsr", "dia"])
@pytest.mark.parametrize("make", [sp.csr_array, sp.csr_matrix])
def test_stored_entries_of_any_sparse_format_are_ratings(make: Any, kind: str) -> None:
    draw = np.random.default_rng(3)
    dense = draw.integers(1, 6, (12, 8)) * (draw.random((12, 8)) < 0.3)
    ratings = load(make(dense.astype(np.float64)).asformat(kind))
    again = np.zeros_like(dense)
    users, items = ratings.user_ids[ratings.users], ratings.item_ids[ratings.items]
    again[users.astype(int), items.astype(int)] = ratings.values
    assert np.array_equal(again, dense)
    assert len(ratings) == np.count_nonzero(dense)


def test_zeros_that_fill_blocks_are_not_ratings() -> None:
    dense = np.diag([5.0, 3.0, 1.0, 4.0])
    assert load(sp.bsr_array(dense, blocksize=(2, 2))) == load(sp.csr_array(dense))


@pytest.mark.parametrize("kind", ["csr", "csc", "coo"])
def test_a_stored_zero_is_a_rating(kind: str) -> None:
    matrix = sp.coo_array((np.array([0.0, 2.0, 1.0]), ([0, 0, 1], [0, 2, 2])), shape=(3, 4))
    ratings = load(matrix.asformat(kind))
    assert sorted(ratings.values.tolist()) == [0.0, 1.0, 2.0]
    assert ratings.n_items == 2


def test_entries_stored_twice_are_duplicates() -> None:
    matrix = sp.coo_array((np.array([5.0, 3.0, 1.0]), ([0, 0, 1], [1, 1, 1])), shape=(2, 2))
    with pytest.raises(DataError, match="user 0 rated item 1 again"):
        load(matrix)
    assert load(matrix, duplicates="last").values.tolist() == [3.0, 1.0]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "it is empty: there are no ratings"),
        ({}, "the dict is empty"),
        ({"ann": {}}, "there are no ratings"),
        (np.zeros((0, 3)), "no rows"),
        (sp.csr_array((3, 3)), "no rows"),
        ([1, 2, 3], "row 0 is '1'; each must hold user, item and perhaps rating"),
        (["abc", "abd"], "row 0 is 'abc'"),
        ([(1, 2, 3), (1,)], r"row 1 is '\(1,\)'"),
        ([(1, 2, 3), (1, 2)], "row 1 has 2 values, row 0 has 3"),
        ([(1, 2, 3), (1, 2, 3, 4)], "row 1 has 4 values, row 0 has 3"),
        ([{"user": 1}, {"item": 2}], r"row 1 has the keys \['item'\], row 0 \['user'\]"),
        ([("ann", 1, 2), (3, 1, 2)], "column '0' holds values of several types"),
        ([(1, None, 3)], "row 0, column '1': the item id is missing"),
        ([(1, object(), 3)], "column '1': it holds values of several"),
        (np.zeros((5, 7)), r"an array of shape \(5, 7\) is no table of ratings; give 2 to 4"),
        (np.zeros(5), r"an array of shape \(5,\)"),
        (np.array([[1, 2, np.nan]]), "rating nan is not a finite number"),
        (np.ones((2, 3), complex), "column '0': it holds values"),
        (np.zeros((2, 2), FIELDS), r"an array of shape \(2, 2\)"),
        (np.ma.masked_array(np.ones((2, 3))), "a masked array is not read"),
        (sp.coo_array(np.array([1, 0, 2])), "a sparse array of 1 dimension"),
        ({"ann": {"x": 5}, "bob": 3}, "under 'ann' the dict holds"),
        ({"ann": 5}, "under 'ann' the dict holds '5', not a column"),
        ({"user": [1, 2], "item": [1], "rating": [1]}, "not equally long: {'user': 2, 'item': 1"),
        ({"user": {1, 2}, "item": [1, 2], "rating": [1, 2]}, "column 'user' holds"),
        (
            (row for row in ROWS),
            "type generator is not a table.*a list of tuples or a dict",
        ),
        (None, "data of type NoneType is not a table"),
        (5, "data of type int is not a table"),
    ],
)
def test_unusable_data_is_refused_with_a_reason(data: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load(data)


@pytest.mark.parametrize("length", [1, 3, 5])
def test_a_tuple_of_lists_holds_columns(length: int) -> None:
    """Three lists of three cells might be rows: rows are a list of tuples."""
    users, items = list(range(length)), [f"i{k}" for k in range(length)]
    ratings = [float(1 + k % 5) for k in range(length)]
    by_columns = load((users, items, ratings), scale="1-5")
    assert by_columns == load(list(zip(users, items, ratings, strict=True)), scale="1-5")
    with pytest.raises(DataError, match="not equally long"):
        load((users, items, [*ratings, 1.0]))


def test_an_index_named_like_a_column_is_refused() -> None:
    frame = FRAME.to_pandas().set_index("user", drop=False)
    with pytest.raises(DataError, match="the index of the frame has a name that a column has too"):
        load(frame)


PAIRS = FRAME.select("user", "item")


@pytest.mark.parametrize(
    ("X", "y"),
    [
        (PAIRS.to_numpy(), FRAME["rating"].to_numpy()),
        (PAIRS.to_numpy(), FRAME["rating"].to_list()),
        (PAIRS, FRAME["rating"]),
        (PAIRS.to_pandas(), FRAME.to_pandas()["rating"]),
        ([list(row) for row in PAIRS.rows()], FRAME["rating"].to_list()),
    ],
)
def test_x_and_y_are_joined(X: Any, y: Any) -> None:
    assert load(join_target(X, y)) == load(FRAME)


def test_other_pairs_of_arguments_are_not_x_and_y() -> None:
    assert join_target(FRAME, FRAME) is None
    assert join_target(FRAME, [(1, 2, 3.0)]) is None


@pytest.mark.parametrize(
    ("X", "y"),
    [
        (PAIRS, FRAME["rating"][:2]),
        (FRAME, FRAME["rating"]),
        (PAIRS.to_numpy()[:2], FRAME["rating"].to_list()),
        ("own.csv", FRAME["rating"]),
    ],
)
def test_x_and_y_of_different_lengths_are_an_error(X: Any, y: Any) -> None:
    with pytest.raises(DataError, match=r"fit\(X, y\) takes users and items in the two columns"):
        join_target(X, y)


def test_fit_takes_x_and_y() -> None:
    draw = np.random.default_rng(0)
    pairs = np.argwhere(draw.random((30, 20)) < 0.5)
    ratings = draw.integers(1, 6, len(pairs))
    options: dict[str, Any] = {"side": "user", "hidden": (4,), "epochs": 1}
    model = CFNADE(**options).fit(pairs, ratings)
    same = CFNADE(**options).fit(np.column_stack([pairs, ratings]))
    assert model.fitted_.context == same.fitted_.context


@pytest.mark.parametrize(
    "times",
    [
        pd.period_range("2024-01", periods=FRAME.height, freq="D"),
        pd.to_timedelta(range(FRAME.height), unit="s"),
        [[2005, 9, 6]] * FRAME.height,
    ],
)
def test_times_of_unsuitable_types_are_ignored_unless_named(
    times: Any, caplog: pytest.LogCaptureFixture
) -> None:
    data = FRAME.to_pandas().assign(time=times)
    with caplog.at_level("INFO", "cfnade"):
        assert load(data).times is None
    assert "times are ignored" in caplog.text
    with pytest.raises(DataError, match="must hold dates, numbers or texts"):
        load(data, time="time")
