"""People who come back: what they say is kept and used at once, and is theirs alone."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jwt
import numpy as np
import pytest
from sqlalchemy import select
from tests.server.given import KINDS, TITLES, Asking, ModelOf, TestClient, history
from tests.support.close import assert_close

from cfnade.estimator import CFNADE
from cfnade.online.event_store import ITEMS, Event, EventStore
from cfnade.online.prequential import predicted_ratings
from cfnade.server.auth import LEEWAY_SECONDS, Authenticator

KEY = "sesame"
ALL = {"x-api-key": KEY}


@pytest.fixture
def place(tmp_path: Path) -> str:
    EventStore.open(str(tmp_path / "ratings.db"), create=True).close()
    return str(tmp_path / "ratings.db")


@pytest.fixture
def store(place: str) -> Iterator[EventStore]:
    store = EventStore.open(place)
    yield store
    store.close()


@pytest.fixture
def client(asking: Asking, user_model: Path, place: str) -> Iterator[TestClient]:
    with asking(user_model, store_url=place) as client:
        yield client


@pytest.fixture
def keyed(asking: Asking, user_model: Path, place: str) -> Iterator[TestClient]:
    with asking(user_model, store_url=place, api_key=KEY) as client:
        yield client


def token_of(client: TestClient, person: str, **wish: Any) -> dict[str, str]:
    answer = client.post(f"/users/{person}/tokens", json=wish, headers=ALL)
    assert answer.status_code == 201, answer.text
    token = answer.json()
    assert (token["token_type"], token["expires_in"]) == ("Bearer", wish.get("expires_in", 900))
    return {"authorization": f"Bearer {token['access_token']}"}


def rate(client: TestClient, person: str, ratings: dict[int, float], **headers: str) -> None:
    for item, rating in ratings.items():
        path = f"/users/{person}/ratings/{item}"
        answer = client.put(path, json={"rating": rating}, headers=headers)
        assert answer.status_code == 200, answer.text


# -- kept and used --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["user", "both", "lists", "hearts", "titled"])
def test_a_list_is_that_of_the_same_ratings_given_at_once(
    asking: Asking, model_of: ModelOf, place: str, kind: str
) -> None:
    """Compared with the Predictor, asked for the same history."""
    what, rated = KINDS[kind], history(6)
    predictor = CFNADE.load(model_of(kind))
    with asking(model_of(kind), store_url=place) as client:
        for item, rating in rated.items():
            body = {"rating": rating} if what.starred else {}
            path = f"/users/anna/ratings/{what.item(item)}"
            assert client.put(path, json=body).status_code == 200
        lists = [client.get("/users/anna/recommendations", params={"n": 40}).json()]
        client.delete(f"/users/anna/ratings/{what.item(next(iter(rated)))}")
        lists.append(client.get("/users/anna/recommendations", params={"n": 40}).json())
    everything = {what.item(item): rating for item, rating in rated.items()}
    for answer, known in zip(lists, [everything, dict(list(everything.items())[1:])], strict=True):
        right = predictor.recommend(history=known if what.starred else list(known), n=40)
        assert [line["item"] for line in answer["items"]] == right["item"].to_list()
        scores = [line["score"] for line in answer["items"]]
        np.testing.assert_allclose(scores, right["score"].to_numpy(), rtol=1e-5)
        assert answer["n_user_ratings"] == len(known)
        assert not {line["item"] for line in answer["items"]} & set(known)


def test_a_person_of_the_training_data_is_asked_with_what_counts_now(
    asking: Asking, model_of: ModelOf, place: str
) -> None:
    """Those of a joint model have weights of their own; what they rate now is excluded at once."""
    predictor = CFNADE.load(model_of("both"))
    context = predictor.fitted_.context
    mine = np.flatnonzero(context.users == predictor.predictor_.users.index(7))
    known = {
        int(context.item_ids[context.items[at]]): float(context.values[at]) for at in mine.tolist()
    }
    with asking(model_of("both"), store_url=place) as client:
        rate(client, "7", known)
        answer = client.get("/users/7/recommendations", params={"n": 40}).json()
        about = client.get("/users/7/ratings").json()
    right = predictor.recommend([7], n=40)
    assert about["in_training_data"]
    assert {line["item"]: line["rating"] for line in about["ratings"]} == known
    assert [line["item"] for line in answer["items"]] == right["item"].to_list()
    expected = [line["prediction"] for line in answer["items"]]
    np.testing.assert_allclose(expected, right["prediction"].to_numpy(), rtol=1e-5)


def test_an_item_model_answers_for_those_it_knows_and_says_so_of_others(
    asking: Asking, model_of: ModelOf, place: str
) -> None:
    with asking(model_of("item"), store_url=place) as client:
        rate(client, "7", {101: 5})
        rate(client, "anna", {101: 5})
        listed = client.get("/users/7/recommendations", params={"n": 40}).json()["items"]
        assert 101 not in [line["item"] for line in listed]
        refused = client.get("/users/anna/recommendations")
    assert refused.status_code == 422
    assert "item-based" in refused.json()["detail"]


@pytest.mark.parametrize("kind", ["user", "both", "item"])
def test_somebody_of_whom_the_store_knows_nothing_is_nobody(
    asking: Asking, model_of: ModelOf, place: str, kind: str
) -> None:
    """They may have been forgotten: what the model still knows of them is not used."""
    with asking(model_of(kind), store_url=place) as client:
        known, new = (client.get(f"/users/{who}/recommendations") for who in ("7", "nobody"))
        about = client.get("/users/7/ratings").json()
    assert known.status_code == new.status_code == (422 if kind == "item" else 200)
    assert_close(known.json(), new.json())
    assert about == {"user_id": "7", "in_training_data": False, "ratings": []}


def test_what_is_put_twice_or_deleted_twice_is_done_once(
    client: TestClient, store: EventStore
) -> None:
    path, body = "/users/anna/ratings/101", {"rating": 4}
    assert [client.put(path, json=body).json()["changed"] for _ in range(2)] == [True, False]
    for _ in range(2):
        answer = client.delete(path)
        assert (answer.status_code, answer.content) == (204, b"")
    assert store.n_events() == 2
    assert client.get("/users/anna/ratings").json()["ratings"] == []


def test_a_rating_that_cannot_be_is_refused_and_not_kept(client: TestClient) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"rating": 9}, "9 is off the model's scale 1–5; allowed are 1, 2, 3, 4, 5"),
        ({"rating": 2.5}, "2.5 is off the model's scale"),
        ({}, "give a rating on the model's scale"),
        ({"rating": "5"}, "valid number"),
        ({"stars": 5}, "extra inputs"),
    ]
    for body, detail in wrong:
        answer = client.put("/users/anna/ratings/101", json=body)
        assert answer.status_code == 422
        assert detail.lower() in answer.json()["detail"].lower()
    assert client.get("/users/anna/ratings").json()["ratings"] == []


@pytest.mark.parametrize("title", [TITLES[101], TITLES[101].lower(), TITLES[101][:-7]])
def test_an_item_may_be_given_by_its_title(client: TestClient, title: str) -> None:
    """It is stored under its id, and no second item comes to be."""
    path = f"/users/anna/ratings/{quote(title, safe='')}"
    kept = client.put(path, json={"rating": 4}).json()
    assert (kept["item"], kept["title"], kept["in_model"]) == (101, TITLES[101], True)
    assert not client.put("/users/anna/ratings/101", json={"rating": 4}).json()["changed"]
    assert [one["item"] for one in client.get("/users/anna/ratings").json()["ratings"]] == [101]
    assert client.delete(path).status_code == 204
    assert client.get("/users/anna/ratings").json()["ratings"] == []


def test_an_item_that_the_store_has_is_not_taken_for_a_title(
    client: TestClient, store: EventStore
) -> None:
    store.register_item(TITLES[101].lower())
    path = f"/users/anna/ratings/{quote(TITLES[101].lower(), safe='')}"
    assert client.put(path, json={"rating": 4}).json()["item"] == TITLES[101].lower()


def test_several_ratings_are_kept_as_one_by_one(client: TestClient) -> None:
    ratings = [{"item": item, "rating": rating} for item, rating in history(6).items()]
    titled = [{"title": TITLES[item], "rating": rating} for item, rating in history(6).items()]
    people: dict[str, list[Any]] = {"anna": ratings, "ben": titled}
    for who, given in people.items():
        unknown = {"title": "No such film", "rating": 3.0}
        answer = client.post(f"/users/{who}/ratings", json={"ratings": [*given, unknown]})
        assert answer.status_code == 200, answer.text
        assert answer.json()["unknown_items"] == [unknown["title"]]
        assert [one["item"] for one in answer.json()["ratings"]] == list(history(6))
        assert all(one["changed"] for one in answer.json()["ratings"])
    rate(client, "carl", history(6))
    stored = [
        client.get(f"/users/{who}/ratings").json()["ratings"] for who in ("anna", "ben", "carl")
    ]
    kept = [{one["item"]: one["rating"] for one in ratings} for ratings in stored]
    assert kept == [history(6)] * 3


@pytest.mark.parametrize(
    ("ratings", "detail"),
    [
        ([{"item": 101, "rating": 4}, {"item": 102, "rating": 9}], "ratings[1].rating: 9 is off"),
        ([{"item": 101, "rating": 4}, {"title": TITLES[101], "rating": 3}], "more than once"),
        ([{"item": 101, "rating": 4}, {"rating": 3}], "ratings[1]: give either item"),
        ([{"item": 101, "rating": 4}] * 1_001, "at most 1000 items"),
        ([], "at least 1 item"),
    ],
)
def test_several_ratings_of_which_one_is_wrong_are_all_refused(
    client: TestClient, ratings: list[dict[str, Any]], detail: str
) -> None:
    answer = client.post("/users/anna/ratings", json={"ratings": ratings})
    assert answer.status_code == 422
    assert detail in answer.json()["detail"]
    assert client.get("/users/anna/ratings").json()["ratings"] == []


def test_the_service_key_erases_a_user(keyed: TestClient, place: str) -> None:
    rate(keyed, "anna-unmistakable", history(4), **ALL)
    rate(keyed, "ben", {101: 5}, **ALL)
    for _ in range(2):  # the second time there is nothing to erase
        answer = keyed.delete("/users/anna-unmistakable", headers=ALL)
        assert (answer.status_code, answer.content) == (204, b"")
    assert keyed.get("/users/anna-unmistakable/ratings", headers=ALL).json()["ratings"] == []
    assert len(keyed.get("/users/ben/ratings", headers=ALL).json()["ratings"]) == 1
    for file in Path(place).parent.glob(f"{Path(place).name}*"):
        assert b"anna-unmistakable" not in file.read_bytes()


# -- registered items -----------------------------------------------------------------------------


def test_an_unknown_item_is_rated_once_it_is_registered(client: TestClient) -> None:
    path = "/users/anna/ratings/a new film"
    assert client.put(path, json={"rating": 5}).status_code == 404
    item = {"title": "A new film (2026)", "genres": ["Drama", "Comedy"]}
    registered = client.put("/items/a new film", json=item)
    assert registered.status_code == 200
    assert registered.json() == {"item": "a new film", "in_model": False, **item}
    rating = client.put(path, json={"rating": 5}).json()
    assert (rating["item"], rating["in_model"], rating["changed"]) == ("a new film", False, True)
    (stored,) = client.get("/users/anna/ratings").json()["ratings"]
    assert rating["title"] == stored["title"] == item["title"]
    listed = client.get("/users/anna/recommendations", params={"n": 40}).json()["items"]
    assert "a new film" not in [line["item"] for line in listed]  # the model does not know it yet


def test_a_registered_item_keeps_its_title_until_it_gets_another(
    client: TestClient, store: EventStore
) -> None:
    for item in ({"title": "First", "genres": ["Drama", "War"]}, {}, {"title": "Second"}):
        assert client.put("/items/new", json=item).status_code == 200
    with store.read() as connection:
        rows = connection.execute(select(ITEMS.c.item_id, ITEMS.c.title, ITEMS.c.genres)).all()
    assert [tuple(row) for row in rows] == [("new", "Second", "Drama|War")]


def test_only_the_service_registers_items(keyed: TestClient) -> None:
    token = token_of(keyed, "anna")
    assert keyed.put("/items/odd", json={}, headers=token).status_code == 403
    assert keyed.put("/users/anna/ratings/odd", json={"rating": 5}, headers=ALL).status_code == 404
    assert keyed.put("/items/odd", json={}, headers=ALL).status_code == 200
    assert keyed.put("/users/anna/ratings/odd", json={"rating": 5}, headers=token).is_success


def test_filters_of_a_stored_user_take_ids_and_titles(client: TestClient) -> None:
    rate(client, "anna", history(5))
    params: dict[str, Any] = {"n": 40, "min_ratings": 0}
    every = client.get("/users/anna/recommendations", params=params).json()["items"]
    first, second = (line["item"] for line in every[:2])
    out = params | {"exclude_items": [str(first), TITLES[second], "No such film"]}
    answer = client.get("/users/anna/recommendations", params=out).json()
    assert [line["item"] for line in answer["items"]] == [line["item"] for line in every[2:]]
    assert answer["unknown_items"] == ["No such film"]
    seen = params | {"exclude_seen": False}
    again = client.get("/users/anna/recommendations", params=seen).json()["items"]
    assert {line["item"] for line in again} == set(TITLES)


# -- rights ---------------------------------------------------------------------------------------


def test_a_token_opens_what_is_the_persons_and_nothing_else(keyed: TestClient) -> None:
    rate(keyed, "ben", {101: 5}, **ALL)
    token = token_of(keyed, "anna")
    assert keyed.put("/users/anna/ratings/101", json={"rating": 4}, headers=token).is_success
    assert keyed.get("/users/anna/ratings", headers=token).is_success
    assert keyed.get("/users/anna/recommendations", headers=token).is_success
    ratings = [{"item": 101, "rating": 4}]
    assert keyed.post("/recommendations", json={"ratings": ratings}, headers=token).is_success
    others = [
        ("GET", "/users/{who}/ratings", None),
        ("GET", "/users/{who}/recommendations", None),
        ("PUT", "/users/{who}/ratings/101", {"rating": 1}),
        ("DELETE", "/users/{who}/ratings/101", None),
        ("POST", "/users/{who}/tokens", {}),
        ("POST", "/users/{who}/ratings", {"ratings": [{"item": 101, "rating": 1}]}),
        ("DELETE", "/users/{who}", None),
    ]
    for method, path, body in others:
        said = {
            keyed.request(method, path.format(who=who), json=body, headers=token).text
            for who in ("ben", "7", "nobody", "x" * 300)
        }
        assert len(said) == 1, said  # the same of somebody who is there and of who is not
        assert '"status":403' in said.pop()
    assert keyed.post("/users/anna/tokens", json={}, headers=token).status_code == 403
    assert keyed.delete("/users/anna", headers=token).status_code == 403
    assert keyed.get("/metrics", headers=token).status_code == 403
    assert keyed.get("/users/ben/ratings", headers=ALL).json()["ratings"][0]["rating"] == 5


def test_a_token_asks_of_no_user_of_the_model(keyed: TestClient) -> None:
    """Of none whatever their id is: 0 is one, too."""
    token = token_of(keyed, "7")
    asked: dict[str, dict[str, Any]] = {
        "/predictions": {"items": [101]},
        "/explanations": {"item": 101},
        "/recommendations": {},
        "/items-to-rate": {},
    }
    for path, beside in asked.items():
        said = set()
        users: list[Any] = [7, 8, 10**6, 0, "anna"]
        for user in users:
            answer = keyed.post(path, json={"user_id": user, **beside}, headers=token)
            assert answer.status_code == 403
            said.add(answer.text)
        assert len(said) == 1  # of one whom the model knows no other than of one it does not


def test_a_token_asks_with_ratings_of_no_other_user(keyed: TestClient) -> None:
    """Whether a user is known would show."""
    token = token_of(keyed, "anna")
    new = [{"item": "x", "ratings": [{"user_id": 7, "rating": 5}]}]
    body = {"ratings": [{"item": 101, "rating": 4}], "items": ["x"], "new_items": new}
    assert keyed.post("/predictions", json=body, headers=token).status_code == 403
    assert keyed.post("/predictions", json=body, headers=ALL).status_code == 200


def forged(**claims: Any) -> str:
    now = int(time.time())
    return jwt.encode(
        {"sub": "anna", "aud": "cfnade", "exp": now + 60} | claims, "x" * 32, algorithm="HS256"
    )


def with_secret(**changed: Any) -> str:
    tokens = Authenticator(KEY)
    now = int(time.time())
    claims = {"sub": "anna", "aud": "cfnade", "exp": now + 60} | changed
    claims = {name: value for name, value in claims.items() if value is not None}
    return jwt.encode(claims, tokens._secret, algorithm="HS256")


def test_a_token_that_is_none_is_no_key(keyed: TestClient) -> None:
    wrong: list[Callable[[], str]] = [
        lambda: forged(),
        lambda: jwt.encode({"sub": "anna", "aud": "cfnade", "exp": 2**40}, "", algorithm="none"),
        lambda: with_secret(exp=int(time.time()) - LEEWAY_SECONDS - 1),
        lambda: with_secret(iat=int(time.time()) + LEEWAY_SECONDS + 60),
        lambda: with_secret(exp=None),
        lambda: with_secret(aud="other"),
        lambda: with_secret(sub=None),
        lambda: Authenticator("another key").issue_token("anna", 60),
        lambda: "nonsense",
        lambda: "é",
        lambda: "a.b.c",
    ]
    for token in wrong:
        headers: Any = {"authorization": f"Bearer {token()}".encode()}
        assert keyed.get("/users/anna/ratings", headers=headers).status_code == 401


def test_a_token_of_a_clock_that_differs_a_little_is_good(keyed: TestClient) -> None:
    now = int(time.time())
    for claims in ({"exp": now - 5}, {"iat": now + 20}, {"nbf": now + 20}):
        headers = {"authorization": f"Bearer {with_secret(**claims)}"}
        assert keyed.get("/users/anna/ratings", headers=headers).status_code == 200


def test_a_token_ends(keyed: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    earlier = time.time() - 200  # the token's clock; it is read by the real one
    with monkeypatch.context() as then:
        then.setattr("cfnade.server.auth.time.time", lambda: earlier)
        token, longer = (token_of(keyed, "anna", expires_in=n) for n in (90, 400))
    assert keyed.get("/users/anna/ratings", headers=longer).status_code == 200
    assert keyed.get("/users/anna/ratings", headers=token).status_code == 401


def test_without_a_key_nobody_needs_a_token(client: TestClient) -> None:
    assert client.get("/users/anna/ratings").status_code == 200
    assert client.post("/users/anna/tokens", json={}).status_code in (404, 405)


def test_without_a_store_there_are_no_people(asking: Asking, user_model: Path) -> None:
    with asking(user_model) as client:
        assert client.get("/users/anna/ratings").status_code == 404


# -- figures --------------------------------------------------------------------------------------


def figure(client: TestClient, name: str) -> float:
    lines = client.get("/metrics").text.splitlines()
    return float(next(line for line in lines if line.startswith(name)).split()[-1])


def test_every_rating_is_foreseen_from_what_came_before(
    client: TestClient, store: EventStore, user_model: Path
) -> None:
    rated = history(8)
    rate(client, "anna", rated)
    limit = time.monotonic() + 30
    while predicted_ratings(store, limit=None).height < len(rated) and time.monotonic() < limit:
        time.sleep(0.02)
    noted = predicted_ratings(store, limit=None)
    predictor, items = CFNADE.load(user_model), list(rated)
    right = [
        float(predictor.predict("anna", item, histories={"anna": dict(list(rated.items())[:n])})[0])
        for n, item in enumerate(items)
    ]
    np.testing.assert_allclose(noted["prediction"].to_numpy(), right, rtol=1e-5)
    assert noted["rating"].to_list() == list(rated.values())
    assert noted["user_in_model"].to_list() == [False] * len(rated)
    errors = np.array(right) - np.array(list(rated.values()))
    rmse = float(np.sqrt(np.square(errors).mean()))
    assert figure(client, "cfnade_online_rmse") == pytest.approx(rmse, rel=1e-5)
    assert figure(client, "cfnade_store_events") == len(rated)
    rate(client, "7", {101: 3})
    assert figure(client, 'cfnade_user_requests_total{in_model="true"}') == 1
    assert figure(client, 'cfnade_user_requests_total{in_model="false"}') == len(rated)


def test_names_of_people_are_in_no_figure(client: TestClient) -> None:
    rate(client, "anna-unmistakable", {101: 4})
    client.get("/users/anna-unmistakable/recommendations")
    text = client.get("/metrics").text
    assert "unmistakable" not in text
    assert 'path="/users/{user_id}/ratings/{item_id}"' in text


# -- trouble --------------------------------------------------------------------------------------


def test_a_locked_store_is_a_503_and_nothing_is_lost(client: TestClient, place: str) -> None:
    client.put("/users/anna/ratings/101", json={"rating": 4})
    blocker = sqlite3.connect(place, isolation_level=None)
    blocker.execute("begin immediate")
    answer = client.put("/users/anna/ratings/102", json={"rating": 4})
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"
    assert "locked" in answer.json()["detail"]
    assert client.get("/users/anna/ratings").status_code == 200  # who reads does not wait
    blocker.close()
    assert client.put("/users/anna/ratings/102", json={"rating": 4}).json()["changed"]
    assert len(client.get("/users/anna/ratings").json()["ratings"]) == 2


def test_ratings_of_another_program_are_seen_at_once(client: TestClient, store: EventStore) -> None:
    rate(client, "anna", {101: 4})
    store.append([Event("anna", "102", "rating", 5.0), Event("anna", "101", "withdrawal")])
    assert [one["item"] for one in client.get("/users/anna/ratings").json()["ratings"]] == [102]


def test_an_id_may_hold_a_slash(client: TestClient) -> None:
    client.put("/items/Face%2FOff (1997)", json={})
    answer = client.put("/users/anna/ratings/Face%2FOff (1997)", json={"rating": 4})
    assert (answer.status_code, answer.json()["item"]) == (200, "Face/Off (1997)")
    assert client.get("/users/anna/ratings").json()["ratings"][0]["item"] == "Face/Off (1997)"
