"""Splits by name: every rating in one part, sizes and seeds as promised, and never other ones."""

from __future__ import annotations

import hashlib
import math
import random
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfnade import load
from cfnade.data import splits
from cfnade.data.dataset import Dataset, Ratings
from cfnade.data.scale import Scale
from cfnade.data.split_protocols import (
    TRAIN,
    VALID,
    add_validation,
    authors_order,
    authors_sizes,
    choose_positions,
    newest,
)
from cfnade.data.splits import Split, split, train_test_split
from cfnade.exceptions import DataError

NAMES = ["paper:1", "authors:1234", "authors-code:2341", "kfold:3:1", "kfold:2:0:9", "time"]
NAMES += ["time:0.25", "users:5", "users:5:1", "users:5:0", "last:1", "last:2"]


def ratings_of(n_users: int, n_items: int, n: int, seed: int, times: bool = True) -> Dataset:
    """n distinct cells in a random order, with many equal times."""
    generator = np.random.default_rng(seed)
    cells = generator.permutation(n_users * n_items)[:n].astype(np.int32)
    return Ratings(
        users=cells // n_items,
        items=cells % n_items,
        levels=generator.integers(0, 5, n, dtype=np.uint8),
        scale=Scale((1.0, 2.0, 3.0, 4.0, 5.0)),
        user_ids=np.arange(10, 10 + n_users),
        item_ids=np.arange(100, 100 + n_items),
        times=generator.integers(0, 20, n, dtype=np.int32) if times else None,
    )


def cells_of(part: Dataset) -> list[tuple[int, int]]:
    return list(zip(part.users.tolist(), part.items.tolist(), strict=True))


def parts_of(cut: Split) -> tuple[Dataset, ...]:
    return cut.train, cut.valid, cut.test, cut.fold_in


# -- every split -------------------------------------------------------------------------------


@settings(max_examples=60)
@given(st.integers(2, 12), st.integers(2, 12), st.integers(12, 144), st.integers(0, 9), st.data())
def test_every_rating_is_in_exactly_one_part(
    n_users: int, n_items: int, most: int, seed: int, data: st.DataObject
) -> None:
    n = min(most, n_users * n_items)
    whole = ratings_of(n_users, n_items, n, seed)
    name = data.draw(st.sampled_from(NAMES))
    try:
        cut = split(whole, name)
    except DataError as error:  # tiny data may leave nothing to train on, or nobody to hold out
        assert "leaves" in str(error) or "no user has more" in str(error)  # noqa: PT017
        return
    parts = [cells_of(part) for part in parts_of(cut)]
    assert sorted([cell for cells in parts for cell in cells]) == sorted(cells_of(whole))
    position = {cell: i for i, cell in enumerate(cells_of(whole))}
    for part, cells in zip(parts_of(cut), parts, strict=True):
        places = [position[cell] for cell in cells]
        assert places == sorted(places)  # the order of the file
        assert part.user_ids is whole.user_ids
        assert part.item_ids is whole.item_ids
        assert part.times is not None
        assert whole.times is not None
        np.testing.assert_array_equal(part.levels, whole.levels[places])
        np.testing.assert_array_equal(part.times, whole.times[places])
    assert all(parts[:3])


@pytest.mark.parametrize("kind", ["paper:{}", "authors:{}", "authors-code:{}", "users:{}"])
def test_seeds_give_different_splits(kind: str) -> None:
    whole = ratings_of(40, 40, 900, 1)
    one, two = split(whole, kind.format(1)), split(whole, kind.format(2))
    assert set(cells_of(one.test)) != set(cells_of(two.test))
    assert set(cells_of(one.valid)) != set(cells_of(two.valid))
    assert one.fingerprint != two.fingerprint


def test_fingerprints_depend_on_data_and_name() -> None:
    a, b = ratings_of(40, 40, 900, 1), ratings_of(40, 40, 900, 2)
    prints = [split(a, "paper:1"), split(b, "paper:1"), split(a, "authors:1"), split(a, "time")]
    assert len({cut.fingerprint for cut in prints}) == 4
    assert len(prints[0].fingerprint) == 32


def test_names_are_completed_with_defaults() -> None:
    whole = ratings_of(40, 40, 900, 1)
    for short, full in [
        ("kfold:5:2", "kfold:5:2:0"),
        ("time", "time:0.1"),
        ("users:3", "users:3:10"),
    ]:
        assert split(whole, short) == split(whole, full)
        assert split(whole, short).name == full
    assert split(whole, "time:.10").name == "time:0.1"


