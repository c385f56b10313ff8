"""Lists by interactions: against brute force over all items; options, filters and diversity."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from tests.implicit.cases import summed_scores
from tests.inference.cases import estimator, make, top_n_of
from tests.inference.implicit_cases import (
    GENRES,
    ITEMS,
    USERS,
    chances_of,
    data,
    first_of,
    picked_model,
    rated_model,
)
from tests.inference.test_top_n import assert_same
from tests.support.close import assert_close

from cfnade.estimator import CFNADE
from cfnade.exceptions import PredictionError
from cfnade.implicit import InteractionModel, InteractionRows, Popularity
from cfnade.implicit.popularity import PopularityConfig
from cfnade.inference import top_n
from cfnade.inference.histories import UserHistory, user_entities
from cfnade.inference.similarity import diversify
from cfnade.kernels.threads import torch_threads

BALANCES = [0, 0.25, 0.5, 0.75, 1]
FITTED = {"rated": rated_model(), "both": rated_model("both"), "picked": picked_model()}
FITTED["weighed"] = picked_model(weighed=True)
MODELS = {name: estimator(fitted) for name, fitted in FITTED.items()}


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few candidates at first, so that lists need further ones."""
    monkeypatch.setattr(top_n, "_MIN_CANDIDATES", 1)


@cache
def all_probabilities(which: str, user: int, left_out: bool) -> Any:
    return chances_of(FITTED[which], user, left_out=left_out)


@cache
def all_distributions(which: str, user: int) -> Any:
    """The distribution of every item, (M, K)."""
    return MODELS[which].predict_proba(user + 1, np.arange(1, ITEMS + 1))


def seen(user: int) -> Any:
    mask = np.zeros(ITEMS, bool)
    mask[data().items[data().users == user]] = True
    return mask


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("exclude_seen", [True, False])
@pytest.mark.parametrize("n", [1, 5, ITEMS + 9])
@pytest.mark.parametrize("balance", BALANCES)
def test_lists_are_those_of_all_items(balance: float, n: int, exclude_seen: bool) -> None:
    check_lists("rated", balance, n, exclude_seen)


@pytest.mark.usefixtures("few")
def test_lists_of_a_joint_model_are_those_of_all_items() -> None:
    check_lists("both", 0.5, 5, exclude_seen=True)


def check_lists(which: str, balance: float, n: int, exclude_seen: bool) -> None:
    """p^a q^b: a falls from 1 in the second half of balances, b rises to 1 in the first."""
    model = MODELS[which]
    odd = np.arange(ITEMS) % 2 == 1
    how: dict[str, Any] = {"balance": balance, "threshold": 4, "min_ratings": 0}
    only = (model.predictor_.items.table[odd].tolist(), [2, 4])
    for filters in ({}, {"candidate_items": only[0], "exclude_items": only[1]}):
        allowed = odd.copy() if filters else np.ones(ITEMS, bool)
        allowed[[1, 3]] &= not filters  # the items of ids 2 and 4
        frame = model.recommend(
            [*range(1, USERS + 1)], n=n, exclude_seen=exclude_seen, **how, **filters
        )
        for user in range(USERS):
            mine = frame.filter(frame["user"] == user + 1)
            chances = all_probabilities(which, user, exclude_seen)
            liked = all_distributions(which, user)[:, 3:].sum(1)
            scores = chances ** min(1, 2 - 2 * balance) * liked ** min(1, 2 * balance)
            left = allowed & ~seen(user) if exclude_seen else allowed
            best = first_of(scores, left, n)
            assert len(mine) == len(best)
            np.testing.assert_allclose(mine["score"], scores[best], rtol=2e-4)
            listed = mine["item"].to_numpy() - 1
            np.testing.assert_allclose(scores[listed], scores[best], rtol=2e-4)
            assert left[listed].all()
            assert len(set(listed)) == len(listed)
            np.testing.assert_allclose(mine["interaction_probability"], chances[listed], rtol=2e-4)
            probabilities = all_distributions(which, user)[listed]
            np.testing.assert_allclose(mine.select(r"^p_.*$").to_numpy(), probabilities, atol=1e-5)


