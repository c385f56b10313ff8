"""Data sets: immutable, equal by content, grouped into rows once, cut into lazy subsets."""

from __future__ import annotations

import pickle
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfnade import load
from cfnade.data import csr, split_protocols
from cfnade.data.csr import stable_order
from cfnade.data.dataset import Axis, Dataset, Interactions, Ratings, make_dataset
from cfnade.data.scale import INTERACTIONS, Scale
from cfnade.data.splits import split
from cfnade.exceptions import DataError

AXES: list[Axis] = ["user", "item"]
STARS = Scale((1.0, 2.0, 3.0, 4.0, 5.0))
Triple = tuple[int, int, int]
TRIPLES = st.lists(
    st.tuples(st.integers(0, 6), st.integers(0, 5), st.integers(0, 4)),
    max_size=25,
    unique_by=lambda triple: triple[:2],
)


@pytest.fixture(autouse=True, scope="module")
def small_chunks() -> Iterator[None]:
    """Ratings are processed three at a time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csr, "CHUNK", 3)
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
def test_rows_keep_the_order_of_ratings(triples: list[Triple], axis: Axis) -> None:
    ratings = ratings_of(triples)
    rows = ratings.rows(axis)
    own, other = (0, 1) if axis == "user" else (1, 0)
    assert len(rows) == (7 if axis == "user" else 6)
    assert rows.n_columns == (6 if axis == "user" else 7)
    assert (rows.n_levels, rows.n_ratings) == (5, len(triples))
    for row in range(len(rows)):
        expected = [(t[other], t[2]) for t in triples if t[own] == row]
        a, b = rows.offsets[row], rows.offsets[row + 1]
        pairs = zip(rows.columns[a:b].tolist(), rows.levels[a:b].tolist(), strict=True)
        assert list(pairs) == expected
        assert rows.counts()[row] == len(expected)
    arrays = (rows.offsets, rows.columns, rows.levels)
    assert [array.dtype.name for array in arrays] == ["int64", "int32", "uint8"]


def test_rows_of_grouped_ratings_are_not_copied() -> None:
    ratings = ratings_of([(0, 3, 1), (0, 1, 2), (4, 0, 0)])
    assert ratings.rows().columns is ratings.items
    assert ratings.rows().levels is ratings.levels
    assert ratings.rows("item").columns is not ratings.users


def test_rows_are_grouped_once_and_cannot_be_changed() -> None:
    ratings = ratings_of([(4, 3, 1), (0, 1, 2), (4, 0, 0)])
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ratings.rows, AXES * 4))
    assert len({id(rows) for rows in answers}) == 2
    for rows in answers:
        for array in (rows.offsets, rows.columns, rows.levels):
            assert not array.flags.writeable
    part = ratings.select(np.array([1, 2]))
    assert part.rows("user").columns.tolist() == [1, 0]


@pytest.mark.parametrize("axis", ["user", "item"])
def test_level_counts(axis: Axis) -> None:
    triples = [(0, 3, 1), (0, 1, 4), (4, 3, 1), (6, 0, 0)]
    expected = np.zeros((7 if axis == "user" else 6, 5), int)
    for triple in triples:
        expected[triple[0 if axis == "user" else 1], triple[2]] += 1
    np.testing.assert_array_equal(ratings_of(triples).level_counts(axis), expected)


@settings(max_examples=80)
@given(st.lists(st.integers(0, 2**31 - 1), max_size=60), st.integers(0, 3))
def test_stable_order(index: list[int], shift: int) -> None:
    array = np.array([i >> (shift * 10) for i in index], np.int32)
    order = stable_order(array, 2**31)
    expected = sorted(range(len(index)), key=lambda i: (int(array[i]), i))
    assert (list(range(len(index))) if order is None else order.tolist()) == expected


@settings(max_examples=50)
@given(TRIPLES.filter(bool), st.data())
def test_select_takes_masks_and_positions(triples: list[Triple], data: st.DataObject) -> None:
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
        "times": base.replace(times=np.array([0, 1, 3], np.int32)),
        "no times": ratings_of(BASE, times=False),
        "user ids": base.replace(user_ids=np.arange(7)),
        "item ids": base.replace(item_ids=np.array(list("abcdeg"), object)),
        "joined": base.replace(item_ids=np.array(["ab", "", *"cdef"], object)),
        "scale": base.replace(scale=Scale((1.0, 2.0, 3.0, 4.0, 6.0))),
        "bins": base.replace(scale=Scale(STARS.values, (1.5, 2.5, 3.5, 4.5))),
        "source": base.replace(source="other"),
        "titles": base.replace(titles=titles),
        "genres": base.replace(genres=titles),
    }


def test_fingerprints_depend_on_every_field() -> None:
    prints = {name: ratings.fingerprint for name, ratings in variants().items()}
    assert len(set(prints.values())) == len(prints)
    assert all(len(text) == 32 and int(text, 16) >= 0 for text in prints.values())
    assert prints == {name: ratings.fingerprint for name, ratings in variants().items()}


def test_equality_is_by_content() -> None:
    one, two = ratings_of(BASE), ratings_of(BASE)
    assert one == two
    with pytest.raises(TypeError, match="unhashable"):
        hash(one)
    assert one != variants()["level"]
    assert one != "ratings"


def test_data_sets_are_immutable() -> None:
    ratings = ratings_of(BASE)
    for name in ("users", "items", "levels", "user_ids", "item_ids", "times"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(ratings, name)[0] = 1
    with pytest.raises(AttributeError, match="immutable: cannot assign to 'users'"):
        ratings.users = ratings.items


def test_repr() -> None:
    assert repr(ratings_of(BASE)) == (
        "<Ratings test: 3 ratings of 6 items by 7 users, scale 1–5, with times>"
    )
    assert repr(ratings_of(BASE, times=False)).endswith("scale 1–5>")
    assert repr(load([("ann", "alien", 3.0)], scale="1-5")) == (
        "<Ratings 1 rating of 1 item by 1 user, scale 1–5>"
    )


def test_invalid_axes_are_refused() -> None:
    with pytest.raises(DataError, match=r'axis=.users. is not an axis.*"user" or "item"'):
        ratings_of(BASE).rows("users")  # type: ignore[arg-type]


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(DataError, match=r"different lengths: 3 users, 3 items, 2 levels, 3 times"):
        ratings_of(BASE).replace(levels=np.zeros(2, np.uint8))


def test_the_scale_decides_between_ratings_and_interactions() -> None:
    index, ids = np.array([0, 1], np.int32), np.arange(2)
    weights = np.array([2, 0.5], np.float32)
    levels = np.zeros(2, np.uint8)
    made = make_dataset(index, index, levels, INTERACTIONS, ids, ids, weights=weights)
    assert isinstance(made, Interactions)
    assert (made.implicit, made.levels.tolist(), made.weights is None) == (True, [0, 0], False)
    assert list(made.dtypes) == ["users", "items", "levels", "weights"]
    rated = make_dataset(index, index, levels, STARS, ids, ids)
    assert isinstance(rated, Ratings)
    assert (rated.implicit, rated.weights) == (False, None)


# -- subsets ---------------------------------------------------------------------------------------

ROWS = st.lists(st.tuples(st.integers(0, 99), st.integers(0, 3)), max_size=20)


@settings(max_examples=100)
@given(ROWS, st.lists(st.integers(0, 3), max_size=3, unique=True), st.integers(1, 7))
def test_subsets_are_ordered_by_label(
    rows: list[tuple[int, int]], keep: list[int], size: int
) -> None:
    numbers, labels = np.array(rows, np.int64).reshape(-1, 2).T
    whole = make_dataset(
        users=numbers.astype(np.int32),
        items=numbers.astype(np.int32),
        levels=(numbers % 5).astype(np.uint8),
        scale=STARS,
        user_ids=np.arange(100),
        item_ids=np.arange(100),
        times=numbers,
    )
    expected = [number for label in keep for number, other in rows if other == label]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csr, "CHUNK", size)
        part = whole.subset(labels.astype(np.uint8), *keep)
        chunks = [chunk.tolist() for chunk, _ in part.chunks("users", "times")]
        assert len(part) == len(expected)
        assert [number for chunk in chunks for number in chunk] == expected
        assert all(0 < len(chunk) <= size for chunk in chunks)
        assert part.users.tolist() == part.items.tolist() == expected
        assert part.times is not None
        assert (part.times.tolist(), part.times.dtype) == (expected, np.dtype(np.int64))
        assert part.levels.tolist() == [number % 5 for number in expected]
        counts = np.bincount(np.array(expected, int), minlength=100)
        assert part.counts("user").tolist() == counts.tolist()


def test_nested_and_concatenated_subsets_equal_copies() -> None:
    rng, whole = np.random.default_rng(3), many(500)
    labels = rng.integers(0, 4, 500).astype(np.uint8)
    half, last = whole.subset(labels, 0, 2), whole.subset(labels, 3)
    places = [np.flatnonzero(labels == label) for label in (0, 2, 3)]
    again = rng.integers(0, 2, len(half)).astype(np.uint8)
    picked = np.concatenate(places[:2])[again == 1]
    assert half.concat(last) == whole.select(np.concatenate(places))
    others = (labels + 1) % 4  # 3 becomes 0, which `half` keeps as well
    assert half.concat(whole.subset(others, 0)) == whole.select(np.concatenate(places))
    assert half.subset(again, 1) == whole.select(picked)
    assert half.subset(again, 1).concat(last) == whole.select(np.concatenate([picked, places[2]]))


def test_concatenated_times_have_the_wider_type() -> None:
    first = ratings_of(BASE)
    second = first.replace(times=np.full(3, 2**40))
    times = first.concat(second).times
    assert times is not None
    assert times.tolist() == [0, 1, 2, *[2**40] * 3]


def test_only_subsets_of_one_data_set_are_concatenated() -> None:
    base = ratings_of(BASE)
    for name in ("no times", "user ids", "item ids", "scale"):
        with pytest.raises(DataError, match="only subsets of one data set"):
            base.concat(variants()[name])


def test_columns_are_copied_once_and_only_on_access() -> None:
    part = many(100).subset(np.tile(np.array([0, 1], np.uint8), 50), 1)
    assert (len(part), repr(part).endswith("with times>")) == (50, True)
    assert "users" not in vars(part.replace(source="new", times=None))
    assert "users" not in vars(part)
    assert part.users is part.users
    with pytest.raises(ValueError, match="read-only"):
        part.users[0] = 1


def test_a_subset_is_pickled_without_its_base() -> None:
    whole = many(1000)
    part = whole.subset((np.arange(1000) == 7).astype(np.uint8), 1)
    part.rows("item")
    text = pickle.dumps(part)
    assert pickle.loads(text) == part == whole.select(np.array([7]))
    assert isinstance(pickle.loads(text), Ratings)
    assert len(text) < len(pickle.dumps(whole)) - 10_000


# -- memory ----------------------------------------------------------------------------------------

N, USERS, ITEMS = 400_000, 3_000, 500


def many(count: int = N) -> Ratings:
    rng = np.random.default_rng(5)
    cells = np.sort(rng.choice(USERS * ITEMS, count, replace=False))
    return Ratings(
        users=(cells % USERS).astype(np.int32),  # by item, as the Netflix Prize has them
        items=(cells // USERS).astype(np.int32),
        levels=rng.integers(0, 5, count).astype(np.uint8),
        scale=STARS,
        user_ids=np.arange(USERS),
        item_ids=np.arange(ITEMS),
        times=rng.integers(0, 2**31 - 1, count).astype(np.int32),
    )


@pytest.fixture
def hundredths(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of a hundredth of `many`."""
    monkeypatch.setattr(csr, "CHUNK", N // 100)
    monkeypatch.setattr(split_protocols, "_CHUNK", N // 100)


def peak_bytes(work: Callable[[], object]) -> int:
    """Most bytes allocated at the same time during the call."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.usefixtures("hundredths")
def test_splits_and_rows_need_less_than_9_bytes_per_rating(tmp_path: Path) -> None:
    ratings = many()
    many(10).rows("user")  # compiles what groups rows

    def prepare() -> None:
        parts = split(ratings, "paper:1")
        assert parts.train.rows("user").n_ratings + len(parts.valid) + len(parts.test) == N
        parts.train.level_counts("user")
        parts.train.concat(parts.valid).save(tmp_path / "context")

    # A column (4) and a level (1) of a row, its part (1, and 2 while it is drawn); copies of users,
    # items, levels and times would take 13 more, and an order of all ratings 8.
    assert peak_bytes(prepare) < 9 * N


@pytest.mark.usefixtures("hundredths")
def test_saved_subsets_equal_copies(tmp_path: Path) -> None:
    ratings = many()
    parts = split(ratings, "paper:1")
    pairs = zip(ratings.users.tolist(), ratings.items.tolist(), strict=True)
    cells = {pair: i for i, pair in enumerate(pairs)}
    order = np.array(
        [
            cells[pair]
            for part in (parts.train, parts.valid)
            for pair in zip(part.users.tolist(), part.items.tolist(), strict=True)
        ]
    )
    context = parts.train.concat(parts.valid)
    context.save(tmp_path / "context")
    assert Dataset.open(tmp_path / "context") == ratings.select(order)
    by_user = order[np.argsort(ratings.users[order], kind="stable")]
    np.testing.assert_array_equal(context.rows("user").columns, ratings.items[by_user])
    np.testing.assert_array_equal(context.rows("user").levels, ratings.levels[by_user])