# -- sizes -------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(st.integers(3, 400), st.integers(0, 10**17))
def test_sizes_of_paper_splits_are_rounded_up(n: int, seed: int) -> None:
    cut = split(ratings_of(20, 20, n, 0), f"paper:{seed}")
    assert len(cut.test) == -(-n // 10)
    assert len(cut.valid) == -(-(n - len(cut.test)) // 20)


# -- folds, time, users ------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "folds"), [(900, 5), (901, 7), (10, 3), (12, 4)])
def test_folds_are_a_partition_of_equal_parts(n: int, folds: int) -> None:
    whole = ratings_of(40, 40, n, 2)
    tests = [cells_of(split(whole, f"kfold:{folds}:{i}:4").test) for i in range(folds)]
    assert sorted([cell for cells in tests for cell in cells]) == sorted(cells_of(whole))
    assert max(map(len, tests)) - min(map(len, tests)) <= 1


@settings(max_examples=60)
@given(st.lists(st.integers(-3, 3), max_size=40), st.data())
def test_newest_orders_by_time_then_position(times: list[int], data: st.DataObject) -> None:
    count = data.draw(st.integers(0, len(times)))
    ordered = sorted(range(len(times)), key=lambda i: (times[i], i))
    expected = set(ordered[len(times) - count :])
    mask = newest(np.array(times, np.int32), count)
    assert set(np.flatnonzero(mask).tolist()) == expected


def test_time_splits_train_on_the_oldest_ratings() -> None:
    cut = split(ratings_of(40, 40, 900, 1), "time:0.25")
    train, valid, test = (part.times for part in parts_of(cut)[:3])
    assert train is not None
    assert valid is not None
    assert test is not None
    assert train.max() <= valid.min() <= valid.max() <= test.min()
    assert (len(test), len(valid)) == (225, 34)


@pytest.mark.parametrize("known", [0, 1, 10, 20])
def test_held_out_users_have_no_training_ratings(known: int) -> None:
    whole = ratings_of(60, 40, 1200, 6)
    cut = split(whole, f"users:8:{known}")
    held = set(cut.test.users.tolist())
    counts = np.bincount(whole.users, minlength=60)
    assert len(held) == -(-int((counts > known).sum()) // 10)
    assert not held & set(cut.train.users.tolist())
    assert not held & set(cut.valid.users.tolist())
    for user in held:
        assert int((cut.fold_in.users == user).sum()) == known
        assert int((cut.test.users == user).sum()) == counts[user] - known
    assert len(cut.fold_in) == known * len(held)


# -- refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "papre:1",
            r"unknown split 'papre:1'; did you mean paper:1\? possible are all, paper:SEED, ",
        ),
        ("", r"unknown split ''; possible are .*kfold:K:I\[:SEED\]"),
        ("paper", r"has 0 values after 'paper'; write paper:SEED, for example paper:1"),
        ("paper:x", r"SEED is 'x', it must be a whole number from 0"),
        ("paper:1.5", r"SEED is '1.5'"),
        ("paper:" + "9" * 5000, r"SEED is '999"),
        ("kfold:5:5", r"folds count from 0, so the last is 4"),
        ("kfold:1:0", r"there can be 2 to 900 folds"),
        ("time:0", r"TEST_FRACTION is '0', it must lie between 0 and 1"),
        ("time:1.0", r"between 0 and 1"),
        ("time:0.999", r"to train and validate on, but this one leaves 0"),
        ("users:1:40", r"no user has more than 40 ratings.*the most is \d+"),
        ("last:0", r"last:0 leaves nothing to test; write last:1"),
        ("liang", r"write liang:HELD\[:SEED\], for example liang:600"),
        (
            "liang:20",
            r"liang:20 holds out 20 users .* of the \d+ users with 5 ratings of 4 or more",
        ),
    ],
)
def test_invalid_names_are_refused(name: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        split(ratings_of(40, 40, 900, 1), name)


@pytest.mark.parametrize("name", ["time", "last:1"])
def test_splitting_by_time_needs_times(name: str) -> None:
    with pytest.raises(DataError, match=r"no timestamps.*paper:SEED"):
        split(ratings_of(40, 40, 900, 1, times=False), name)


@pytest.mark.parametrize("name", ["paper:1", "authors:1", "authors-code:1", "time", "users:1:0"])
@pytest.mark.parametrize("n", [0, 1, 2])
def test_too_few_ratings_are_refused(name: str, n: int) -> None:
    with pytest.raises(DataError, match=r"needs at least 2|no user has more"):
        split(ratings_of(1, 3, n, 0), name)


# -- random choices ----------------------------------------------------------------------------


@settings(max_examples=60)
@given(st.integers(0, 3000), st.data(), st.integers(0, 2**70))
def test_choose_positions_takes_the_smallest_keys(n: int, data: st.DataObject, seed: int) -> None:
    count = data.draw(st.integers(0, n))
    keys = np.random.PCG64((seed, 7)).random_raw(n) if n else np.empty(0, np.uint64)
    expected = np.zeros(n, bool)
    expected[np.argsort(keys, kind="stable")[:count]] = True
    np.testing.assert_array_equal(choose_positions(n, count, (seed, 7)), expected)


def test_choose_positions_is_stable() -> None:
    """If this fails, every split by name has changed, and results no longer compare."""
    assert np.flatnonzero(choose_positions(40, 4, (1, 0))).tolist() == [9, 31, 36, 39]


# -- train_test_split ----------------------------------------------------------------------------


@settings(max_examples=60)
@given(st.integers(2, 144), st.integers(1, 99), st.integers(0, 10**6))
def test_train_test_split_is_a_partition_of_the_given_size(n: int, percent: int, seed: int) -> None:
    whole = ratings_of(12, 12, n, 0)
    size = -(-n * percent // 100)  # whole numbers: no float is rounded up
    if size == n:
        with pytest.raises(DataError, match="leaves 0 of"):
            train_test_split(whole, percent / 100, seed)
        return
    train, test = train_test_split(whole, test_size=percent / 100, seed=seed)
    assert len(test) == size
    assert sorted(cells_of(train) + cells_of(test)) == sorted(cells_of(whole))
    order = {cell: i for i, cell in enumerate(cells_of(whole))}
    assert [order[cell] for cell in cells_of(test)] == sorted(order[c] for c in cells_of(test))
    assert cells_of(train_test_split(whole, size, seed)[1]) == cells_of(test)


def test_fractions_are_exact() -> None:
    assert math.ceil(100 * 0.07) == 8
    assert len(train_test_split(ratings_of(12, 12, 100, 0), 0.07)[1]) == 7


def test_a_tenth_is_the_test_part_of_a_paper_split() -> None:
    whole = ratings_of(40, 40, 900, 1)
    assert train_test_split(whole, 0.1, 3)[1] == split(whole, "paper:3").test
    assert isinstance(train_test_split(whole)[0], Ratings)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"test_size": 0}, r"test_size=0 .*a fraction between 0 and 1, or a number from 1 to 899"),
        ({"test_size": 900}, r"test_size=900 leaves 0 of 900"),
        ({"test_size": 1.0}, r"test_size \(=1.0\) must be a number .*below 1"),
        ({"test_size": True}, r"test_size \(=True\)"),
        ({"seed": -1}, r"seed \(=-1\)"),
    ],
)
def test_invalid_sizes_and_seeds_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        train_test_split(ratings_of(40, 40, 900, 1), **arguments)


