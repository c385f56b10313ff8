"""implicit's calls, on data whose right answers are known."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from implicit.evaluation import precision_at_k
from scipy.sparse import csr_matrix

from cfnade.exceptions import DataError, PredictionError
from cfnade.integrations.implicit import ImplicitRecommender

N = 40


def board(size: int) -> csr_matrix:
    """Even people picked all even items, odd ones all odd items, but for one each: their own."""
    same = np.arange(size)[:, None] % 2 == np.arange(size) % 2
    return csr_matrix((same & ~np.eye(size, dtype=bool)).astype(float))


@pytest.fixture(scope="module")
def model() -> ImplicitRecommender:
    return ImplicitRecommender(n_threads=1).fit(board(N))


def test_what_is_missing_comes_first_for_each_and_for_all(model: ImplicitRecommender) -> None:
    every, picked = np.arange(N), board(N)
    ids, scores = model.recommend(every, picked, N=1)
    assert ids[:, 0].tolist() == every.tolist()
    for user in (0, 7):
        alone = model.recommend(user, picked[user], N=3)
        assert [part.shape for part in alone] == [(3,), (3,)]
        assert alone[0][0] == user
        assert alone[1][0] == pytest.approx(scores[user, 0], rel=1e-4)
    assert precision_at_k(model, picked, csr_matrix(np.eye(N)), K=1, show_progress=False) == 1


def test_known_by_a_row_that_is_given(model: ImplicitRecommender) -> None:
    """The same user by number and by row, and another user by their row."""
    picked = board(N)
    by_number, by_row = (
        model.recommend(5, picked[5], N=3, recalculate_user=again) for again in (False, True)
    )
    assert by_number[0].tolist() == by_row[0].tolist()
    assert by_number[1] == pytest.approx(by_row[1])
    assert model.recommend(5, picked[8], N=1, recalculate_user=True)[0][0] == 8
    _, scores = model.recommend(3, picked[3], N=N, filter_already_liked_items=False)
    assert np.exp(scores).sum() == pytest.approx(1, abs=1e-5)


def test_what_is_filtered_stands_last(model: ImplicitRecommender) -> None:
    picked = board(N)
    ids, _ = model.recommend(0, picked[0], N=5, filter_items=[0, 1])
    assert not {0, 1} & {*ids}
    ids, scores = model.recommend(0, picked[0], N=9, items=[1, 2, 3, 4, 0])
    assert ids[0] == 0
    assert {*ids[:3]} == {0, 1, 3}
    assert {*ids[3:]} == {2, 4}
    assert (scores[3:] < -1e38).all()
    with pytest.raises(PredictionError, match="not both"):
        model.recommend(0, picked[0], items=[1], filter_items=[2])


def test_the_like_share_their_pickers(model: ImplicitRecommender) -> None:
    ids, _ = model.similar_items(np.arange(6), N=5)
    assert ids[:, 0].tolist() == [*range(6)]
    larger = ImplicitRecommender(n_threads=1).fit(board(256))
    ids, _ = larger.similar_items(np.arange(20), N=8)
    assert (ids % 2 == np.arange(20)[:, None] % 2).all()
    ids, scores = larger.similar_items(4, N=5, filter_items=[4])
    assert 4 not in ids
    assert (np.diff(scores) <= 0).all()


def test_an_item_that_nobody_picked_is_like_nothing() -> None:
    picked = board(N).toarray()
    picked[:, [12, N - 1]] = 0
    model = ImplicitRecommender(n_threads=1).fit(csr_matrix(picked))
    ids, scores = model.similar_items(np.arange(10), N=N)
    assert not {12, N - 1} & {*ids[:, : N - 2].ravel()}
    assert (scores[:, N - 2 :] < -1e38).all()


@pytest.mark.parametrize(
    ("ask", "error", "words"),
    [
        (lambda m, x: m.recommend(0, x[:1].tocsc()), DataError, "give a scipy.sparse CSR matrix"),
        (lambda m, x: m.recommend([0, 1], x[:1]), PredictionError, "has 1 rows for 2 users"),
        (lambda m, x: m.recommend(N, x[:1]), IndexError, f"user {N} is not in 0..{N - 1}"),
        (lambda m, x: m.recommend(0, x[:1], items=[-1]), IndexError, "item -1 is not in"),
        (lambda m, x: m.fit(0 * x), DataError, "has no interactions"),
    ],
    ids=["format", "rows", "user", "item", "empty"],
)
def test_what_cannot_be_is_said(
    model: ImplicitRecommender, ask: Any, error: Any, words: str
) -> None:
    copy = pickle.loads(pickle.dumps(model))
    with pytest.raises(error, match=words):
        ask(copy, board(N))
