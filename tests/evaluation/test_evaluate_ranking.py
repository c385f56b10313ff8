"""Ranking scores equal those of all predictions, sorted and counted by hand."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest
import torch
from tests.evaluation.test_ranking_metrics import by_hand
from tests.inference import implicit_cases
from tests.inference.cases import (
    ITEMS,
    NEW_USER,
    TIMELESS,
    UNTRAINED_USER,
    USERS,
    estimator,
    known_cells,
    make_kind,
    ratings,
)
from tests.support.raw_tables import raw_table

from cfnade import CFNADE, load
from cfnade.components.optimizers import member_network
from cfnade.data.dataset import Dataset, Interactions
from cfnade.data.load import LoadOptions
from cfnade.data.splits import split
from cfnade.data.synthetic import synthetic_interactions
from cfnade.data.validate import build
from cfnade.evaluation import evaluate
from cfnade.evaluation.evaluate import evaluate_ranking
from cfnade.evaluation.ranking_metrics import METRICS, ranked_hits
from cfnade.exceptions import PredictionError
from cfnade.fitted_model import FittedModel, count_training_ratings
from cfnade.implicit.repeats import Repeats
from cfnade.implicit.rows import InteractionRows
from cfnade.inference.predictor import Predictor

STRANGER, UNHEARD = USERS, ITEMS  # ids that the model does not have


def held_out(context: Dataset, *, texts: bool = False) -> Dataset:
    """Ratings of pairs outside the context, of an unknown user and of an unknown item."""
    rng = np.random.default_rng(8)
    known = set(known_cells(context))
    everyone = [(user, item) for user in range(USERS + 1) for item in range(ITEMS + 1)]
    cells = [cell for cell in everyone if cell not in known and rng.random() < 0.6]
    cells += [(0, UNHEARD)] * ((0, UNHEARD) not in cells)
    users, items = np.array(sorted(set(cells))).T
    values = rng.integers(1, 11, len(users)) / 2
    values[users == 2] = 1.0  # a person who likes nothing
    values[users == 0] = 4.5
    return build(
        raw_table(
            users=pl.Series([f"u{u}" for u in users]) if texts else users * 10,
            items=pl.Series([f"i{i:02d}" for i in items]) if texts else items + 100,
            ratings=values,
        ),
        LoadOptions(scale="0.5-5/0.5"),
    )


def liked_by(test: Dataset, least: float) -> dict[int, set[int]]:
    """Relevant items of each user, by index: user ids are 10 × index, or u and the index."""
    liked: dict[int, set[int]] = {}
    for user, item, value in zip(test.users, test.items, test.values, strict=True):
        if value >= least:
            name, thing = str(test.user_ids[user]), str(test.item_ids[item])
            number = int(name[1:]) if name[0] == "u" else int(name) // 10
            liked.setdefault(number, set()).add(
                int(thing[1:]) if thing[0] == "i" else int(thing) - 100
            )
    return liked


def listed(fitted: FittedModel, user: int) -> list[int]:
    """Items by expected rating, without those the user rated or that have too few ratings."""
    model, items = estimator(fitted), sorted(can_be_listed(fitted, user))
    predictions = [float(model.predict(user * 10, item + 100, unknown="mean")[0]) for item in items]
    return [item for _, item in sorted(zip(predictions, items, strict=True), reverse=True)]


def can_be_listed(fitted: FittedModel, user: int) -> set[int]:
    known = known_cells(fitted.context)
    least, counts = Predictor(fitted).default_min_ratings, Counter(item for _, item in known)
    return {i for i in range(ITEMS) if counts[i] >= least and (user, i) not in known}


@pytest.mark.parametrize("kind", TIMELESS)
def test_scores_equal_those_of_lists_sorted_by_hand(kind: str) -> None:
    fitted = make_kind(kind)
    test = held_out(fitted.context)
    result = evaluate_ranking(Predictor(fitted), test, k=(1, 3, 5, 40))
    liked = liked_by(test, 4.0)
    assert {0, UNTRAINED_USER, NEW_USER, STRANGER} <= set(liked)
    assert (result.n_users, result.n_skipped_users, result.threshold) == (
        len(liked),
        10 - len(liked),
        4.0,
    )
    lists = {user: listed(fitted, user) for user in liked}
    for k in (1, 3, 5, 40):
        each = [
            by_hand(tuple(item in liked[user] for item in lists[user]), len(liked[user]), k)
            for user in liked
        ]
        for name in each[0]:
            values = np.array([one[name] for one in each])
            assert result.by_k[k][name].mean == pytest.approx(values.mean()), (name, k)
            error = values.std(ddof=1) / math.sqrt(len(values))
            assert result.by_k[k][name].error == pytest.approx(error), (name, k)
        shown = {item for items in lists.values() for item in items[:k]}
        assert result.by_k[k]["coverage"].mean == pytest.approx(len(shown) / ITEMS)
        raters = Counter(item for _, item in known_cells(fitted.context))
        bits = [[math.log2(USERS / raters[i]) for i in items[:k]] for items in lists.values()]
        means = [np.mean(one or [0.0]) for one in bits]
        assert result.by_k[k]["novelty"].mean == pytest.approx(np.mean(means))


def test_text_ids_and_batches_give_the_same_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = evaluate_ranking(Predictor(make_kind("user")), held_out(ratings()), k=4, threshold=3)
    monkeypatch.setattr(evaluate, "_BATCH_SIZE", 10)  # two people at a time
    fitted = make_kind("user", data=ratings(texts=True))
    texts = evaluate_ranking(
        Predictor(fitted), held_out(fitted.context, texts=True), k=4, threshold=3
    )
    for name, estimate in numbers.by_k[4].items():
        assert texts.by_k[4][name].mean == pytest.approx(estimate.mean)
    assert texts.n_users == numbers.n_users


@pytest.mark.parametrize("k", [1, 3])
def test_equal_scores_of_all_items_are_averaged_over_orders(k: int) -> None:
    """Lists are extended to the end of a tie."""
    fitted = make_kind("user")
    fitted = replace(fitted, training_counts=count_training_ratings(fitted.axes, fitted.context))
    with torch.no_grad():
        for parameter in member_network(fitted.members[0]).parameters():
            parameter.zero_()
    test, expected = held_out(fitted.context), []
    # Users without ratings get item frequencies, which differ from item to item.
    known = np.bincount(fitted.context.users, minlength=test.n_users) > 0
    test = test.select(known[test.users])
    for user, liked in liked_by(test, 4.0).items():
        can = can_be_listed(fitted, user)
        expected.append(len(liked & can) / len(liked) * min(1, k / max(1, len(can))))
    result = evaluate_ranking(Predictor(fitted), test, k=k).by_k[k]["recall"]
    assert result.mean == pytest.approx(np.mean(expected))


def test_max_users_selects_a_fixed_subset() -> None:
    predictor = Predictor(make_kind("user"))
    test = held_out(predictor.fitted.context)
    few, again = (evaluate_ranking(predictor, test, k=3, max_users=4) for _ in range(2))
    assert few == again
    assert few.n_users == 4
    everyone = evaluate_ranking(predictor, test, k=3)
    assert evaluate_ranking(predictor, test, k=3, max_users=10**6) == everyone
    assert few.n_skipped_users == everyone.n_skipped_users
    one = evaluate_ranking(predictor, test, k=3, max_users=1)
    assert {estimate.error for estimate in one.by_k[3].values()} == {None}


def test_scores_are_plain_numbers_for_json() -> None:
    result = evaluate_ranking(Predictor(make_kind("user")), held_out(ratings()), k=[3, 2, 3])
    read = json.loads(json.dumps(result.as_dict()))
    assert list(read["by_k"]) == ["2", "3"]
    assert read["by_k"]["2"]["ndcg"]["mean"] == result.by_k[2]["ndcg"].mean


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"k": 0}, r"k \(=0\) must be a whole number of at least 1"),
    ({"k": ()}, r"k \(=\(\)\) must be a whole number, or several"),
    ({"k": "10"}, r"k \(='10'\) must be a whole number, or several"),
    ({"threshold": 6}, r"threshold \(=6\) must be a number in 0.5..5.0"),
    ({"threshold": math.nan}, r"threshold \(=nan\) must be"),
    ({"max_users": 0}, r"max_users \(=0\) must be a whole number of at least 1"),
]


@pytest.mark.parametrize(("given", "message"), WRONG)
def test_wrong_arguments_are_named(given: dict[str, Any], message: str) -> None:
    with pytest.raises(PredictionError, match=message):
        evaluate_ranking(Predictor(make_kind("user")), held_out(ratings()), **given)


def test_a_test_without_relevant_items_is_an_error() -> None:
    test = held_out(ratings())
    low = test.select(test.values < 4)
    with pytest.raises(PredictionError, match=r"threshold \(=4\): no test rating is that high"):
        evaluate_ranking(Predictor(make_kind("user")), low)


def test_test_ratings_in_the_context_are_an_error() -> None:
    with pytest.raises(PredictionError, match="are among the ratings that the model conditions on"):
        evaluate_ranking(Predictor(make_kind("user")), ratings())


def test_repeats_are_ranked_and_scored_on_request() -> None:
    """The test holds what users took up already, beside new items."""
    fitted = implicit_cases.picked_model(weighed=True)
    assert fitted.interaction_model is not None
    model = replace(fitted.interaction_model, repeats=Repeats(0.4, 3.0))
    fitted = replace(fitted, interaction_model=model)
    rng, N, M = np.random.default_rng(3), implicit_cases.USERS, implicit_cases.ITEMS
    relevant = rng.random((N, M)) < 0.15
    test = fitted.context.select(np.empty(0, np.int64))
    users, items = np.nonzero(relevant)
    test = Interactions(
        users=users.astype(np.int32),
        items=items.astype(np.int32),
        user_ids=test.user_ids,
        item_ids=test.item_ids,
    )
    with pytest.raises(PredictionError, match=r"rank repeats too with exclude_seen=False"):
        evaluate_ranking(Predictor(fitted), test, k=5)
    result = evaluate_ranking(Predictor(fitted), test, k=5, exclude_seen=False)
    rows = InteractionRows.from_ratings(fitted.context)
    new = model.log_probabilities(rows)
    events = np.bincount(rows.rows, rows.weights, minlength=N)
    expected = []
    for user in np.flatnonzero(relevant.any(1)):
        chances = np.exp(new[user].astype(np.float64))
        own = slice(rows.indptr[user], rows.indptr[user + 1])
        rate = model.repeats.rates(rows)[user]
        chances *= 1 - rate
        if events[user]:
            chances[rows.columns[own]] = rate * rows.weights[own] / events[user]
        best = sorted(range(M), key=lambda i: -chances[i])[:5]
        found = sum(1 / math.log2(2 + rank) for rank, i in enumerate(best) if relevant[user, i])
        most = min(5, int(relevant[user].sum()))
        expected.append(found / sum(1 / math.log2(2 + rank) for rank in range(most)))
    assert result.by_k[5]["ndcg"].mean == pytest.approx(np.mean(expected), rel=1e-6)


def test_a_model_that_cannot_rank_is_an_error() -> None:
    with pytest.raises(PredictionError, match="makes no lists"):
        evaluate_ranking(Predictor(make_kind("both-time")), held_out(ratings()))


def test_the_estimator_scores_its_lists() -> None:
    rng = np.random.default_rng(0)
    cells = rng.permutation(30 * 20)
    table = {"user": cells // 20, "item": cells % 20, "rating": rng.integers(1, 6, 600)}
    train = {name: column[:300] for name, column in table.items()}
    test = {name: column[300:] for name, column in table.items()}
    model = CFNADE(side="user", hidden=(3,), epochs=1).fit(train)
    result = model.evaluate_ranking(test, k=5, threshold=5)
    assert result.threshold == 5
    assert 0 < result.by_k[5]["ndcg"].mean < 1


def test_lists_of_interactions_are_scored_as_they_are_listed() -> None:
    made = synthetic_interactions(80, 25, 7, seed=0)
    parts = split(made.interactions, "paper:0")
    model = CFNADE(n_threads=1).fit(parts)
    result = model.evaluate_ranking(parts.test, k=5)
    interactions, context = model.fitted_.interaction_model, model.fitted_.context
    assert interactions is not None
    values = []
    for user in np.unique(parts.test.users):
        known = InteractionRows.from_ratings(context).select(np.array([user]))
        scores = interactions.scores(known)[0]
        scores[known.columns] = -np.inf
        right = set(parts.test.items[parts.test.users == user].tolist())
        gains = [1 / np.log2(2 + at) for at in range(5)]
        listed = np.argsort(-scores, kind="stable")[:5]
        gain = sum(g for g, item in zip(gains, listed.tolist(), strict=True) if item in right)
        values.append(gain / sum(gains[: len(right)]))
    assert result.by_k[5]["ndcg"].mean == pytest.approx(np.mean(values), rel=1e-6)
    assert result.n_users == len(values)


# -- figures of a prototype -----------------------------------------------------------------------


@pytest.mark.realdata
def test_ease_under_liangs_protocol_reproduces_a_prototype(real_data: Path) -> None:
    """ML-1M, 600 people: NDCG@100 .4263, R@20 .3564, R@50 .4787 with a script of its own."""
    parts = split(load(real_data / "ml-1m.zip"), "liang:600")

    def table(part: Dataset) -> npt.NDArray[np.float32]:
        out = np.zeros((part.n_users, part.n_items), np.float32)
        likes = part.select(part.values >= 4)
        out[likes.users, likes.items] = 1.0
        return out

    train, given, answers = (table(part) for part in (parts.train, parts.fold_in, parts.test))
    people, catalog = np.flatnonzero(answers.sum(1)), np.flatnonzero(train.sum(0))
    train = train[:, catalog]
    given, answers = (of[np.ix_(people, catalog)] for of in (given, answers))
    inverse = np.linalg.inv(train.T @ train + 500 * np.eye(len(catalog), dtype=np.float32))
    weights = -inverse / np.diag(inverse) * (1 - np.eye(len(catalog)))
    scores = np.where(given > 0, np.nan, given @ weights)
    order = np.argsort(-scores, 1)  # NaN last
    liked = np.take_along_axis(answers > 0, order, 1)
    at, count = ranked_hits(np.take_along_axis(scores, order, 1), liked), liked.sum(1)
    assert len(people) == 600
    for name, k, expected in [
        ("ndcg", 100, 0.4263),
        ("capped_recall", 20, 0.3564),
        ("capped_recall", 50, 0.4787),
    ]:
        assert METRICS[name](at, count, k).mean() == pytest.approx(expected, abs=6e-5)