def test_only_data_sets_are_split() -> None:
    functions: list[Any] = [train_test_split, split]
    for function in functions:
        with pytest.raises(DataError, match=r"not list; read other data with cfnade\.load first"):
            function([(1, 1, 5)], "paper:1")
    with pytest.raises(DataError, match=r"the name of a split is a text such as .*, not 1"):
        split(ratings_of(40, 40, 900, 1), 1)  # type: ignore[arg-type]


# -- MovieLens 100K --------------------------------------------------------------------------------


def test_movielens_100k_splits_are_taken_by_position(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = ratings_of(20, 40, 750, 1)
    monkeypatch.setattr(splits, "_MOVIELENS_100K", splits._pairs_digest(whole))
    cells = cells_of(whole)
    ranks = [sum(c[0] == cell[0] for c in cells[:i]) for i, cell in enumerate(cells)]
    expected = {f"u{i + 1}": cells[150 * i : 150 * (i + 1)] for i in range(5)}
    expected["ua"] = [cell for cell, rank in zip(cells, ranks, strict=True) if rank < 10]
    expected["ub"] = [cell for cell, rank in zip(cells, ranks, strict=True) if 10 <= rank < 20]
    for name, test in expected.items():
        parts = split(whole, name)
        assert cells_of(parts.test) == test
        assert len(parts.valid) == -(-(750 - len(test)) // 20)
        some = whole.select(np.arange(0, 750, 3))
        parts = splits.split_movielens_100k(some, name, whole)
        assert cells_of(parts.test) == [cell for cell in cells_of(some) if cell in set(test)]


@pytest.mark.parametrize("name", ["u1", "ub"])
def test_movielens_100k_splits_are_refused_for_other_data(name: str) -> None:
    with pytest.raises(DataError, match=rf"split '{name}' is a part of MovieLens 100K.*paper:1"):
        split(ratings_of(40, 40, 900, 1), name)


# -- protocols of the literature ---------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 3])
def test_last_splits_test_the_newest_ratings_of_each_user(count: int) -> None:
    whole = ratings_of(40, 30, 500, 3)
    assert whole.times is not None
    expected: dict[str, set[tuple[int, int]]] = {"train": set(), "valid": set(), "test": set()}
    for user in range(40):
        mine = [i for i in range(500) if whole.users[i] == user]
        mine.sort(key=lambda i: (whole.times[i], i))  # type: ignore[index]
        cells = [(user, int(whole.items[i])) for i in mine]
        if len(cells) > 2 * count:
            expected["test"].update(cells[-count:])
            expected["valid"].update(cells[-2 * count : -count])
            cells = cells[: -2 * count]
        expected["train"].update(cells)
    cut = split(whole, f"last:{count}")
    assert {name: set(cells_of(getattr(cut, name))) for name in expected} == expected
    assert len(cut.fold_in) == 0
    assert split(whole, "last").name == "last:1"


def liang_by_hand(whole: Dataset, held: int) -> dict[str, set[tuple[int, int]]]:
    """The protocol as its authors' script goes, with NumPy's global generator."""
    cells = cells_of(whole)
    stars = dict(zip(cells, whole.values.tolist(), strict=True))
    likes: dict[int, list[int]] = {}
    for user, item in cells:
        if stars[user, item] >= 4:
            likes.setdefault(user, []).append(item)
    people = sorted(user for user, items in likes.items() if len(items) >= 5)
    np.random.seed(98765)  # noqa: NPY002
    people = [people[i] for i in np.random.permutation(len(people))]  # noqa: NPY002
    n = len(people)
    train, valid, test = people[: n - 2 * held], people[n - 2 * held : n - held], people[n - held :]
    catalogue = {item for user in train for item in likes[user]}
    parts = {"train": {cell for cell in cells if cell[0] in train}}
    parts["fold_in"] = {cell for cell in cells if cell[0] in valid + test and stars[cell] < 4}
    for name, group in (("valid", valid), ("test", test)):
        np.random.seed(98765)  # noqa: NPY002
        parts[name] = set()
        for user in sorted(group):
            items = [item for item in likes[user] if item in catalogue]
            answers: set[int] = set()
            if len(items) >= 5:
                drawn = np.random.choice(len(items), int(0.2 * len(items)), replace=False)  # noqa: NPY002
                answers = {items[i] for i in drawn}
            parts[name] |= {(user, item) for item in answers}
            parts["fold_in"] |= {(user, item) for item in items if item not in answers}
    return parts


@pytest.mark.parametrize(("n", "held"), [(900, 3), (1500, 10), (700, 2)])
def test_liang_splits_are_those_of_the_published_script(n: int, held: int) -> None:
    whole = ratings_of(60, 80, n, held)
    state = np.random.get_state()  # noqa: NPY002
    expected = liang_by_hand(whole, held)
    np.random.set_state(state)  # noqa: NPY002
    cut = split(whole, f"liang:{held}")
    assert {name: set(cells_of(part)) for name, part in cut.parts().items()} == expected
    left_out = set(cells_of(whole)) - set().union(*expected.values())
    counts = np.bincount(whole.users[whole.values >= 4], minlength=60)
    assert any(counts[user] < 5 for user, _ in left_out)
    assert len(cut.test) > 0


# -- the authors' code -------------------------------------------------------------------------


def authors_by_hand(n: int, seed: int) -> tuple[list[int], list[int], list[int]]:
    """Their script on the list 0..n-1, with Python 2.7's shuffle written out."""
    generator = random.Random(seed)
    listed = list(range(n))
    i = n
    while i > 1:
        i -= 1
        partner = int(generator.random() * (i + 1))
        listed[i], listed[partner] = listed[partner], listed[i]
    n_test, n_valid = np.ceil(n * 0.1), np.ceil(n * (0.9 * 0.005))
    n_train = n - n_test - n_valid
    train, valid, test = [], [], []
    for count, position in enumerate(listed):
        if count < n_train:
            train.append(position)
        elif count < n_train + n_valid:
            valid.append(position)
        else:
            test.append(position)
    return sorted(train), sorted(valid), sorted(test)


@pytest.mark.parametrize("n", [3, 10, 11, 30, 110, 200, 222, 1000])
@pytest.mark.parametrize("seed", [0, 1234])
def test_authors_splits_are_those_of_the_published_script(n: int, seed: int) -> None:
    whole = ratings_of(32, 32, n, 0)
    everything = cells_of(whole)
    train, valid, test = authors_by_hand(n, seed)
    code = split(whole, f"authors-code:{seed}")
    assert cells_of(code.test) == [everything[i] for i in test]
    assert cells_of(code.valid) == [everything[i] for i in valid]
    assert cells_of(code.train) == [everything[i] for i in train]
    paper = split(whole, f"authors:{seed}")
    assert cells_of(paper.test) == cells_of(code.test)
    assert len(paper.valid) == -(-(n - len(test)) // 20)


def test_authors_order_is_that_of_python_2() -> None:
    """Printed by Python 2.7.18: random.seed(1234); x = list(range(10)); random.shuffle(x)."""
    assert authors_order(10, 1234).tolist() == PYTHON_2


PYTHON_2 = [8, 1, 7, 4, 2, 5, 6, 0, 3, 9]


def test_authors_sizes_are_ceilings_of_floats() -> None:
    assert authors_sizes(1_000_209) == (4_501, 100_021)
    assert authors_sizes(2_000) == (10, 200)  # 9.000000000000002 rounds up
    for n in range(1, 3000):
        assert authors_sizes(n) == (int(np.ceil(n * (0.9 * 0.005))), int(np.ceil(n * 0.1)))


# md5 of the sorted (user, movie) pairs of each part, as made by Python 2.7.18 from ratings.dat.
PYTHON_2_PARTS = {
    1234: ("dfe30fcb24806a531ad829d9e5cbe9f5", "963ef349937dfefbeefe8728053deb18"),
    1324: ("d0e7a7747ab7712489814e53a9b8101d", "f643d85f35d51dbcbaf8f52cf56fc110"),
}


@cache  # ratings cannot be changed
def _ml_1m(path: Path) -> Dataset:
    return load(path, cache=False)


@pytest.mark.realdata
@pytest.mark.parametrize("seed", PYTHON_2_PARTS)
def test_authors_splits_of_movielens_1m_are_those_of_python_2(real_data: Path, seed: int) -> None:
    ml_1m = _ml_1m(real_data / "ml-1m.zip")
    code, paper = split(ml_1m, f"authors-code:{seed}"), split(ml_1m, f"authors:{seed}")
    assert [len(part) for part in (code.train, code.valid, code.test)] == [895_687, 4_501, 100_021]
    assert [len(part) for part in (paper.train, paper.valid, paper.test)] == [
        855_178,
        45_010,
        100_021,
    ]
    assert (raw_digest(code.valid), raw_digest(code.test)) == PYTHON_2_PARTS[seed]
    assert raw_digest(paper.test) == raw_digest(code.test)


def raw_digest(part: Dataset) -> str:
    users, items = part.user_ids[part.users].tolist(), part.item_ids[part.items].tolist()
    text = repr(sorted(zip(users, items, strict=True))).replace(" ", "")
    return hashlib.md5(text.encode()).hexdigest()


def test_validation_parts_depend_on_the_seed() -> None:
    drawn = [add_validation(np.full(400, TRAIN, np.uint8), seed) for seed in (1, 2)]
    assert [int((parts == VALID).sum()) for parts in drawn] == [20, 20]
    assert (drawn[0] != drawn[1]).any()
