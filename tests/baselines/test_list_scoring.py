"""Figures of lists are those of a full sort, and of another library."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tests.baselines.listing import likes_of, table_of

from cfnade.exceptions import ModelError
from cfnade_baselines.listers import list_scoring
from cfnade_baselines.listers.likes import Likes
from cfnade_baselines.listers.list_questions import ListQuestion
from cfnade_baselines.listers.list_scoring import PersonScores, score_lists

PEOPLE, ITEMS = 70, 150
Table = npt.NDArray[np.float32]


def question(seed: int = 0) -> ListQuestion:
    rng = np.random.default_rng(seed)
    known = rng.random((PEOPLE, ITEMS)) < 0.1
    answers = (rng.random((PEOPLE, ITEMS)) < rng.uniform(0.01, 0.4, (PEOPLE, 1))) & ~known
    answers[np.arange(PEOPLE), (~known).argmax(1)] = True
    given = known & (rng.random(known.shape) < 0.5)  # not all that is known is said
    catalogue = rng.random(ITEMS) < 0.9
    users = np.arange(1000, 1000 + PEOPLE)
    return ListQuestion(users, likes_of(given), likes_of(known), likes_of(answers), catalogue)


def table(seed: int = 5) -> Table:
    return np.random.default_rng(seed).normal(size=(PEOPLE, ITEMS)).astype(np.float32)


def asked(scores: Table, of: ListQuestion, **more: Any) -> PersonScores:
    """Scores by person, whoever is asked about first."""
    rows = {bytes(row): i for i, row in enumerate(table_of(of.given))}
    assert len(rows) == PEOPLE

    def answer(given: Likes) -> Table:
        return scores[[rows[bytes(row)] for row in table_of(given)]]

    return score_lists(answer, of, **more)


def full_sort(scores: Table, of: ListQuestion, person: int) -> list[bool]:
    """Whether each item that can be listed was liked, best first."""
    known, liked = table_of(of.known)[person] > 0, table_of(of.answers)[person] > 0
    items = [i for i in range(ITEMS) if of.catalogue[i] and not known[i]]
    items.sort(key=lambda i: -scores[person, i])
    return [bool(liked[i]) for i in items]


@pytest.mark.parametrize("cells", [1, 1000, 1 << 21])
def test_figures_are_those_of_a_full_sort(cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many people are asked about at a time."""
    monkeypatch.setattr(list_scoring, "_CELLS", cells)
    of, scores = question(), table()
    found = asked(scores, of, ks=(1, 5, 20, 140, 400))
    assert found.users is of.users
    for person in range(PEOPLE):
        hits, wanted = full_sort(scores, of, person), int(of.answers.counts()[person])
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
    of, scores = question(1), table(6)
    found = asked(scores, of)
    known, liked = table_of(of.known) > 0, table_of(of.answers) > 0
    for person in range(0, PEOPLE, 7):
        items = np.flatnonzero(of.catalogue & ~known[person])
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
    of = question(2)
    coarse = np.round(table(7)).astype(np.float32)
    exact = asked(coarse, of, ks=(k,)).estimates()
    rng, drawn = np.random.default_rng(0), []
    for _ in range(300):
        broken = coarse + rng.uniform(0, 0.5, coarse.shape).astype(np.float32)
        drawn.append({n: e.mean for n, e in asked(broken, of, ks=(k,)).estimates().items()})
    for name, estimate in exact.items():
        values = np.array([one[name] for one in drawn])
        error = values.std() / np.sqrt(len(values))
        assert abs(estimate.mean - values.mean()) < 4 * error + 1e-9, name


def test_what_has_no_score_is_not_listed() -> None:
    """-inf, as if the catalogue were without it."""
    of, scores = question(), table()
    without = scores.copy()
    without[:, ::3] = -np.inf
    smaller = of.catalogue.copy()
    smaller[::3] = False
    reduced = ListQuestion(of.users, of.given, of.known, of.answers, smaller)
    one, other = asked(without, of), asked(scores, reduced)
    for name, values in one.values.items():
        np.testing.assert_array_equal(values, other.values[name])


def test_errors_are_over_people() -> None:
    found = asked(table(), question())
    values = found.values["ndcg@10"]
    error = found.estimates()["ndcg@10"].error
    assert error == pytest.approx(values.std(ddof=1) / np.sqrt(PEOPLE))


def test_scores_that_cannot_be_sorted_are_refused() -> None:
    of, wrong = question(), table()
    wrong[3, 4] = np.nan
    with pytest.raises(ModelError, match="not finite"):
        asked(wrong, of)
    with pytest.raises(ModelError, match=r"must have \(70, 150\)"):
        score_lists(lambda given: np.zeros((len(given), 3)), of)


def test_the_table_that_was_given_stays_as_it_is() -> None:
    of, scores = question(), table()
    score_lists(lambda given: scores[: len(given)], of)
    np.testing.assert_array_equal(scores, table())
