"""Train, history and held-out items of a split, derived by hand from its parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tests.baselines.synthetic_interactions import ratings_of

from cfnade import load
from cfnade.data.dataset import Dataset
from cfnade.data.splits import split
from cfnade.exceptions import DataError
from cfnade_baselines.irspack import EASE
from cfnade_baselines.ranking_protocol import (
    RankingQuery,
    drop_unused_items,
    interactions,
    item_counts,
    ranking_task,
    row_counts,
    score_all_items,
    score_rankings,
)

USERS, ITEMS = 60, 40
Table = npt.NDArray[np.bool_]


def ratings() -> Dataset:
    """All ratings of item 5 are low."""
    rng = np.random.default_rng(4)
    pairs = rng.permutation(USERS * ITEMS)[:1300]
    users, items = pairs // ITEMS, pairs % ITEMS
    levels = rng.choice(5, 1300, p=(0.1, 0.1, 0.2, 0.3, 0.3))
    return ratings_of(users, items, np.where(items == 5, 1, levels), (USERS, ITEMS))


def high(part: Dataset, least: float = 4.0) -> Table:
    out = np.zeros((USERS, ITEMS), bool)
    for user, item, value in zip(part.users, part.items, part.values, strict=True):
        out[user, item] = value >= least
    return out


def rated(part: Dataset) -> Table:
    return high(part, 0.0)


def dense(matrix: Any) -> Table:
    table: Table = matrix.toarray() > 0
    return table


def check(query: RankingQuery, held_out: Table, histories: Table, excluded: Table) -> None:
    users = np.flatnonzero(held_out.any(1))
    assert len(users) > 5
    np.testing.assert_array_equal(query.users, users)
    np.testing.assert_array_equal(dense(query.held_out), held_out[users])
    np.testing.assert_array_equal(dense(query.histories), histories[users])
    np.testing.assert_array_equal(dense(query.excluded), excluded[users])
    assert not (dense(query.excluded) & dense(query.held_out)).any()


def test_held_out_users_are_represented_by_their_interactions() -> None:
    parts = split(ratings(), "liang:12")
    task = ranking_task(parts)
    train, fold_in = high(parts.train), high(parts.fold_in)
    for matrix in (task.train, task.final_train):
        np.testing.assert_array_equal(dense(matrix), train[train.any(1)])
    check(task.valid, high(parts.valid), fold_in, fold_in)
    check(task.test, high(parts.test), fold_in, fold_in)
    np.testing.assert_array_equal(task.test.candidates, train.any(0))
    assert not task.test.candidates[5]
    assert not set(task.valid.users) & set(task.test.users)


def test_all_rated_items_of_known_users_are_excluded() -> None:
    parts = split(ratings(), "paper:3")
    task = ranking_task(parts)
    train, both = parts.train, parts.train.concat(parts.valid)
    np.testing.assert_array_equal(dense(task.train), high(train)[high(train).any(1)])
    np.testing.assert_array_equal(dense(task.final_train), high(both)[high(both).any(1)])
    check(task.valid, high(parts.valid), high(train), rated(train))
    check(task.test, high(parts.test), high(both), rated(both))
    np.testing.assert_array_equal(task.test.candidates, rated(both).any(0))
    assert task.test.candidates[5]


def test_the_threshold_defines_interactions() -> None:
    parts = split(ratings(), "paper:3")
    task = ranking_task(parts, threshold=3.0)
    both = parts.train.concat(parts.valid)
    check(task.test, high(parts.test, 3.0), high(both, 3.0), rated(both))


def test_a_test_part_without_interactions_is_an_error() -> None:
    data = ratings()
    low = data.select(data.values < 4)
    with pytest.raises(DataError, match="no test rating is an interaction"):
        ranking_task(split(low, "paper:3"), threshold=4.0)


def test_matrices_have_a_row_per_user_and_sorted_columns() -> None:
    matrix = interactions(ratings())
    table = high(ratings())
    np.testing.assert_array_equal(dense(matrix), table)
    np.testing.assert_array_equal(row_counts(matrix), table.sum(1))
    np.testing.assert_array_equal(item_counts(matrix), table.sum(0))
    assert matrix.has_sorted_indices
    assert matrix.dtype == np.float32


def test_unused_items_are_not_learned_and_not_listed() -> None:
    matrix = interactions(ratings())
    matrix = matrix[np.flatnonzero(row_counts(matrix))]
    items, used = drop_unused_items(matrix)
    assert used.shape == (matrix.shape[0], ITEMS - 1)
    model = EASE().fit(used, n_threads=1)
    scores = score_all_items(model.score, items)(matrix)
    assert np.isneginf(scores[:, 5]).all()
    np.testing.assert_array_equal(np.delete(scores, 5, 1), model.score(used))


@pytest.mark.realdata
def test_ease_by_liangs_protocol_has_the_scores_of_an_independent_script(real_data: Path) -> None:
    """ML-1M, 600 users: NDCG@100 .4263, R@20 .3564, R@50 .4787."""
    task = ranking_task(split(load(real_data / "ml-1m.zip"), "liang:600"))
    items, matrix = drop_unused_items(task.final_train)
    model = EASE(regularization=500.0).fit(matrix, n_threads=1)
    found = score_rankings(score_all_items(model.score, items), task.test).estimates()
    for name, expected in (
        ("ndcg@100", 0.4263),
        ("capped_recall@20", 0.3564),
        ("capped_recall@50", 0.4787),
    ):
        assert found[name].mean == pytest.approx(expected, abs=6e-5)
