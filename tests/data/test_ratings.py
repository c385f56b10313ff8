"""Ratings: immutable, equal by content, sorted into rows once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfnade.data import later
from cfnade.data.ratings import Ratings, Side, offsets_of, stable_order, sums_of
from cfnade.data.scale import Scale
from cfnade.exceptions import DataError

SIDES: list[Side] = ["user", "item"]
STARS = Scale((1.0, 2.0, 3.0, 4.0, 5.0))
Triple = tuple[int, int, int]
TRIPLES = st.lists(
    st.tuples(st.integers(0, 6), st.integers(0, 5), st.integers(0, 4)),
    max_size=25,
    unique_by=lambda triple: triple[:2],
)


@pytest.fixture(autouse=True, scope="module")
def small_pieces() -> Iterator[None]:
    """Ratings are counted three at a time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(later, "PIECE", 3)
        yield


def ratings_of(triples: list[Triple], times: bool = True) -> Ratings:
    table = np.array(triples, np.int64).reshape(-1, 3)
    return Ratings(
        users=table[:, 0].astype(np.int32),
        items=table[:, 1].astype(np.int32),
        levels=table[:, 2].astype(np.uint8),
        scale=STARS,
        user_ids=np.arange(7) * 10,
        item_ids=np.array(list("abcdef"), object),
        times=np.arange(len(table), dtype=np.int32) if times else None,
        source="test",
    )


@settings(max_examples=80)
@given(TRIPLES, st.sampled_from(["user", "item"]))
def test_rows_hold_each_sides_ratings_in_their_order(triples: list[Triple], side: Side) -> None:
    ratings = ratings_of(triples)
    rows = ratings.rows(side)
    own, other = (0, 1) if side == "user" else (1, 0)
    assert len(rows) == (7 if side == "user" else 6)
    assert rows.n_columns == (6 if side == "user" else 7)
    assert (rows.n_levels, rows.n_ratings) == (5, len(triples))
    for row in range(len(rows)):
        expected = [(t[other], t[2]) for t in triples if t[own] == row]
        a, b = rows.offsets[row], rows.offsets[row + 1]
        pairs = zip(rows.columns[a:b].tolist(), rows.levels[a:b].tolist(), strict=True)
        assert list(pairs) == expected
        assert rows.counts()[row] == len(expected)
    arrays = (rows.offsets, rows.columns, rows.levels)
    assert [array.dtype.name for array in arrays] == ["int64", "int32", "uint8"]


def test_grouped_arrays_are_handed_out_without_a_copy() -> None:
    ratings = ratings_of([(0, 3, 1), (0, 1, 2), (4, 0, 0)])
    assert ratings.rows().columns is ratings.items
    assert ratings.rows().levels is ratings.levels
    assert ratings.rows("item").columns is not ratings.users


def test_rows_are_sorted_once_and_cannot_be_changed() -> None:
    ratings = ratings_of([(4, 3, 1), (0, 1, 2), (4, 0, 0)])
    for side in SIDES:
        rows = ratings.rows(side)
        assert ratings.rows(side) is rows
        for array in (rows.offsets, rows.columns, rows.levels):
            assert not array.flags.writeable
    part = ratings.select(np.array([1, 2]))
    assert part.rows("user").columns.tolist() == [1, 0]


def test_threads_that_ask_at_once_get_the_same_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    ratings, sorts = ratings_of([(4, 3, 1), (2, 1, 2), (0, 0, 0)]), []

    def slowly(index: npt.NDArray[np.int32], count: int) -> npt.NDArray[np.int64] | None:
        sorts.append(count)
        time.sleep(0.05)  # long enough for the other threads to ask
        return stable_order(index, count)

    monkeypatch.setattr("cfnade.data.ratings.stable_order", slowly)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ratings.rows, SIDES * 4))
    assert len({id(rows) for rows in answers}) == 2
    assert sorted(sorts) == [6, 7]


@pytest.mark.parametrize("side", ["user", "item"])
def test_levels_are_counted_for_each_user_and_item(side: Side) -> None:
    triples = [(0, 3, 1), (0, 1, 4), (4, 3, 1), (6, 0, 0)]
    expected = np.zeros((7 if side == "user" else 6, 5), int)
    for triple in triples:
        expected[triple[0 if side == "user" else 1], triple[2]] += 1
    np.testing.assert_array_equal(ratings_of(triples).level_counts(side), expected)


@settings(max_examples=80)
@given(st.lists(st.integers(0, 2**31 - 1), max_size=60), st.integers(0, 3))
def test_the_order_groups_and_is_stable(index: list[int], shift: int) -> None:
    array = np.array([i >> (shift * 10) for i in index], np.int32)
    order = stable_order(array, 2**31)
    expected = sorted(range(len(index)), key=lambda i: (int(array[i]), i))
    assert (list(range(len(index))) if order is None else order.tolist()) == expected


