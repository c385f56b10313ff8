"""Who is asked what: by hand from the parts of a split."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from tests.baselines.listing import ratings_of, table_of

from cfnade import load
from cfnade.data.dataset import Dataset
from cfnade.data.splits import split
from cfnade.exceptions import DataError
from cfnade_baselines.listers.ease import EASE
from cfnade_baselines.listers.likes import Likes
from cfnade_baselines.listers.list_questions import ListQuestion, list_parts
from cfnade_baselines.listers.list_rival import LikedItems
from cfnade_baselines.listers.list_scoring import score_lists

USERS, ITEMS = 60, 40


def ratings() -> Dataset:
    """Nobody likes item 5, which some rated."""
    rng = np.random.default_rng(4)
    cells = rng.permutation(USERS * ITEMS)[:1300]
    users, items = cells // ITEMS, cells % ITEMS
    levels = rng.choice(5, 1300, p=(0.1, 0.1, 0.2, 0.3, 0.3))
    return ratings_of(users, items, np.where(items == 5, 1, levels), (USERS, ITEMS))


def liked(part: Dataset, least: float = 4.0) -> npt.NDArray[np.bool_]:
    out = np.zeros((USERS, ITEMS), bool)
    for user, item, value in zip(part.users, part.items, part.values, strict=True):
        out[user, item] = value >= least
    return out


def rated(part: Dataset) -> npt.NDArray[np.bool_]:
    return liked(part, 0.0)


def check(
    asked: ListQuestion,
    answers: npt.NDArray[np.bool_],
    given: npt.NDArray[np.bool_],
    known: npt.NDArray[np.bool_],
) -> None:
    people = np.flatnonzero(answers.any(1))
    assert len(people) > 5
    np.testing.assert_array_equal(asked.users, people)
    for part, expected in ((asked.answers, answers), (asked.given, given), (asked.known, known)):
        np.testing.assert_array_equal(table_of(part) > 0, expected[people])
    assert not (table_of(asked.known) * table_of(asked.answers)).any()


def test_people_held_out_are_known_by_likes_alone() -> None:
    parts = split(ratings(), "liang:12")
    found = list_parts(parts)
    likes, given = liked(parts.train), liked(parts.fold_in)
    for part in (found.likes, found.final_likes):
        np.testing.assert_array_equal(table_of(part) > 0, likes[likes.any(1)])
    check(found.valid, liked(parts.valid), given, given)
    check(found.test, liked(parts.test), given, given)
    np.testing.assert_array_equal(found.test.catalogue, likes.any(0))
    assert not found.test.catalogue[5]
    assert not set(found.valid.users) & set(found.test.users)


def test_people_who_are_known_have_all_that_they_rated_left_out() -> None:
    parts = split(ratings(), "paper:3")
    found = list_parts(parts)
    train, both = parts.train, parts.train.concat(parts.valid)
    np.testing.assert_array_equal(table_of(found.likes) > 0, liked(train)[liked(train).any(1)])
    np.testing.assert_array_equal(table_of(found.final_likes) > 0, liked(both)[liked(both).any(1)])
    check(found.valid, liked(parts.valid), liked(train), rated(train))
    check(found.test, liked(parts.test), liked(both), rated(both))
    np.testing.assert_array_equal(found.test.catalogue, rated(both).any(0))
    assert found.test.catalogue[5]


def test_another_threshold_makes_other_likes() -> None:
    parts = split(ratings(), "paper:3")
    found = list_parts(parts, threshold=3.0)
    both = liked(parts.train.concat(parts.valid), 3.0)
    check(found.test, liked(parts.test, 3.0), both, rated(parts.train.concat(parts.valid)))


def test_a_test_without_likes_is_an_error() -> None:
    data = ratings()
    low = data.select(data.values < 4)
    with pytest.raises(DataError, match="no test rating is a like"):
        list_parts(split(low, "paper:3"), threshold=4.0)


def test_people_and_items_can_be_picked_out() -> None:
    likes = Likes.of(ratings())
    table = table_of(likes)
    np.testing.assert_array_equal(table > 0, liked(ratings()))
    some = np.array([7, 3, 3, 50])
    np.testing.assert_array_equal(table_of(likes.people(some)), table[some])
    items = np.array([0, 4, 39])
    np.testing.assert_array_equal(table_of(likes.among(items)), table[:, items])
    np.testing.assert_array_equal(likes.item_counts(), table.sum(0))
    np.testing.assert_array_equal(likes.matrix().toarray(), table)
    assert table_of(likes.people(some[:0])).shape == (0, ITEMS)


def test_what_nobody_likes_is_not_learnt_and_not_listed() -> None:
    likes = Likes.of(ratings())
    likes = likes.people(np.flatnonzero(likes.counts()))
    found = LikedItems.of(likes)
    assert found.likes.n_items == ITEMS - 1
    scores = found.fit(EASE(), threads=1).scores(likes)
    assert np.isneginf(scores[:, 5]).all()
    rest = likes.among(np.delete(np.arange(ITEMS), 5))
    inner = EASE().fit(rest, threads=1).scores(rest)
    np.testing.assert_array_equal(np.delete(scores, 5, 1), inner)


@pytest.mark.realdata
def test_ease_by_liangs_protocol_is_what_a_prototype_measured(real_data: Path) -> None:
    """ML-1M, 600 people: NDCG@100 .4263, R@20 .3564, R@50 .4787 with a script of its own."""
    parts = list_parts(split(load(real_data / "ml-1m.zip"), "liang:600"))
    fitted = LikedItems.of(parts.final_likes).fit(EASE(regularisation=500.0), threads=1)
    found = score_lists(fitted.scores, parts.test).estimates()
    for name, expected in (
        ("ndcg@100", 0.4263),
        ("capped_recall@20", 0.3564),
        ("capped_recall@50", 0.4787),
    ):
        assert found[name].mean == pytest.approx(expected, abs=6e-5)