@pytest.mark.parametrize("which", ["picked", "weighed"])
@pytest.mark.parametrize("n", [1, 5, ITEMS + 9])
@pytest.mark.parametrize("exclude_seen", [True, False])
def test_lists_without_ratings_are_those_of_all_items(
    which: str, n: int, exclude_seen: bool
) -> None:
    model = MODELS[which]
    frame = model.recommend([*range(1, USERS + 1)], n=n, exclude_seen=exclude_seen)
    assert not {"prediction", "std", "p_1"} & set(frame.columns)
    for user in range(USERS):
        mine = frame.filter(frame["user"] == user + 1)
        chances = all_probabilities(which, user, exclude_seen)
        best = first_of(chances, ~seen(user) if exclude_seen else np.ones(ITEMS, bool), n)
        np.testing.assert_allclose(mine["score"], chances[best], rtol=2e-4)
        np.testing.assert_allclose(mine["interaction_probability"], mine["score"])


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("balance", [None, 0.25, 0.5, 0.75])
@pytest.mark.parametrize("penalty", [0.3, 0.7])
def test_a_popularity_penalty_divides_by_the_base_probability(
    penalty: float, balance: float | None
) -> None:
    """By brute force: the order is that of p(i | user) / p(i)^penalty, and of liking."""
    which = "picked" if balance is None else "both"
    model = MODELS[which]
    how: dict[str, Any] = {} if balance is None else {"balance": balance}
    interactions = FITTED[which].interaction_model
    assert interactions is not None
    base = np.exp(interactions.base_log_probabilities.astype(np.float64))
    for user in (3, 4):
        mine = model.recommend([user + 1], n=6, popularity_penalty=penalty, **how)
        own = all_probabilities(which, user, True) / base**penalty
        if balance is not None:
            liked = model.recommend([user + 1], n=ITEMS, balance=1, min_ratings=0).sort("item")
            chance = np.ones(ITEMS)
            chance[liked["item"].to_numpy() - 1] = liked["score"].to_numpy()
            own = own ** min(1, 2 - 2 * balance) * chance ** min(1, 2 * balance)
        best = first_of(own, ~seen(user), 6)
        items = mine["item"].to_numpy() - 1
        np.testing.assert_allclose(own[items], own[best], rtol=2e-4)  # some are equal
        np.testing.assert_allclose(mine["score"], own[items], rtol=2e-4)
        np.testing.assert_allclose(
            mine["interaction_probability"], all_probabilities(which, user, True)[items], rtol=2e-4
        )


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize(("listed", "threads"), [(1 << 21, 2), (200, 3), (1, 1)])
@pytest.mark.parametrize(
    "how",
    [
        {},
        {"balance": 0.0},
        {"exclude_seen": False},
        {"diversity": 0.4},
        {"popularity_penalty": 0.5},
    ],
)
@pytest.mark.parametrize("which", ["rated", "weighed"])
def test_many_get_the_lists_of_each(
    which: str, how: dict[str, Any], listed: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(top_n, "MAX_SCORES", listed)
    model = MODELS[which]
    if which == "weighed":
        how = {name: value for name, value in how.items() if name != "balance"}
    users = [*range(1, USERS + 1), 999, 3]
    with torch_threads(threads):
        many = model.recommend(users, n=4, **how)
    assert_same(many, [model.recommend([user], n=4, **how) for user in users])


def test_a_history_gets_the_list_of_a_user_with_the_same_items() -> None:
    model, ratings = MODELS["picked"], FITTED["picked"].context
    own = (1 + ratings.items[ratings.users == 4]).tolist()
    user = model.recommend([5], n=7).drop("user")
    for history in (own, dict.fromkeys(own, 1), [(item, 1.0) for item in own]):
        assert_close(model.recommend(history=history, n=7), user)


@pytest.mark.parametrize("replaced", [True, False], ids=["replaced", "left out"])
def test_a_stored_user_with_another_history_keeps_the_weights_of_the_same_items(
    replaced: bool,
) -> None:
    """Weights belong to items: one that the context lacks weighs 1, one that is missing nothing."""
    model, fitted = MODELS["weighed"], FITTED["weighed"]
    assert fitted.interaction_model is not None
    user, context = 1, fitted.context
    stored = InteractionRows.from_ratings(context).select(np.array([user]))
    weight = dict(zip(stored.columns.tolist(), stored.weights.tolist(), strict=True))
    items = [int(item) for item in stored.columns[1:]]
    if replaced:
        items.append(next(i for i in range(ITEMS) if i not in weight))
    items = items[::-1]
    person = UserHistory(np.array(items, np.int32), np.zeros(len(items), np.uint8), (), user)
    frame = model.recommend(history=person, n=ITEMS)
    weights = np.array([weight.get(item, 1.0) for item in items], np.float32)
    known = InteractionRows.from_rows(user_entities([person], context).rows).with_weights(weights)
    odds = summed_scores(fitted.interaction_model, known)[0]
    chances = np.exp(odds - odds.max())
    chances[items] = 0.0
    chances /= chances.sum()
    assert frame.height == ITEMS - len(items)
    np.testing.assert_allclose(frame["score"], chances[frame["item"].to_numpy() - 1], rtol=2e-4)


def test_equal_items_are_listed_by_id() -> None:
    fitted = FITTED["rated"]
    assert fitted.interaction_model is not None

    logs = {"logs": np.zeros(ITEMS, np.float32)}
    equal = Popularity(PopularityConfig(columns=ITEMS), logs)
    same = InteractionModel({"popularity": equal}, {"popularity": 1.0})
    frame = estimator(replace(fitted, interaction_model=same)).recommend([2, 5, 7], n=9, balance=0)
    for _, own in frame.group_by("user"):
        assert own["item"].is_sorted()
        assert own["score"].n_unique() == 1


def test_lists_by_ratings_do_not_use_interactions() -> None:
    fitted = FITTED["rated"]
    broken = replace(fitted.interaction_model, weights={})  # type: ignore[type-var]
    model = estimator(replace(fitted, interaction_model=broken))
    frame = model.recommend([3], rank_by="prediction")
    assert "interaction_probability" not in frame.columns
    assert top_n_of(model, 3, rank_by="threshold").interaction_probabilities is None
    bare = estimator(replace(fitted, interaction_model=None)).recommend([3], rank_by="prediction")
    assert_close(frame, bare)


def test_interaction_probabilities_do_not_depend_on_the_balance() -> None:
    model = MODELS["rated"]
    for exclude_seen in (True, False):
        found = {}
        for balance in (0.0, 1.0, 0.2):
            frame = model.recommend(
                [3],
                n=ITEMS,
                exclude_seen=exclude_seen,
                min_ratings=0,
                balance=balance,
            )
            found[balance] = frame.sort("item")["interaction_probability"].to_numpy()
        first, *others = found.values()
        for other in others:
            np.testing.assert_allclose(other, first, rtol=1e-5)


@pytest.mark.parametrize("which", list(FITTED))
def test_cached_scores_give_the_same_lists(which: str) -> None:
    asked = estimator(FITTED[which])
    others: list[dict[str, Any]] = [{"balance": 0.2}, {"balance": 1.0}, {"rank_by": "prediction"}]
    hows: list[dict[str, Any]] = [
        {},
        {"genres": "Drama"},
        {"exclude_seen": False},
        {"candidate_items": range(1, 30)},
    ]
    for how in [*hows, *(others if FITTED[which].members else []), {}]:
        for user in (3, 5, 3):
            fresh = estimator(FITTED[which]).recommend([user], n=6, **how)
            assert_close(asked.recommend([user], n=6, **how), fresh)


def test_a_user_who_knows_all_items_has_an_empty_list() -> None:
    for model in MODELS.values():
        assert model.recommend([USERS], n=3).height == 0
        assert model.recommend([USERS], n=3, diversity=0.5).height == 0
        assert model.recommend([USERS], n=3, exclude_seen=False).height == 3


# -- options ---------------------------------------------------------------------------------------

RATED, PICKED = MODELS["rated"], MODELS["picked"]
BARE = estimator(make("user", data=data()))
"""A model that has not learned interactions."""


def genres_of(item: int) -> set[str]:
    return set(GENRES[item % len(GENRES)].casefold().split("|"))


@pytest.mark.parametrize("model", [RATED, PICKED])
@pytest.mark.parametrize("genres", ["drama", ["Comedy", "FILM-NOIR"], ("Drama",), {"Comedy"}])
def test_items_have_one_of_the_genres(model: CFNADE, genres: Any) -> None:
    frame = model.recommend([1], n=ITEMS, genres=genres)
    wanted = {genres.casefold()} if isinstance(genres, str) else {g.casefold() for g in genres}
    assert set(frame["item"]) == {i + 1 for i in range(ITEMS) if genres_of(i) & wanted}
    assert list(model.predictor_.genres) == ["Comedy", "Drama", "Film-Noir"]


def test_filters_are_combined() -> None:
    filters: dict[str, Any] = {
        "candidate_items": range(1, 31),
        "exclude_items": [3, 4],
        "genres": "Comedy",
    }
    frame = RATED.recommend([1], n=ITEMS, **filters)
    comedies = {i + 1 for i in range(ITEMS) if "comedy" in genres_of(i)}
    assert set(frame["item"].to_list()) == comedies & set(range(1, 31)) - {3, 4}
    assert RATED.recommend([1], candidate_items=[]).height == 0
    assert RATED.recommend([1], candidate_items=[], diversity=0.5).height == 0


def test_min_ratings_is_0_by_default_and_can_be_set() -> None:
    counts = np.bincount(data().items, minlength=ITEMS)
    few = int(np.median(counts))
    frame = RATED.recommend([1], n=ITEMS, min_ratings=few)
    assert set(frame["item"].to_list()) == set((1 + np.flatnonzero(counts >= few)).tolist())
    assert frame["n_hidden_items"].unique().to_list() == [int((counts < few).sum())]
    assert RATED.recommend([1], n=ITEMS)["n_hidden_items"].max() == 0


def test_the_default_criterion_depends_on_the_model() -> None:
    assert_close(RATED.recommend([3]), RATED.recommend([3], rank_by="interaction", balance=0.5))
    assert_close(BARE.recommend([3]), BARE.recommend([3], rank_by="prediction"))
    assert "interaction_probability" not in BARE.recommend([3]).columns


REFUSED: list[tuple[CFNADE, dict[str, Any], str]] = [
    (BARE, {"rank_by": "interaction"}, r"not learned interactions; .*learn_interactions=True"),
    (BARE, {"balance": 0.5}, r"balance \(=0.5\) needs rank_by=\"interaction\""),
    (RATED, {"balance": 0.5, "rank_by": "prediction"}, r"balance \(=0.5\) needs rank_by="),
    (RATED, {"balance": 1.5}, r"balance \(=1.5\)"),
    (RATED, {"balance": "sweet"}, r"balance \(='sweet'\)"),
    (RATED, {"threshold": 4, "rank_by": "prediction"}, r"threshold \(=4.0\) needs rank_by="),
    (RATED, {"threshold": 9}, r"threshold \(=9.0\) must be above 1"),
    (RATED, {"personalization": 2}, r"personalization \(=2.0\) needs rank_by=\"prediction\""),
    (RATED, {"diversity": -0.1}, r"diversity \(=-0.1\)"),
    (RATED, {"popularity_penalty": 1.1}, r"popularity_penalty \(=1.1\)"),
    (RATED, {"popularity_penalty": 0.1, "rank_by": "prediction"}, "popularity_penalty .* needs"),
    (RATED, {"popularity_penalty": 0.1, "balance": 1}, "needs a balance below 1"),
    (RATED, {"candidate_items": 5}, r"candidate_items \(=5\) must be a list of items"),
    (RATED, {"exclude_items": "Film 3"}, r"exclude_items \(='Film 3'\) must be a list of items"),
    (RATED, {"candidate_items": [1, 777, 778]}, r"unknown to the model: 777, 778;"),
    (PICKED, {"exclude_items": [777]}, r"exclude_items contains items that are unknown.*: 777;"),
    (RATED, {"exclude_items": np.arange(900, 907)}, r"unknown.*: 900, 901, 902, 903, 904, …;"),
    (RATED, {"genres": ["Drama", "Western"]}, r"genres: unknown genre 'Western'; the data have"),
    (RATED, {"genres": [3]}, r"genres: unknown genre 3"),
    (RATED, {"genres": 3}, r"genres \(=3\) must be some of Comedy"),
    (RATED, {"genres": []}, r"genres \(=\[\]\) must be some of Comedy"),
    (PICKED, {"balance": 0.5}, r"balance \(=0.5\) concerns ratings"),
    (PICKED, {"threshold": 4}, r"threshold \(=4.0\) concerns ratings"),
    (PICKED, {"rank_by": "prediction"}, r"predicts no ratings"),
]


@pytest.mark.parametrize(("model", "options", "message"), REFUSED)
def test_options_that_do_not_fit_are_refused(
    model: CFNADE, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(PredictionError, match=message):
        model.recommend([1], **options)


def test_genres_need_genres_in_the_data() -> None:
    bare = estimator(replace(PICKED.fitted_, context=data(implicit=True).replace(genres=None)))
    with pytest.raises(PredictionError, match="have no genres; leave it out"):
        bare.recommend([1], genres="Drama")


def test_a_model_without_ratings_predicts_none() -> None:
    predictor = PICKED.predictor_
    for ask in (
        lambda: PICKED.predict([1], [2]),
        lambda: PICKED.predict("me", [2], histories={"me": [1]}),
        lambda: predictor.predict_items(predictor.resolve_user(2), np.array([1])),
        lambda: PICKED.explain(user=2, item=3, target="rating"),
    ):
        with pytest.raises(PredictionError, match="so it predicts no ratings"):
            ask()
    with pytest.raises(PredictionError, match="a history is a list of items"):
        PICKED.recommend(history=5)  # type: ignore[arg-type]
    with pytest.raises(PredictionError, match="more than once"):
        PICKED.recommend(history=[3, 3])


# -- diversity -------------------------------------------------------------------------------------


def select_greedily(items: Any, relevance: Any, n: int, vectors: Any, weight: float) -> list[int]:
    """Maximal marginal relevance by brute force."""
    selected: list[int] = []
    low, high = min(relevance), max(relevance)
    while len(selected) < min(n, len(items)):
        values = {}
        for i in range(len(items)):
            if i not in selected:
                scaled = (relevance[i] - low) / (high - low) if high > low else 1.0
                similarities = [float(vectors[items[i]] @ vectors[items[j]]) for j in selected]
                values[i] = (1 - weight) * scaled - weight * max([0.0, *similarities])
        selected.append(max(values, key=lambda i: (values[i], -i)))
    return selected


@pytest.mark.parametrize("weight", [0.05, 0.3, 0.7, 1.0])
@pytest.mark.parametrize("lengths", [[20, 3, 12], [], [0, 4, 0]])
def test_diverse_items_are_selected_one_by_one(weight: float, lengths: list[int]) -> None:
    rng = np.random.default_rng(1)
    vectors = rng.standard_normal((40, 3)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    user = np.repeat(np.arange(len(lengths)), lengths)
    items = np.concatenate([np.empty(0, np.int64), *(rng.permutation(40)[:n] for n in lengths)])
    relevance = -np.sort(-rng.uniform(-3, 1, len(items)))
    expected: list[int] = []
    for number in range(len(lengths)):
        rows = np.flatnonzero(user == number)
        if len(rows):
            places = select_greedily(items[rows], relevance[rows], 5, vectors, weight)
            expected += rows[places].tolist()
    items = items.astype(np.int64)
    assert diversify(user, items, relevance, 5, vectors, weight).tolist() == expected


def mean_similarity(model: CFNADE, items: Any) -> float:
    vectors = model.predictor_.item_vectors
    similarities = vectors[items] @ vectors[items].T
    return float((similarities.sum() - len(items)) / (len(items) * (len(items) - 1)))


@pytest.mark.parametrize(
    "options", [{}, {"rank_by": "prediction"}, {"rank_by": "threshold", "threshold": 4}]
)
def test_diverse_lists_are_selected_from_longer_ones(options: dict[str, Any]) -> None:
    plain, diverse = (
        RATED.recommend([3, 4], n=6, diversity=diversity, min_ratings=0, **options)
        for diversity in (0.0, 0.8)
    )
    longer = RATED.recommend([3, 4], n=6 * top_n._EXTENSION, min_ratings=0, **options)
    for user in (3, 4):
        lists = [frame.filter(frame["user"] == user) for frame in (plain, diverse, longer)]
        items = [frame["item"].to_numpy() - 1 for frame in lists]
        assert items[0][0] == items[1][0]
        assert set(items[1]) <= set(items[2])
        assert mean_similarity(RATED, items[1]) < mean_similarity(RATED, items[0])
        scores = dict(zip(items[2].tolist(), lists[2]["score"].to_list(), strict=True))
        assert lists[1]["score"].to_list() == pytest.approx([scores[i] for i in items[1].tolist()])
