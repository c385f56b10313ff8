"""Lists by what is picked and liked, against brute force over all items."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from tests.close import assert_close
from tests.implicit.cases import summed_scores
from tests.inference.implicit_cases import (
    ITEMS,
    USERS,
    chances_of,
    data,
    first_of,
    picked_model,
    rated_model,
)
from tests.inference.test_top_n import assert_same

from cfnade.implicit import InteractionModel, InteractionRows, Popularity
from cfnade.implicit.popularity import PopularityConfig
from cfnade.inference import top_n
from cfnade.inference.histories import UserHistory, user_entities
from cfnade.inference.predictor import Predictor
from cfnade.kernels.threads import torch_threads

TASTES = [0, 0.25, 0.5, 0.75, 1]
FITTED = {"rated": rated_model(), "both": rated_model("both"), "picked": picked_model()}
FITTED["weighed"] = picked_model(weighed=True)
PREDICTORS = {name: Predictor(fitted) for name, fitted in FITTED.items()}


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Candidates are widened from 4 on, so that every widening is met."""
    monkeypatch.setattr(top_n, "_FEWEST", 1)


@cache
def all_chances(which: str, user: int, left_out: bool) -> Any:
    return chances_of(FITTED[which], user, left_out=left_out)


@cache
def all_said(which: str, user: int) -> Any:
    """The distribution of every item, a known one from the others. Returns (M, K)."""
    return PREDICTORS[which].predict_proba(user + 1, np.arange(1, ITEMS + 1))


def seen(user: int) -> Any:
    mask = np.zeros(ITEMS, bool)
    mask[data().items[data().users == user]] = True
    return mask


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("exclude_seen", [True, False])
@pytest.mark.parametrize("n", [1, 5, ITEMS + 9])
@pytest.mark.parametrize("balance", TASTES)
def test_lists_are_those_of_all_items(balance: float, n: int, exclude_seen: bool) -> None:
    check_lists("rated", balance, n, exclude_seen)


@pytest.mark.usefixtures("few")
def test_lists_of_a_model_of_both_sides_are_those_of_all_items() -> None:
    check_lists("both", 0.5, 5, exclude_seen=True)


def check_lists(which: str, balance: float, n: int, exclude_seen: bool) -> None:
    """p^a q^b: a falls from 1 in the second half of balances, b rises to 1 in the first."""
    predictor = PREDICTORS[which]
    odd = np.arange(ITEMS) % 2 == 1
    how: dict[str, Any] = {"balance": balance, "threshold": 4, "min_ratings": 0}
    only = (predictor.items.table[odd].tolist(), [2, 4])
    for filters in ({}, {"candidate_items": only[0], "exclude_items": only[1]}):
        allowed = odd.copy() if filters else np.ones(ITEMS, bool)
        allowed[[1, 3]] &= not filters  # the items of ids 2 and 4
        frame = predictor.recommend(
            [*range(1, USERS + 1)], n=n, exclude_seen=exclude_seen, **how, **filters
        )
        for user in range(USERS):
            mine = frame.filter(frame["user"] == user + 1)
            chances = all_chances(which, user, exclude_seen)
            liked = all_said(which, user)[:, 3:].sum(1)
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
            probabilities = all_said(which, user)[listed]
            np.testing.assert_allclose(mine.select(r"^p_.*$").to_numpy(), probabilities, atol=1e-5)


