"""What lists are asked to be: which items, and what is refused by name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.close import assert_close
from tests.inference.cases import make
from tests.inference.implicit_cases import GENRES, ITEMS, data, picked_model, rated_model

from cfnade.exceptions import PredictionError
from cfnade.inference.predictor import Predictor

RATED, PICKED = Predictor(rated_model()), Predictor(picked_model())
BARE = Predictor(make("user", data=data()))


@pytest.mark.parametrize("predictor", [RATED, PICKED])
@pytest.mark.parametrize("genres", ["drama", ["Comedy", "FILM-NOIR"], ("Drama",), {"Comedy"}])
def test_genres_leave_items_that_have_one_of_them(predictor: Predictor, genres: Any) -> None:
    frame = predictor.recommend([1], n=ITEMS, genres=genres)
    wanted = {genres.casefold()} if isinstance(genres, str) else {g.casefold() for g in genres}
    own = [set(GENRES[i % len(GENRES)].casefold().split("|")) for i in range(ITEMS)]
    expected = {i + 1 for i in range(ITEMS) if own[i] & wanted}
    assert set(frame["item"].to_list()) == expected


def test_genres_are_those_that_the_data_name() -> None:
    assert list(PICKED.genres) == ["Comedy", "Drama", "Film-Noir"]


def test_filters_go_together() -> None:
    frame = RATED.recommend(
        [1], n=ITEMS, candidate_items=range(1, 31), exclude_items=[3, 4], genres="Comedy"
    )
    comedies = {i + 1 for i in range(ITEMS) if "Comedy" in GENRES[i % len(GENRES)]}
    assert set(frame["item"].to_list()) == comedies & set(range(1, 31)) - {3, 4}
    assert RATED.recommend([1], candidate_items=[]).height == 0
    assert RATED.recommend([1], candidate_items=[], diversity=0.5).height == 0


def test_items_that_few_know_are_hidden_if_asked_for() -> None:
    counts = np.bincount(data().items, minlength=ITEMS)
    few = int(np.median(counts))
    frame = RATED.recommend([1], n=ITEMS, min_ratings=few)
    assert set(frame["item"].to_list()) == set((1 + np.flatnonzero(counts >= few)).tolist())
    assert frame["n_hidden_items"].unique().to_list() == [int((counts < few).sum())]
    assert RATED.recommend([1], n=ITEMS)["n_hidden_items"].max() == 0  # by picks none are


def test_what_lists_are_ranked_by_if_nothing_is_said() -> None:
    assert_close(RATED.recommend([3]), RATED.recommend([3], rank_by="interaction", balance=0.5))
    assert_close(BARE.recommend([3]), BARE.recommend([3], rank_by="prediction"))
    assert "interaction_probability" not in BARE.recommend([3]).columns
    assert RATED.ranked(3).picks is not None
    assert BARE.ranked(3).picks is None


REFUSED: list[tuple[Predictor, dict[str, Any], str]] = [
    (BARE, {"rank_by": "interaction"}, r"not learned interactions; .*learn_interactions=True"),
    (
        BARE,
        {"balance": 0.5},
        r"balance \(=0.5\) needs rank_by=\"interaction\"; lists are ranked by",
    ),
    (RATED, {"balance": 0.5, "rank_by": "prediction"}, r"balance \(=0.5\) needs rank_by="),
    (RATED, {"balance": 1.5}, r"balance \(=1.5\)"),
    (RATED, {"balance": "sweet"}, r"balance \(='sweet'\)"),
    (RATED, {"rank_by": "best"}, r"rank_by \(='best'\) must be one of"),
    (RATED, {"threshold": 4, "rank_by": "prediction"}, r"threshold \(=4.0\) needs rank_by="),
    (RATED, {"threshold": 9}, r"threshold \(=9.0\) must be above 1"),
    (RATED, {"personalization": 2}, r"personalization \(=2.0\) needs rank_by=\"prediction\""),
    (RATED, {"diversity": -0.1}, r"diversity \(=-0.1\)"),
    (RATED, {"popularity_penalty": 1.1}, r"popularity_penalty \(=1.1\)"),
    (RATED, {"popularity_penalty": 0.1, "rank_by": "prediction"}, "popularity_penalty .* needs ra"),
    (RATED, {"popularity_penalty": 0.1, "balance": 1}, "needs a balance below 1"),
    (RATED, {"diversity": "much"}, r"diversity \(='much'\)"),
    (RATED, {"min_ratings": -1}, r"min_ratings \(=-1\)"),
    (RATED, {"candidate_items": 5}, r"candidate_items \(=5\) must be a list of items"),
    (RATED, {"exclude_items": "Film 3"}, r"exclude_items \(='Film 3'\) must be a list of items"),
    (RATED, {"candidate_items": [1, 777, 778]}, r"unknown to the model: 777, 778; leave them out"),
    (PICKED, {"exclude_items": [777]}, r"exclude_items contains items that are unknown.*: 777;"),
    (RATED, {"exclude_items": np.arange(900, 907)}, r"unknown.*: 900, 901, 902, 903, 904, …; le"),
    (RATED, {"genres": ["Drama", "Western"]}, r"genres: unknown genre 'Western'; the data have"),
    (RATED, {"genres": [3]}, r"genres: unknown genre 3"),
    (RATED, {"genres": 3}, r"genres \(=3\) must be a genre or a list of genres"),
    (RATED, {"genres": []}, "genres is empty; give one of Comedy"),
    (PICKED, {"balance": 0.5}, r"balance \(=0.5\) concerns ratings"),
    (PICKED, {"threshold": 4}, r"threshold \(=4.0\) concerns ratings"),
    (PICKED, {"rank_by": "prediction"}, r"predicts no ratings"),
]


@pytest.mark.parametrize(("predictor", "how", "message"), REFUSED)
def test_what_makes_no_sense_is_refused_by_name(
    predictor: Predictor, how: dict[str, Any], message: str
) -> None:
    with pytest.raises(PredictionError, match=message):
        predictor.recommend([1], **how)


def test_data_without_genres_say_so() -> None:
    bare = Predictor(replace(PICKED.fitted, context=data(implicit=True).replace(genres=None)))
    with pytest.raises(PredictionError, match="have no genres; leave it out"):
        bare.recommend([1], genres="Drama")


def test_a_model_without_ratings_predicts_none() -> None:
    for ask in (
        lambda: PICKED.predict([1], [2]),
        lambda: PICKED.predict_proba([1], [2]),
        lambda: PICKED.predict_frame([1], [2]),
        lambda: PICKED.predict("me", [2], histories={"me": [1]}),
        lambda: PICKED.predicted(np.array([1]), 2),
        lambda: PICKED.explain(user=2, item=3, target="rating"),
    ):
        with pytest.raises(
            PredictionError, match="trained on interactions, so it predicts no ratings"
        ):
            ask()
    with pytest.raises(PredictionError, match=r"target \(='why'\) must be one of rating, inter"):
        PICKED.explain(user=2, item=3, target="why")  # type: ignore[arg-type]
    with pytest.raises(PredictionError, match="has not learned interactions"):
        BARE.explain(user=2, item=3, target="interaction")
    with pytest.raises(PredictionError, match="a history is a list of items"):
        PICKED.recommend(history=5)  # type: ignore[arg-type]
    with pytest.raises(PredictionError, match="more than once"):
        PICKED.recommend(history=[3, 3])


def test_a_misspelt_argument_is_refused_with_what_was_meant() -> None:
    misspelt: dict[str, Any] = {"balanc": 0.5}
    with pytest.raises(PredictionError, match=r"unknown ranking option 'balanc'.*'balance'"):
        RATED.recommend([1], **misspelt)
    with pytest.raises(PredictionError, match=r"unknown ranking option 'balanc'.*'balance'"):
        RATED.ranked(1, **misspelt)
