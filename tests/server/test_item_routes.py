"""What the page tells of items besides predictions, and what it asks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.server.given import (
    ITEMS,
    KINDS,
    TITLES,
    Asking,
    ClientOf,
    ModelOf,
    TestClient,
    genres_of,
    history,
    rated,
    ratings,
    who,
)

from cfnade.data.splits import split
from cfnade.estimator import CFNADE
from cfnade.exceptions import CfnadeError
from cfnade.server.settings import validate_item_name

# -- usual, genres, decades ----------------------------------------------------------------------


def test_usual_is_how_people_rated_it(client: TestClient, user_model: Path) -> None:
    """Counted from all that the model knows, with two imagined ones spread like all."""
    known = CFNADE.load(user_model).fitted_.context
    counts = np.zeros((ITEMS, 5))
    np.add.at(counts, (known.items, known.levels), 1)
    whole = (counts.sum(0) + 1) / (counts.sum(0) + 1).sum()
    body = {"ratings": rated(history()), "n": 40, "min_ratings": 0}
    listed = client.post("/recommendations", json=body).json()["items"]
    assert len(listed) == 35
    order = {int(raw): at for at, raw in enumerate(known.item_ids)}
    for film in listed:
        own = counts[order[film["item"]]] + 2 * whole
        np.testing.assert_allclose(film["baseline"], own / own.sum(), rtol=1e-9)


@pytest.mark.parametrize("kind", ["user", "both", "several", "ridge", "bare", "lists"])
def test_who_has_said_nothing_is_told_what_is_usual(client_of: ClientOf, kind: str) -> None:
    body = {"ratings": [], "items": [101, 105, 120]}
    for film in client_of(kind).post("/predictions", json=body).json()["predictions"]:
        usual = np.array(film["baseline"]) @ np.arange(1.0, 6.0)
        assert film["prediction"] == pytest.approx(usual, abs=1e-5)


def test_genres_are_told(client: TestClient) -> None:
    body = {"ratings": [], "n": 40, "min_ratings": 0}
    for film in client.post("/recommendations", json=body).json()["items"]:
        wanted = [] if film["item"] == max(TITLES) else sorted(genres_of(film["item"]).split("|"))
        assert sorted(film["genres"]) == wanted


def test_decades_filter_by_the_year_of_the_title(client: TestClient) -> None:
    told = client.get("/model").json()["decades"]
    assert told == [{"decade": decade, "n_items": 10} for decade in (1980, 1970, 1960, 1950)]
    for decades in ([1950], [1960, 1980]):
        body = {"ratings": [], "n": 40, "min_ratings": 0, "decades": decades}
        found = client.post("/recommendations", json=body).json()["items"]
        years = {int(film["title"][-5:-1]) for film in found}
        assert years == {year for decade in decades for year in range(decade, decade + 10)}
    both = {"ratings": [], "decades": [1950], "candidate_items": [101, 125], "min_ratings": 0}
    found = client.post("/recommendations", json=both).json()["items"]
    assert [film["item"] for film in found] == [101]
    none = {"ratings": [], "decades": [1930], "min_ratings": 0}
    assert client.post("/recommendations", json=none).json()["items"] == []
    for bad in ([1955], [], ["1950"], [-10]):
        refused = client.post("/recommendations", json={"ratings": [], "decades": bad})
        assert refused.status_code == 422
        assert "decades" in refused.json()["detail"]


# -- words ---------------------------------------------------------------------------------------


def test_words_follow_the_data_or_the_option(
    client: TestClient, asking: Asking, user_model: Path
) -> None:
    assert client.get("/model").json()["item_name"] == "film"  # titles have years
    with asking(user_model, item_name="book") as named:
        assert named.get("/model").json()["item_name"] == "book"


def test_a_noun_is_a_word() -> None:
    assert validate_item_name(None) is None
    assert validate_item_name(" Song ") == "song"
    assert validate_item_name("board game") == "board game"
    for bad in ("", "<b>", "film1", "x" * 31, "-a"):
        with pytest.raises(CfnadeError, match="--item-name"):
            validate_item_name(bad)


# -- questions -----------------------------------------------------------------------------------


def test_questions_are_those_of_the_predictor(client_of: ClientOf, model_of: ModelOf) -> None:
    client, predictor = client_of("ridge"), CFNADE.load(model_of("ridge"))
    for given in ({}, history(3)):
        said = client.post("/items-to-rate", json={"ratings": rated(given), "n": 5}).json()
        frame = predictor.suggest_items_to_rate(history=given, n=5)
        assert [one["item"] for one in said["items"]] == frame["item"].to_list()
        assert [one["uncertainty_reduction"] for one in said["items"]] == frame[
            "uncertainty_reduction"
        ].to_list()
        assert [one["title"] for one in said["items"]] == frame["title"].to_list()
        assert said["uncertainty"] <= 1
    first = said["items"][0]["item"]
    body = {"ratings": rated(given), "n": 1, "exclude_items": [first, "nobody knows this"]}
    other = predictor.suggest_items_to_rate(history=given, n=1, exclude_items=[first])["item"][0]
    assert client.post("/items-to-rate", json=body).json()["items"][0]["item"] == other != first


@pytest.mark.parametrize("kind", ["both", "hearts", "titled", "ridge"])
def test_every_kind_that_takes_new_people_asks(client_of: ClientOf, kind: str) -> None:
    body = {**who(history(2), KINDS[kind]), "n": 3}
    said = client_of(kind).post("/items-to-rate", json=body).json()
    assert len(said["items"]) == 3
    assert all(
        (one["uncertainty_reduction"] is not None) == (kind == "ridge") for one in said["items"]
    )
    known = {KINDS[kind].item(item) for item in history(2)}
    assert not known & {one["item"] for one in said["items"]}


def test_known_users_are_asked_what_they_have_not_rated(client_of: ClientOf) -> None:
    said = client_of("ridge").post("/items-to-rate", json={"user_id": 7, "n": 50}).json()
    known = split(ratings(KINDS["user"]), "paper:0").train
    mine = {int(known.item_ids[item]) for item in known.items[known.users == 6]}
    assert not mine & {one["item"] for one in said["items"]}
    assert said["uncertainty"] < 1


# -- the map -------------------------------------------------------------------------------------


def test_the_map_is_the_same_for_everybody(client_of: ClientOf) -> None:
    for kind in ("user", "lists", "hearts", "item"):
        first, again = (client_of(kind).get("/item-map").json()["items"] for _ in range(2))
        assert first == again
        assert len(first) == ITEMS
        assert {one["item"] for one in first} == set(TITLES)
        for one in first:
            assert 0 <= one["x"] <= 1
            assert 0 <= one["y"] <= 1
        counts = [one["n_item_ratings"] for one in first]
        assert counts == sorted(counts, reverse=True)
