"""What the addresses answer."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.server.given import ITEMS, TITLES, Asking, ClientOf, TestClient, history, rated
from tests.support.close import assert_close

from cfnade import __version__, checkpoint
from cfnade.inference.predictor import Predictor


def test_a_distribution_has_its_own_mean_spread_median_and_interval(client: TestClient) -> None:
    body = {"ratings": rated(history()), "n": ITEMS, "min_ratings": 0}
    answer = client.post("/recommendations", json=body).json()
    values = np.arange(1.0, 6.0)
    assert len(answer["items"]) == ITEMS - 5
    for item in answer["items"]:
        chances = np.array(item["probabilities"])
        assert chances.sum() == pytest.approx(1.0)
        assert item["prediction"] == pytest.approx(chances @ values, abs=1e-6)
        assert item["std"] == pytest.approx(np.sqrt(chances @ (values - item["prediction"]) ** 2))
        low, high = item["interval"]
        assert chances[(values >= low) & (values <= high)].sum() >= 0.8 - 1e-9
        assert chances[values <= item["median"]].sum() >= 0.5
        assert chances[values < item["median"]].sum() < 0.5


@pytest.mark.parametrize("personalization", [0.0, 0.5, 1.0, 5.0])
def test_what_is_special_is_weighed_over_all_items(
    client: TestClient, personalization: float
) -> None:
    """Not among the best by another measure: a short list is the head of everything, sorted."""
    body = {"ratings": rated(history()), "min_ratings": 0}
    everything = client.post("/recommendations", json=body | {"n": ITEMS}).json()["items"]
    weighed = {}
    for line in everything:
        usual = float(np.array(line["baseline"]) @ np.arange(1.0, 6.0))
        weighed[line["item"]] = usual + personalization * (line["prediction"] - usual)
    found = client.post(
        "/recommendations", json=body | {"n": 7, "personalization": personalization}
    ).json()["items"]
    assert [line["item"] for line in found] == sorted(weighed, key=lambda at: -weighed[at])[:7]
    assert [line["score"] for line in found] == pytest.approx([weighed[f["item"]] for f in found])
    assert [line["rank"] for line in found] == [1, 2, 3, 4, 5, 6, 7]


def test_new_items_are_predicted_beside_known_ones(client: TestClient, user_model: Path) -> None:
    given = {"A new film": {3: 5.0, 8: 1.0}}
    told = [{"user_id": user, "rating": r} for user, r in given["A new film"].items()]
    new = [{"item": "A new film", "ratings": told}]
    asked = {"items": [140, "A new film", 999, 139], "new_items": new}
    predictor = Predictor.load(user_model)
    for who, user in (({"user_id": 3}, 3), ({"ratings": rated(history())}, "me")):
        answer = client.post("/predictions", json={**who, **asked}).json()
        assert answer["unknown_items"] == [999]
        said = answer["predictions"]
        assert [one["item"] for one in said] == [140, "A new film", 139]
        assert (said[1]["title"], said[1]["n_item_ratings"]) == (None, 2)
        expected = predictor.predict(
            user, [140, "A new film", 139], histories={"me": history()}, new_items=given
        )
        assert [one["prediction"] for one in said] == pytest.approx(
            expected.predictions.tolist(), abs=1e-6
        )


@pytest.mark.parametrize(
    ("new", "fault"),
    [
        ({"item": 140, "ratings": [{"user_id": 3, "rating": 5}]}, "that the model knows"),
        ({"item": 999, "ratings": [{"user_id": 777, "rating": 5}]}, "user 777, who rated 999"),
        ({"item": 999, "ratings": [{"user_id": 3, "rating": 9}]}, "off the model's scale"),
        ({"item": 999, "ratings": []}, "at least 1 item"),
    ],
)
def test_new_items_that_cannot_be_read_are_refused(
    client: TestClient, new: dict[str, Any], fault: str
) -> None:
    answer = client.post("/predictions", json={"user_id": 3, "items": [999], "new_items": [new]})
    assert answer.status_code == 422
    assert fault in answer.json()["detail"]
    body = {"user_id": 3, "items": [999], "new_items": [new, new]}
    assert client.post("/predictions", json=body).status_code == 422


def test_titles_and_ids_mean_the_same(client: TestClient) -> None:
    by_title = [{"title": TITLES[item], "rating": r} for item, r in history().items()]
    asked = {"items": [140, TITLES[140]]}
    by_id = client.post("/predictions", json={"ratings": rated(history()), **asked}).json()
    assert_close(client.post("/predictions", json={"ratings": by_title, **asked}).json(), by_id)
    first, second = by_id["predictions"]
    assert_close(first, second)
    assert first["item"] == 140


def test_what_the_model_does_not_know_is_named(client: TestClient) -> None:
    unknown = [{"item": 9, "rating": 2.0}, {"title": "Nothing Like It", "rating": 3.0}]
    body: dict[str, Any] = {"ratings": [*rated(history()), *unknown], "items": [9, "No Film", 101]}
    answer = client.post("/predictions", json=body).json()
    assert answer["ignored"] == unknown
    assert answer["unknown_items"] == [9, "No Film"]
    assert [one["item"] for one in answer["predictions"]] == [101]
    without = {"ratings": rated(history()), "items": [101]}
    expected = client.post("/predictions", json=without).json()["predictions"]
    assert_close(answer["predictions"], expected)


def test_thinly_rated_items_are_hidden_and_counted(
    client: TestClient, predictor: Predictor
) -> None:
    counts = dict(zip(TITLES, np.bincount(predictor.fitted.context.items), strict=True))
    given = history()
    least = int(np.median([*counts.values()]))
    few = [item for item in TITLES if counts[item] < least and item not in given]
    body = {"ratings": rated(given), "n": ITEMS, "min_ratings": least}
    answer = client.post("/recommendations", json=body).json()
    assert answer["n_hidden_items"] == len(few) > 0
    assert answer["min_ratings"] == least
    assert len(answer["items"]) == ITEMS - len(given) - len(few)
    assert min(item["n_item_ratings"] for item in answer["items"]) >= least
    usual = client.post("/recommendations", json={"ratings": rated(given)}).json()
    assert usual["min_ratings"] == predictor.default_min_ratings


def test_seen_items_come_back_on_demand(client: TestClient) -> None:
    body = {"ratings": rated(history()), "n": ITEMS, "min_ratings": 0}
    new = {item["item"] for item in client.post("/recommendations", json=body).json()["items"]}
    assert not new & set(history())
    again = client.post("/recommendations", json=body | {"exclude_seen": False}).json()
    assert {item["item"] for item in again["items"]} == new | set(history())


def test_nothing_rated_is_an_answer_too(client: TestClient) -> None:
    answer = client.post("/recommendations", json={"ratings": [], "n": 3, "min_ratings": 0})
    assert answer.status_code == 200
    assert len(answer.json()["items"]) == 3
    assert (
        client.post("/explanations", json={"ratings": [], "item": 101}).json()["contributions"]
        == []
    )


def test_a_model_without_titles_is_searched_by_id(
    asking: Asking, user_model: Path, tmp_path: Path
) -> None:
    fitted = checkpoint.load(user_model)
    checkpoint.save(replace(fitted, context=fitted.context.replace(titles=None)), tmp_path)
    with asking(tmp_path) as client:
        model = client.get("/model").json()
        assert model["capabilities"]["titles"] is False
        assert len(model["sample_profiles"][0]["ratings"]) >= 3
        found = client.get("/items", params={"q": "10", "limit": 50}).json()["items"]
        assert {item["item"] for item in found} == set(range(101, 110))
        assert client.post("/items/match", json={"items": [{"title": "Alien"}]}).json() == {
            "matches": [None]
        }
        answer = client.post("/recommendations", json={"ratings": rated(history())})
        assert answer.json()["items"][0]["title"] is None


def test_versions_and_health(client: TestClient) -> None:
    model = client.get("/model").json()
    assert (model["version"], model["n_items"]) == (__version__, ITEMS)
    assert re.fullmatch("[0-9a-f]+", model["fingerprint"])
    assert client.get("/health").json() == {"status": "ok"}


LISTS, CELLS, WHY = "/recommendations", "/predictions", "/explanations"
NEW: dict[str, Any] = {"ratings": []}
REFUSED: list[tuple[str, dict[str, Any], int, str]] = [
    (LISTS, {}, 422, "exactly one of"),
    (LISTS, {"user_id": 7} | NEW, 422, "exactly one of"),
    (LISTS, {"user_id": 9999}, 404, "user 9999 is unknown"),
    (LISTS, {"user_id": "seven"}, 422, "user id 'seven' is a str"),
    (LISTS, {"ratings": [{"item": 101, "rating": 7}]}, 422, "off the model's scale 1–5"),
    (LISTS, {"ratings": [{"item": 101, "rating": 1}] * 2}, 422, "more than once"),
    (LISTS, {"ratings": [{"rating": 1}]}, 422, r"ratings\[0\]: give either item"),
    (LISTS, {"interactions": [101]}, 422, "interactions: this model reads the ratings"),
    (LISTS, NEW | {"n": 501}, 422, "n: .* 500"),
    (LISTS, NEW | {"rank_by": "best"}, 422, "rank_by: .* 'interaction'"),
    (LISTS, NEW | {"rank_by": "threshold", "threshold": 9}, 422, "threshold"),
    (LISTS, NEW | {"rank_by": "interaction"}, 422, "has not learned interactions"),
    (LISTS, NEW | {"balance": 0.5}, 422, "balance .* needs rank_by="),
    (LISTS, NEW | {"balance": 1.5}, 422, "balance: "),
    (LISTS, NEW | {"personalization": -1}, 422, "personalization: "),
    (LISTS, NEW | {"diversity": -1}, 422, "diversity: "),
    (LISTS, NEW | {"candidate_items": []}, 422, "candidate_items: .* at least 1"),
    (LISTS, NEW | {"genres": []}, 422, "genres: .* at least 1"),
    (LISTS, NEW | {"genres": ["Odd"]}, 422, "unknown genre 'Odd'.* Comedy, Drama"),
    (LISTS, NEW | {"exclude_items": 5}, 422, "exclude_items: .* list"),
    (LISTS, NEW | {"numbr": 3}, 422, "numbr: extra inputs"),
    (WHY, NEW | {"item": 101, "target": "interaction"}, 422, "has not learned interactions"),
    (WHY, NEW | {"item": 101, "target": "odd"}, 422, "target: .* 'rating'"),
    (WHY, NEW | {"item": 9}, 404, "item 9 is unknown; GET /items"),
    (CELLS, NEW | {"items": [101], "timestamp": 5}, 422, "uses no timestamps"),
    (CELLS, NEW, 422, "items: field required"),
    (CELLS, NEW | {"items": []}, 422, "items: .* at least 1"),
    (CELLS, NEW | {"items": [1.5]}, 422, "valid integer, or input should be a valid"),
    ("/items/match", {"items": [{"title": ""}]}, 422, r"items\[0\].title: .* at least 1"),
]
HEARTS: dict[str, Any] = {"interactions": []}
OF_HEARTS: list[tuple[str, dict[str, Any], int, str]] = [
    (CELLS, HEARTS | {"items": [101]}, 422, "no ratings to predict; POST /recommendations"),
    (LISTS, {"ratings": rated(history())}, 422, "ratings: this model reads the interactions"),
    (LISTS, {"interactions": [101, TITLES[101]]}, 422, r"interactions\[1\]: .* more than once"),
    (LISTS, {"interactions": [{"item": 101}]}, 422, r"interactions\[0\]: "),
    (LISTS, HEARTS | {"rank_by": "prediction"}, 422, "predicts no ratings"),
    (LISTS, HEARTS | {"balance": 0.5}, 422, "concerns ratings"),
    (WHY, HEARTS | {"item": 101, "target": "rating"}, 422, "predicts no ratings"),
]


@pytest.mark.parametrize(("path", "body", "status", "detail"), OF_HEARTS)
def test_refusals_of_a_model_without_ratings(
    client_of: ClientOf, path: str, body: dict[str, Any], status: int, detail: str
) -> None:
    test_refusals_say_what_to_change(client_of("hearts"), path, body, status, detail)


@pytest.mark.parametrize("headers", [{}, {"Content-Type": "text/plain"}])
def test_a_body_without_its_content_type_is_told_the_header(
    client: TestClient, headers: dict[str, str]
) -> None:
    answer = client.post(LISTS, content=b'{"user_id": 7}', headers=headers)
    assert answer.status_code == 422
    assert "send a JSON object with the header Content-Type" in answer.json()["detail"]


def test_what_is_not_known_of_picks_and_filters_is_named(client_of: ClientOf) -> None:
    body = {
        "interactions": [101, 9, "No Film"],
        "candidate_items": [140, 8, TITLES[139]],
        "exclude_items": [139, "Nil"],
    }
    answer = client_of("hearts").post("/recommendations", json=body).json()
    assert answer["ignored"] == [9, "No Film"]
    assert answer["unknown_items"] == [8, "Nil"]
    assert [line["item"] for line in answer["items"]] == [140]
    plain = {"interactions": [101], "candidate_items": [140]}
    assert (
        client_of("hearts").post("/recommendations", json=plain).json()["items"] == answer["items"]
    )


def test_chances_of_picks_are_of_all_that_is_not_known(client_of: ClientOf) -> None:
    body = {"interactions": [*history()], "n": ITEMS}
    lines = client_of("hearts").post("/recommendations", json=body).json()["items"]
    assert sum(line["interaction_probability"] for line in lines) == pytest.approx(1, abs=1e-5)
    body = {"ratings": rated(history()), "n": ITEMS, "balance": 0.5, "threshold": 3}
    for line in client_of("lists").post("/recommendations", json=body).json()["items"]:
        liked = sum(line["probabilities"][2:])
        assert line["score"] == pytest.approx(line["interaction_probability"] * liked, rel=1e-5)


def test_nothing_known_explains_no_pick(client_of: ClientOf) -> None:
    body = {"interactions": [], "item": 101}
    answer = client_of("hearts").post("/explanations", json=body).json()
    assert (answer["contributions"], answer["interaction_probability"], answer["prediction"]) == (
        [],
        None,
        None,
    )


@pytest.mark.parametrize(("path", "body", "status", "detail"), REFUSED)
def test_refusals_say_what_to_change(
    client: TestClient, path: str, body: dict[str, Any], status: int, detail: str
) -> None:
    answer = client.post(path, json=body)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert re.search(detail, problem["detail"]), problem
    assert problem["status"] == status