def test_offsets_count_empty_groups() -> None:
    assert offsets_of(np.array([3, 1, 3], np.int32), 5).tolist() == [0, 0, 1, 1, 3, 3]
    assert offsets_of(np.array([], np.int32), 2).tolist() == [0, 0, 0]


def test_weights_are_added_up_by_index_piece_by_piece() -> None:
    index, weights = np.array([3, 1, 3, 0, 3, 1, 1], np.int32), np.arange(1.0, 8.0)
    assert sums_of(index, 5, lambda some: weights[some]).tolist() == [4, 15, 0, 9, 0]


@settings(max_examples=50)
@given(TRIPLES.filter(bool), st.data())
def test_selecting_by_mask_and_by_position_agree(
    triples: list[Triple], data: st.DataObject
) -> None:
    ratings = ratings_of(triples)
    mask = np.array(
        data.draw(st.lists(st.booleans(), min_size=len(triples), max_size=len(triples)))
    )
    by_mask, by_place = ratings.select(mask), ratings.select(np.flatnonzero(mask))
    assert by_mask == by_place
    assert by_mask.user_ids is ratings.user_ids
    kept = [triple for triple, keep in zip(triples, mask, strict=True) if keep]
    assert by_mask.levels.tolist() == [triple[2] for triple in kept]
    assert by_mask.times is not None
    assert by_mask.times.tolist() == np.flatnonzero(mask).tolist()
    assert (by_mask == ratings) == bool(mask.all())


BASE: list[Triple] = [(0, 3, 1), (2, 1, 2), (4, 0, 0)]


def variants() -> dict[str, Ratings]:
    base = ratings_of(BASE)
    titles = np.array(["A", "B", "", "D", "E", "F"], object)
    return {
        "base": base,
        "order": base.select(np.array([1, 0, 2])),
        "fewer": base.select(np.array([0, 1])),
        "user": ratings_of([(1, 3, 1), *BASE[1:]]),
        "item": ratings_of([(0, 4, 1), *BASE[1:]]),
        "level": ratings_of([(0, 3, 2), *BASE[1:]]),
        "times": replace(base, times=np.array([0, 1, 3], np.int32)),
        "no times": ratings_of(BASE, times=False),
        "user ids": replace(base, user_ids=np.arange(7)),
        "item ids": replace(base, item_ids=np.array(list("abcdeg"), object)),
        "joined": replace(base, item_ids=np.array(["ab", "", *"cdef"], object)),
        "scale": replace(base, scale=Scale((1.0, 2.0, 3.0, 4.0, 6.0))),
        "bins": replace(base, scale=Scale(STARS.values, (1.5, 2.5, 3.5, 4.5))),
        "source": replace(base, source="other"),
        "titles": replace(base, titles=titles),
        "genres": replace(base, genres=titles),
    }


def test_the_fingerprint_changes_with_everything_that_matters() -> None:
    prints = {name: ratings.fingerprint for name, ratings in variants().items()}
    assert len(set(prints.values())) == len(prints)
    assert all(len(text) == 32 and int(text, 16) >= 0 for text in prints.values())
    assert prints == {name: ratings.fingerprint for name, ratings in variants().items()}


def test_equal_content_is_equal_and_other_things_are_not() -> None:
    one, two = ratings_of(BASE), ratings_of(BASE)
    assert one == two
    assert hash(one) == hash(two)
    assert one != variants()["level"]
    assert one != "ratings"


def test_nothing_can_be_changed() -> None:
    ratings = ratings_of(BASE)
    for name in ("users", "items", "levels", "user_ids", "item_ids", "times"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(ratings, name)[0] = 1
    with pytest.raises(AttributeError, match="cannot assign to field 'users'"):
        ratings.users = ratings.items  # type: ignore[misc]


def test_it_prints_as_one_line() -> None:
    assert repr(ratings_of(BASE)) == (
        "<Ratings test: 3 ratings of 6 items by 7 users, scale 1–5, with times>"
    )
    assert repr(ratings_of(BASE, times=False)).endswith("scale 1–5>")


def test_values_are_stars_and_lengths_count() -> None:
    ratings = ratings_of(BASE)
    assert ratings.values.tolist() == [2.0, 3.0, 1.0]
    assert (len(ratings), ratings.n_users, ratings.n_items) == (3, 7, 6)


def test_a_wrong_side_is_refused() -> None:
    with pytest.raises(DataError, match=r'side=.users. is not a side.*"user" or "item"'):
        ratings_of(BASE).rows("users")  # type: ignore[arg-type]
