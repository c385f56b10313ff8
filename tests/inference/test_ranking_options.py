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
    frame = RATED.recommend([1], n=ITEMS, items=range(1, 31), without=[3, 4], genres="Comedy")
    comedies = {i + 1 for i in range(ITEMS) if "Comedy" in GENRES[i % len(GENRES)]}
    assert set(frame["item"].to_list()) == comedies & set(range(1, 31)) - {3, 4}
    assert RATED.recommend([1], items=[]).height == 0
    assert RATED.recommend([1], items=[], diversity=0.5).height == 0


def test_items_that_few_know_are_hidden_if_asked_for() -> None:
    counts = np.bincount(data().items, minlength=ITEMS)
    few = int(np.median(counts))
    frame = RATED.recommend([1], n=ITEMS, min_ratings=few)
    assert set(frame["item"].to_list()) == set((1 + np.flatnonzero(counts >= few)).tolist())
    assert frame["hidden"].unique().to_list() == [int((counts < few).sum())]
    assert RATED.recommend([1], n=ITEMS)["hidden"].max() == 0  # by picks none are


def test_what_lists_are_ranked_by_if_nothing_is_said() -> None:
    assert_close(RATED.recommend([3]), RATED.recommend([3], rank="picked", taste=0.5))
    assert_close(BARE.recommend([3]), BARE.recommend([3], rank="expected"))
    assert "pick" not in BARE.recommend([3]).columns
    assert RATED.ranked(3).picks is not None
    assert BARE.ranked(3).picks is None


REFUSED: list[tuple[Predictor, dict[str, Any], str]] = [
    (BARE, {"rank": "picked"}, r"rank='picked' needs a model that knows what people pick.*--lists"),
    (BARE, {"taste": 0.5}, r"taste \(=0.5\) goes with rank='picked'"),
    (RATED, {"taste": 0.5, "rank": "expected"}, r"taste \(=0.5\) goes with rank='picked'"),
    (RATED, {"taste": 1.5}, r"taste \(=1.5\)"),
    (RATED, {"taste": "sweet"}, r"taste \(='sweet'\)"),
    (RATED, {"rank": "best"}, r"rank \(='best'\) must be one of"),
    (RATED, {"threshold": 4, "rank": "expected"}, r"threshold \(=4\) goes with"),
    (RATED, {"threshold": 9}, r"threshold \(=9\) must lie above 1"),
    (RATED, {"quantile": 0.3}, r"quantile \(=0.3\) goes with rank='quantile'"),
    (RATED, {"diversity": -0.1}, r"diversity \(=-0.1\)"),
    (RATED, {"popularity_penalty": 1.1}, r"popularity_penalty \(=1.1\)"),
    (RATED, {"popularity_penalty": 0.1, "rank": "expected"}, "goes with rank='picked'"),
    (RATED, {"popularity_penalty": 0.1, "taste": 1}, "goes with rank='picked' and a taste below 1"),
    (RATED, {"diversity": "much"}, r"diversity \(='much'\)"),
    (RATED, {"min_ratings": -1}, r"min_ratings \(=-1\)"),
    (RATED, {"items": 5}, r"items \(=5\) must be a list of items"),
    (RATED, {"without": "Film 3"}, r"without \(='Film 3'\) must be a list of items"),
    (RATED, {"items": [1, 777, 778]}, r"items names 777, 778, unknown to the model; leave out"),
    (PICKED, {"without": [777]}, r"without names 777, unknown to the model"),
    (RATED, {"without": np.arange(900, 907)}, r"without names 900, 901, 902, 903, 904, …, unkn"),
    (RATED, {"genres": ["Drama", "Western"]}, r"genres: 'Western' is none of the data's; known"),
    (RATED, {"genres": [3]}, r"genres: 3 is none of the data's"),
    (RATED, {"genres": 3}, r"genres \(=3\) must be a genre or a list of them"),
    (RATED, {"genres": []}, "genres is empty; name one of Comedy"),
    (PICKED, {"taste": 0.5}, r"taste \(=0.5\) weighs picks against ratings"),
    (PICKED, {"threshold": 4}, r"threshold \(=4\) is a rating, and this model knows none"),
    (PICKED, {"rank": "expected"}, r"rank='expected' needs ratings"),
]


@pytest.mark.parametrize(("predictor", "how", "message"), REFUSED)
def test_what_makes_no_sense_is_refused_by_name(
    predictor: Predictor, how: dict[str, Any], message: str
) -> None:
    with pytest.raises(PredictionError, match=message):
        predictor.recommend([1], **how)


def test_data_without_genres_say_so() -> None:
    bare = Predictor(replace(PICKED.fitted, context=data(implicit=True).replace(genres=None)))
    with pytest.raises(PredictionError, match="name no genres; leave it out"):
        bare.recommend([1], genres="Drama")


def test_a_model_without_ratings_predicts_none() -> None:
    for ask in (
        lambda: PICKED.predict([1], [2]),
        lambda: PICKED.predict_proba([1], [2]),
        lambda: PICKED.predict_frame([1], [2]),
        lambda: PICKED.predict("me", [2], histories={"me": [1]}),
        lambda: PICKED.predicted(np.array([1]), 2),
        lambda: PICKED.explain(user=2, item=3, of="rating"),
    ):
        with pytest.raises(PredictionError, match="trained on interactions, which have no ratings"):
            ask()
    with pytest.raises(PredictionError, match=r"of \(='why'\) must be 'rating' or 'pick'"):
        PICKED.explain(user=2, item=3, of="why")  # type: ignore[arg-type]
    with pytest.raises(PredictionError, match="of='pick' needs a model that knows what people"):
        BARE.explain(user=2, item=3, of="pick")
    with pytest.raises(PredictionError, match="a history is a list of items"):
        PICKED.recommend(history=5)  # type: ignore[arg-type]
    with pytest.raises(PredictionError, match="more than once"):
        PICKED.recommend(history=[3, 3])


def test_a_misspelt_argument_is_refused_with_what_was_meant() -> None:
    misspelt: dict[str, Any] = {"tast": 0.5}
    with pytest.raises(PredictionError, match=r"unknown argument of recommend 'tast'.*'taste'"):
        RATED.recommend([1], **misspelt)
    with pytest.raises(PredictionError, match=r"unknown argument of recommend 'tast'.*'taste'"):
        RATED.ranked(1, **misspelt)
    misspelt = {"history": {"a": {1: 5}}}
    with pytest.raises(
        PredictionError, match=r"unknown argument of predict 'history'.*'histories'"
    ):
        RATED.predict(["a"], [1], **misspelt)