@pytest.mark.parametrize("which", ["picked", "weighed"])
@pytest.mark.parametrize("n", [1, 5, ITEMS + 9])
@pytest.mark.parametrize("exclude_seen", [True, False])
def test_lists_without_ratings_are_those_of_all_items(
    which: str, n: int, exclude_seen: bool
) -> None:
    predictor = PREDICTORS[which]
    frame = predictor.recommend([*range(1, USERS + 1)], n=n, exclude_seen=exclude_seen)
    assert not {"prediction", "std", "p_1"} & set(frame.columns)
    for user in range(USERS):
        mine = frame.filter(frame["user"] == user + 1)
        chances = all_chances(which, user, exclude_seen)
        best = first_of(chances, ~seen(user) if exclude_seen else np.ones(ITEMS, bool), n)
        np.testing.assert_allclose(mine["score"], chances[best], rtol=2e-4)
        np.testing.assert_allclose(mine["interaction_probability"], mine["score"])


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("balance", [None, 0.25, 0.5, 0.75])
@pytest.mark.parametrize("penalty", [0.3, 0.7])
def test_a_popularity_penalty_divides_by_what_is_popular_with_everyone(
    penalty: float, balance: float | None
) -> None:
    """By brute force: the order is that of p(i | user) / p(i)^penalty, and of liking."""
    which = "picked" if balance is None else "both"
    predictor = PREDICTORS[which]
    how: dict[str, Any] = {} if balance is None else {"balance": balance}
    model = FITTED[which].interaction_model
    assert model is not None
    everyone = np.exp(model.base_log_probabilities.astype(np.float64))
    for user in (3, 4):
        mine = predictor.recommend([user + 1], n=6, popularity_penalty=penalty, **how)
        own = all_chances(which, user, True) / everyone**penalty
        if balance is not None:
            liked = predictor.recommend([user + 1], n=ITEMS, balance=1, min_ratings=0).sort("item")
            chance = np.ones(ITEMS)
            chance[liked["item"].to_numpy() - 1] = liked["score"].to_numpy()
            own = own ** min(1, 2 - 2 * balance) * chance ** min(1, 2 * balance)
        best = first_of(own, ~seen(user), 6)
        items = mine["item"].to_numpy() - 1
        np.testing.assert_allclose(own[items], own[best], rtol=2e-4)  # some are equal
        np.testing.assert_allclose(mine["score"], own[items], rtol=2e-4)
        np.testing.assert_allclose(
            mine["interaction_probability"], all_chances(which, user, True)[items], rtol=2e-4
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
    monkeypatch.setattr(top_n, "LISTED", listed)
    predictor = PREDICTORS[which]
    if which == "weighed":
        how = {name: value for name, value in how.items() if name != "balance"}
    users = [*range(1, USERS + 1), 999, 3]
    with torch_threads(threads):
        many = predictor.recommend(users, n=4, **how)
    assert_same(many, [predictor.recommend([user], n=4, **how) for user in users])


def test_a_history_gets_the_list_of_a_user_who_is_known_by_the_same() -> None:
    predictor, ratings = PREDICTORS["picked"], FITTED["picked"].context
    own = (1 + ratings.items[ratings.users == 4]).tolist()
    user = predictor.recommend([5], n=7).drop("user")
    for history in (own, dict.fromkeys(own, 1), [(item, 1.0) for item in own]):
        assert_close(predictor.recommend(history=history, n=7), user)


@pytest.mark.parametrize("replaced", [True, False], ids=["replaced", "left out"])
def test_a_stored_user_with_another_history_keeps_the_weights_of_the_same_items(
    replaced: bool,
) -> None:
    """Weights belong to items: one that the context lacks weighs 1, one that is missing nothing."""
    predictor, fitted = PREDICTORS["weighed"], FITTED["weighed"]
    assert fitted.interaction_model is not None
    user, context = 1, fitted.context
    stored = InteractionRows.from_ratings(context).select(np.array([user]))
    weight = dict(zip(stored.columns.tolist(), stored.weights.tolist(), strict=True))
    items = [int(item) for item in stored.columns[1:]]
    if replaced:
        items.append(next(i for i in range(ITEMS) if i not in weight))
    items = items[::-1]
    person = UserHistory(np.array(items, np.int32), np.zeros(len(items), np.uint8), (), user)
    frame = predictor.recommend(history=person, n=ITEMS)
    weights = np.array([weight.get(item, 1.0) for item in items], np.float32)
    known = InteractionRows.from_rows(user_entities([person], context).rows).with_weights(weights)
    odds = summed_scores(fitted.interaction_model, known)[0]
    chances = np.exp(odds - odds.max())
    chances[items] = 0.0
    chances /= chances.sum()
    assert frame.height == ITEMS - len(items)
    np.testing.assert_allclose(frame["score"], chances[frame["item"].to_numpy() - 1], rtol=2e-4)


def test_items_alike_are_listed_by_id() -> None:
    fitted = FITTED["rated"]
    assert fitted.interaction_model is not None

    logs = {"logs": np.zeros(ITEMS, np.float32)}
    equal = Popularity(PopularityConfig(columns=ITEMS), logs)
    same = InteractionModel({"popularity": equal}, {"popularity": 1.0})
    frame = Predictor(replace(fitted, interaction_model=same)).recommend([2, 5, 7], n=9, balance=0)
    for _, own in frame.group_by("user"):
        assert own["item"].is_sorted()
        assert own["score"].n_unique() == 1


def test_lists_by_ratings_do_not_ask_what_is_picked() -> None:
    fitted = FITTED["rated"]
    broken = replace(fitted.interaction_model, weights={})  # type: ignore[type-var]
    predictor = Predictor(replace(fitted, interaction_model=broken))
    frame = predictor.recommend([3], rank_by="prediction")
    assert "interaction_probability" not in frame.columns
    assert predictor.ranked(3, rank_by="threshold").picks is None
    bare = Predictor(replace(fitted, interaction_model=None)).recommend([3], rank_by="prediction")
    assert_close(frame, bare)


def test_the_chance_to_be_picked_is_the_same_by_whatever_balance() -> None:
    predictor = PREDICTORS["rated"]
    for exclude_seen in (True, False):
        found = {}
        for balance in (0.0, 1.0, 0.2):
            frame = predictor.recommend(
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
def test_the_next_question_about_a_person_is_answered_as_the_first(which: str) -> None:
    asked = Predictor(FITTED[which])
    others: list[dict[str, Any]] = [{"balance": 0.2}, {"balance": 1.0}, {"rank_by": "prediction"}]
    hows: list[dict[str, Any]] = [
        {},
        {"genres": "Drama"},
        {"exclude_seen": False},
        {"candidate_items": range(1, 30)},
    ]
    for how in [*hows, *(others if FITTED[which].members else []), {}]:
        for user in (3, 5, 3):
            fresh = Predictor(FITTED[which]).recommend([user], n=6, **how)
            assert_close(asked.recommend([user], n=6, **how), fresh)


def test_who_knows_everything_has_an_empty_list() -> None:
    for predictor in PREDICTORS.values():
        assert predictor.recommend([USERS], n=3).height == 0
        assert predictor.recommend([USERS], n=3, diversity=0.5).height == 0
        assert predictor.recommend([USERS], n=3, exclude_seen=False).height == 3


# -- why -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at_once", [256, 3, 1])
@pytest.mark.parametrize("which", ["rated", "picked", "weighed"])
def test_an_explanation_asks_again_without_each_pick(
    which: str, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cfnade.inference import explain

    monkeypatch.setattr(explain, "_SCORES", at_once * ITEMS)
    fitted, predictor = FITTED[which], PREDICTORS[which]
    user, ratings = 4, fitted.context
    own = ratings.items[ratings.users == user]
    for item in (int(own[0]), int(np.flatnonzero(~seen(user))[0])):
        frame = predictor.explain(user=user + 1, item=item + 1, target="interaction")
        known = ratings.select((ratings.users != user) | (ratings.items != item))
        whole = chances_of(replace(fitted, context=known), user, left_out=True)[item]
        if ratings.weights is not None:  # the mean of all weights stays that of the data
            known = ratings
        assert sorted(frame["item"].to_list()) == sorted(1 + i for i in own.tolist() if i != item)
        if which != "weighed":
            np.testing.assert_allclose(frame["interaction_probability"], whole, rtol=1e-4)
            for other, without in frame.select("item", "prediction_without").iter_rows():
                rest = known.select((known.users != user) | (known.items != other - 1))
                again = chances_of(replace(fitted, context=rest), user, left_out=True)[item]
                assert without == pytest.approx(again, rel=1e-4)
        elif item not in own:
            chance = predictor.recommend([user + 1], n=ITEMS)
            listed = chance.filter(chance["item"] == item + 1)["interaction_probability"][0]
            np.testing.assert_allclose(frame["interaction_probability"], listed, rtol=1e-4)
        np.testing.assert_allclose(
            frame["lift"], frame["interaction_probability"] / frame["prediction_without"], rtol=1e-6
        )
        assert frame["lift"].is_sorted(descending=True)
        assert ("rating" in frame.columns) == (which == "rated")
