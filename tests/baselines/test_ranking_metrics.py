"""Figures of lists are those of a full sort, and of another library."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tests.baselines.synthetic_interactions import interactions_of

from cfnade.exceptions import ModelError
from cfnade_baselines import ranking_protocol
from cfnade_baselines.ranking_protocol import RankingQuery, UserScores, row_counts, score_rankings

USERS, ITEMS = 70, 150
Table = npt.NDArray[np.float32]


def make_query(seed: int = 0) -> RankingQuery:
    rng = np.random.default_rng(seed)
    known = rng.random((USERS, ITEMS)) < 0.1
    answers = (rng.random((USERS, ITEMS)) < rng.uniform(0.01, 0.4, (USERS, 1))) & ~known
    answers[np.arange(USERS), (~known).argmax(1)] = True
    given = known & (rng.random(known.shape) < 0.5)  # not all that is known is said
    candidates = rng.random(ITEMS) < 0.9
    users = np.arange(1000, 1000 + USERS)
    return RankingQuery(
        users, interactions_of(given), interactions_of(known), interactions_of(answers), candidates
    )


def table(seed: int = 5) -> Table:
    return np.random.default_rng(seed).normal(size=(USERS, ITEMS)).astype(np.float32)


def asked(scores: Table, query: RankingQuery, **more: Any) -> UserScores:
    """Scores by person, whoever is asked about first."""
    rows = {bytes(row): i for i, row in enumerate(query.histories.toarray())}
    assert len(rows) == USERS

    def answer(histories: Any) -> Table:
        return scores[[rows[bytes(row)] for row in histories.toarray()]]

    return score_rankings(answer, query, **more)


def full_sort(scores: Table, query: RankingQuery, person: int) -> list[bool]:
    """Whether each item that can be listed was liked, best first."""
    known, liked = query.excluded.toarray()[person] > 0, query.held_out.toarray()[person] > 0
    items = [i for i in range(ITEMS) if query.candidates[i] and not known[i]]
    items.sort(key=lambda i: -scores[person, i])
    return [bool(liked[i]) for i in items]


@pytest.mark.parametrize("size", [1, 1000, 1 << 21])
def test_figures_are_those_of_a_full_sort(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many people are asked about at a time."""
    monkeypatch.setattr(ranking_protocol, "_MAX_SCORES", size)
    query, scores = make_query(), table()
    found = asked(scores, query, cutoffs=(1, 5, 20, 140, 400))
    assert found.users is query.users
    for person in range(USERS):
        hits, wanted = full_sort(scores, query, person), int(row_counts(query.held_out)[person])
        for k in (1, 5, 20, 140, 400):
            top = hits[:k]
            gain = sum(1 / np.log2(place + 2) for place, hit in enumerate(top) if hit)
            ideal = sum(1 / np.log2(place + 2) for place in range(min(k, wanted)))
            expected = {
                "ndcg": gain / ideal,
                "recall": sum(top) / wanted,
                "capped_recall": sum(top) / min(k, wanted),
                "precision": sum(top) / k,
                "hit_rate": float(any(top)),
                "mrr": 1 / (top.index(True) + 1) if any(top) else 0.0,
            }
            for name, value in expected.items():
                assert found.values[f"{name}@{k}"][person] == pytest.approx(value), (name, k)


THEIRS = {
    "ndcg": "ndcg",
    "recall": "recall",
    "precision": "precision",
    "map": "average_precision",
    "mrr": "reciprocal_rank",
    "hit_rate": "hit_rate",
}


def test_figures_are_those_of_ranx() -> None:
    """It takes items and scores in one array each person, and sorts nothing itself."""
    ranx = pytest.importorskip("ranx.metrics", reason="ranx is not installed (cfnade[dev])")
    query, scores = make_query(1), table(6)
    found = asked(scores, query)
    known, liked = query.excluded.toarray() > 0, query.held_out.toarray() > 0
    for person in range(0, USERS, 7):
        items = np.flatnonzero(query.candidates & ~known[person])
        items = items[np.argsort(-scores[person, items])]
        run = np.stack([items, scores[person, items]], 1)[None].astype(float)
        wanted = np.flatnonzero(liked[person])
        truth = np.stack([wanted, np.ones(len(wanted))], 1)[None].astype(float)
        for name, theirs in THEIRS.items():
            for k in (10, 100):
                (expected,) = getattr(ranx, theirs)(truth, run, k)
                value = found.values[f"{name}@{k}"][person]
                assert value == pytest.approx(expected), (name, k)


@pytest.mark.parametrize("k", [3, 20])
def test_equal_scores_are_a_draw(k: int) -> None:
    """The mean over many random orders of the same ties."""
    query = make_query(2)
    coarse = np.round(table(7)).astype(np.float32)
    exact = asked(coarse, query, cutoffs=(k,)).estimates()
    rng, drawn = np.random.default_rng(0), []
    for _ in range(300):
        broken = coarse + rng.uniform(0, 0.5, coarse.shape).astype(np.float32)
        drawn.append({n: e.mean for n, e in asked(broken, query, cutoffs=(k,)).estimates().items()})
    for name, estimate in exact.items():
        values = np.array([one[name] for one in drawn])
        error = values.std() / np.sqrt(len(values))
        assert abs(estimate.mean - values.mean()) < 4 * error + 1e-9, name


def test_what_has_no_score_is_not_listed() -> None:
    """-inf, as if the catalogue were without it."""
    query, scores = make_query(), table()
    without = scores.copy()
    without[:, ::3] = -np.inf
    smaller = query.candidates.copy()
    smaller[::3] = False
    reduced = RankingQuery(query.users, query.histories, query.excluded, query.held_out, smaller)
    one, other = asked(without, query), asked(scores, reduced)
    for name, values in one.values.items():
        np.testing.assert_array_equal(values, other.values[name])


def test_errors_are_over_people() -> None:
    found = asked(table(), make_query())
    values = found.values["ndcg@10"]
    error = found.estimates()["ndcg@10"].error
    assert error == pytest.approx(values.std(ddof=1) / np.sqrt(USERS))


def test_scores_that_cannot_be_sorted_are_refused() -> None:
    query, wrong = make_query(), table()
    wrong[3, 4] = np.nan
    with pytest.raises(ModelError, match="not finite"):
        asked(wrong, query)
    with pytest.raises(ModelError, match=r"not \(70, 150\)"):
        score_rankings(lambda histories: np.zeros((histories.shape[0], 3)), query)


def test_the_table_that_was_given_stays_as_it_is() -> None:
    query, scores = make_query(), table()
    score_rankings(lambda histories: scores[: histories.shape[0]], query)
    np.testing.assert_array_equal(scores, table())
