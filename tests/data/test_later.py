"""Columns in pieces: the same entries as arrays, with hardly any memory of their own."""

from __future__ import annotations

import pydoc
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfnade.data import choices, later
from cfnade.data.array_files import read_ratings, write_ratings
from cfnade.data.later import Later, in_part, joined, pieces
from cfnade.data.ratings import Ratings
from cfnade.data.scale import Scale
from cfnade.data.splits import split

NUMBERS = st.lists(st.tuples(st.integers(0, 99), st.integers(0, 2)), max_size=20)
N, USERS, ITEMS = 400_000, 3_000, 500


@settings(max_examples=100)
@given(NUMBERS, NUMBERS, st.integers(1, 7))
def test_pieces_are_even_and_hold_what_is_in_the_part(
    first: list[tuple[int, int]], second: list[tuple[int, int]], size: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(later, "PIECE", size)
        halves = []
        for pairs in (first, second):
            values, parts = np.array(pairs, np.int32).reshape(-1, 2).T
            count = sum(part == 1 for _, part in pairs)
            halves.append(in_part(values, parts.astype(np.uint8), 1, count))
        both = joined(*halves)
        expected = [value for value, part in first + second if part == 1]
        found = [piece.tolist() for piece in pieces(both)]
        assert found == [expected[i : i + size] for i in range(0, len(expected), size)]
        assert both.array().tolist() == expected
        assert (len(both), both.dtype.name) == (len(expected), "int32")


def test_columns_of_two_types_are_joined_in_the_wider_one() -> None:
    both = joined(np.array([1], np.int32), np.array([2**40]))
    assert both.array().tolist() == [1, 2**40]
    assert [piece.dtype for piece in pieces(both)] == [np.int64]


def many() -> Ratings:
    rng = np.random.default_rng(5)
    cells = np.sort(rng.choice(USERS * ITEMS, N, replace=False))
    return Ratings(
        users=(cells % USERS).astype(np.int32),  # by item, as the Netflix Prize has them
        items=(cells // USERS).astype(np.int32),
        levels=rng.integers(0, 5, N).astype(np.uint8),
        scale=Scale((1.0, 2.0, 3.0, 4.0, 5.0)),
        user_ids=np.arange(USERS),
        item_ids=np.arange(ITEMS),
        times=rng.integers(0, 2**31 - 1, N).astype(np.int32),
    )


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(later, "PIECE", N // 100)
    monkeypatch.setattr(choices, "_CHUNK", N // 100)


def most_bytes(work: Callable[[], object]) -> int:
    """Allocated at once while it works, beyond what there was."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.usefixtures("small_pieces")
def test_parts_and_rows_take_few_bytes_a_rating(tmp_path: Path) -> None:
    ratings = many()

    def prepare() -> None:
        parts = split(ratings, "paper:1")
        assert parts.train.rows("user").n_ratings + len(parts.valid) + len(parts.test) == N
        parts.train.level_counts("user")
        write_ratings(tmp_path / "context", parts.train.plus(parts.valid))

    # A column (4) and a level (1) of a row, its part (1, and 2 while it is drawn); copies of users,
    # items, levels and times would take 13 more, and an order of all ratings 8.
    assert most_bytes(prepare) < 9 * N


@pytest.mark.usefixtures("small_pieces")
def test_what_is_cut_piece_by_piece_is_what_was_cut_at_once(tmp_path: Path) -> None:
    ratings = many()
    parts = split(ratings, "paper:1")
    whole = {name: getattr(ratings, name) for name in ("users", "items", "levels", "times")}
    labels = np.full(N, 9)
    place = {
        time: i for i, time in enumerate(zip(*(whole[n].tolist() for n in whole), strict=True))
    }
    for number, part in enumerate((parts.train, parts.valid)):
        for one in zip(*(getattr(part, name).tolist() for name in whole), strict=True):
            labels[place[one]] = number
    context = parts.train.plus(parts.valid)
    write_ratings(tmp_path / "context", context)
    order = np.concatenate([np.flatnonzero(labels == 0), np.flatnonzero(labels == 1)])
    assert read_ratings(tmp_path / "context") == ratings.select(order)
    by_user = order[np.argsort(ratings.users[order], kind="stable")]
    np.testing.assert_array_equal(context.rows("user").columns, ratings.items[by_user])
    np.testing.assert_array_equal(context.rows("user").levels, ratings.levels[by_user])


def test_an_array_is_made_once_and_only_if_asked_for() -> None:
    made: list[int] = []

    def stretches() -> list[np.ndarray]:
        made.append(1)
        return [np.array([4, 3], np.int32)]

    ratings = many().select(np.arange(2)).but(users=Later(2, np.dtype(np.int32), stretches))
    assert (len(ratings), repr(ratings).endswith("with times>"), made) == (2, True, [])
    assert ratings.users is ratings.users
    assert ratings.users.tolist() == [4, 3]
    assert made == [1]
    with pytest.raises(ValueError, match="read-only"):
        ratings.users[0] = 1


def test_the_class_can_be_asked_for_its_help() -> None:
    assert "users" in pydoc.render_doc(Ratings)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc says how much of a file is in memory")
def test_what_was_read_of_a_mapped_file_is_let_go(tmp_path: Path) -> None:
    file = tmp_path / "mapped"
    np.arange(1 << 20, dtype=np.int32).tofile(file)
    mapped = np.memmap(file, np.int32, "r")
    assert int(mapped.sum()) == (1 << 19) * ((1 << 20) - 1)
    assert resident(file) == 4 << 20
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(later, "PIECE", 3 << 10)  # not whole pages
        assert sum(int(piece.sum()) for piece in pieces(mapped)) == (1 << 19) * ((1 << 20) - 1)
    assert resident(file) < 1 << 18


def resident(file: Path) -> int:
    """Bytes of a mapped file that count as this process's memory."""
    lines = Path("/proc/self/smaps").read_text().splitlines()
    start = next(i for i, line in enumerate(lines) if line.endswith(str(file)))
    found = next(line for line in lines[start:] if line.startswith("Rss:"))
    return int(found.split()[1]) << 10


def test_what_somebody_may_have_changed_is_never_let_go(tmp_path: Path) -> None:
    file = tmp_path / "mapped"
    np.zeros(1 << 16, np.int32).tofile(file)
    own = np.memmap(file, np.int32, "c")  # changes stay in memory: read again, they are lost
    own[:] = 7
    assert sum(int(piece.sum()) for piece in pieces(own)) == 7 << 16
    assert int(own.sum()) == 7 << 16
