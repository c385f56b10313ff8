"""Every kind of model through the whole service, with the numbers that Python gives."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import numpy as np
import polars as pl
import pytest
from pydantic import BaseModel
from tests.server.given import (
    GENRES,
    KINDS,
    TITLES,
    ClientOf,
    Kind,
    ModelOf,
    genres_of,
    history,
    who,
)
from tests.support.close import assert_close

import cfnade
from cfnade.server import schemas

WHEN = 950_000_000
ANSWERS: dict[str, type[BaseModel]] = {
    "/predictions": schemas.PredictionResponse,
    "/recommendations": schemas.RecommendationResponse,
    "/explanations": schemas.ExplanationResponse,
}


@pytest.fixture(scope="module", params=KINDS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def kind(name: str) -> Kind:
    return KINDS[name]


@pytest.fixture(scope="module")
def estimator(model_of: ModelOf, name: str) -> cfnade.CFNADE:
    return cfnade.CFNADE.load(model_of(name))


class Asker:
    """Somebody new or a known user, for the service and for Python."""

    def __init__(self, kind: Kind, *, is_new: bool) -> None:
        self.may_ask = kind.new_people if is_new else kind.known_users
        self.body: dict[str, Any] = who(history(6), kind) if is_new else {"user_id": 7}
        past: Any = {kind.item(item): rating for item, rating in history(6).items()}
        past = past if kind.starred else [*past]
        self.user = "me" if is_new else 7
        self.histories = {"me": past} if is_new else None
        self.arguments: dict[str, Any] = {"history": past} if is_new else {"user": 7}


@pytest.fixture(scope="module", params=["new", "known"])
def asker(request: pytest.FixtureRequest, kind: Kind) -> Asker:
    return Asker(kind, is_new=request.param == "new")


class Ask:
    """A POST whose answer keeps to the schema, or is a refusal that says why."""

    def __init__(self, client_of: ClientOf, name: str) -> None:
        self.client = client_of(name)

    def __call__(self, path: str, body: dict[str, Any], refusal: str | None) -> Any:
        answer = self.client.post(path, json=body)
        if refusal is None:
            assert answer.status_code == 200, answer.text
            ANSWERS[path].model_validate_json(answer.content, strict=True, extra="forbid")
            return answer.json()
        assert answer.status_code == 422
        assert refusal in answer.json()["detail"]
        return None


@pytest.fixture(scope="module")
def ask(client_of: ClientOf, name: str) -> Ask:
    return Ask(client_of, name)


def refusal_of(kind: Kind, asker: Asker) -> str | None:
    """Why this kind makes no list for them."""
    if not kind.lists:
        return "predictions of this model depend on"
    if asker.may_ask:
        return None
    return "item-based" if kind.known_users else "without the ratings"


def numbers(frame: pl.DataFrame) -> list[dict[str, Any]]:
    """Lines of a frame by the names of the service; null for what the frame does not say."""
    lines = []
    for line in frame.to_dicts():
        chances = [chance for name, chance in line.items() if name.startswith("p_")]
        lines.append(
            {name: line.get(name) for name in COLUMNS} | {"probabilities": chances or None}
        )
    return lines


COLUMNS = ["item", "title", "score", "interaction_probability"]
COLUMNS += ["prediction", "std", "n_item_ratings"]


def served(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: line.get(name) for name in [*COLUMNS, "probabilities"]} for line in lines]


def test_predictions(kind: Kind, asker: Asker, ask: Ask, estimator: cfnade.CFNADE) -> None:
    items = [kind.item(item) for item in (101, 117, 140)]
    body, times = asker.body | {"items": items}, None
    if not kind.starred:
        ask("/predictions", body, "knows no ratings to predict")
        return
    if not kind.lists:
        ask("/predictions", body, "give timestamp")
        times = WHEN
        body["timestamp"] = WHEN
    answer = ask("/predictions", body, None if asker.may_ask else refusal_of(kind, asker))
    if answer is None:
        return
    frame = estimator.predict_frame(asker.user, items, histories=asker.histories, timestamp=times)
    assert_close(served(answer["predictions"]), numbers(frame))
    assert answer["unknown_items"] == answer["ignored"] == []
    titles = [TITLES[101], TITLES[117], TITLES[140]]
    assert [line["title"] for line in answer["predictions"]] == titles
    assert_close(ask("/predictions", body | {"items": titles}, None), answer)


HOW: dict[str, dict[str, Any]] = {
    "as the model likes": {},
    "what is picked": {"rank_by": "interaction", "balance": 0.0},
    "what is rated highest": {"rank_by": "interaction", "balance": 1.0},
    "what is liked": {"rank_by": "threshold", "threshold": 4},
    "twice as personal": {"rank_by": "prediction", "personalization": 2.0},
    "varied": {"diversity": 0.6},
    "of some": {"candidate_items": [101, 120, 121, 122, 140], "min_ratings": 0},
    "but not of some": {"exclude_items": [101, 120, 121, 122, 140], "n": 40, "min_ratings": 0},
    "of genres": {"genres": ["comedy", "Horror"], "n": 40, "min_ratings": 0},
}


def refusal_to(kind: Kind, how: dict[str, Any]) -> str | None:
    """Why this kind makes no such list."""
    rank = how.get("rank_by", kind.ranks[0])
    if rank not in kind.ranks:
        return "has not learned interactions" if kind.starred else "predicts no ratings"
    if "balance" in how and not kind.starred:
        return "concerns ratings"
    return "have no genres" if "genres" in how and kind.ids_are_titles else None


@pytest.mark.parametrize("how", HOW)
def test_lists(how: str, kind: Kind, asker: Asker, ask: Ask, estimator: cfnade.CFNADE) -> None:
    wish = {"n": 10} | HOW[how]
    for name in ("candidate_items", "exclude_items"):
        if name in wish:
            wish[name] = [kind.item(item) for item in wish[name]]
    answer = ask(
        "/recommendations", asker.body | wish, refusal_of(kind, asker) or refusal_to(kind, wish)
    )
    if answer is None:
        return
    arguments = {"users" if name == "user" else name: one for name, one in asker.arguments.items()}
    frame = estimator.recommend(**{**arguments, **wish})
    assert_close(served(answer["items"]), numbers(frame))
    items = [line["item"] for line in answer["items"]]
    assert [line["rank"] for line in answer["items"]] == list(range(1, len(items) + 1))
    told = kind.picks and wish.get("rank_by", "interaction") == "interaction"
    assert all((line["interaction_probability"] is not None) == told for line in answer["items"])
    assert all((line["interval"] is not None) == kind.starred for line in answer["items"])
    assert set(items) <= set(wish.get("candidate_items", items))
    assert not set(items) & set(wish.get("exclude_items", []))
    if "genres" in wish:
        assert items
        assert all({"Comedy", "Horror"} & {*genres_of(item).split("|")} for item in items)


def test_reasons(kind: Kind, asker: Asker, ask: Ask, estimator: cfnade.CFNADE) -> None:
    """By the person's ratings where the model reads them, by the item's where it does not."""
    body = asker.body | {"item": kind.item(140)}
    if not kind.starred:
        ask("/explanations", body | {"target": "rating"}, "predicts no ratings")
        return
    answer = ask("/explanations", body | {"target": "rating"}, refusal_of(kind, asker))
    if answer is None:
        return
    assert_close(ask("/explanations", body, None), answer)
    frame = estimator.explain(item=kind.item(140), **asker.arguments)
    names = ("item", "title") if kind.new_people else ("count",)
    lines = frame.select(*names, "rating", "prediction_without", "difference").to_dicts()
    assert lines != []
    assert_close(answer["contributions"], lines)
    assert (answer["title"], answer["interaction_probability"]) == (TITLES[140], None)
    assert_close(answer["prediction"]["prediction"], frame["prediction"][0])


def test_reasons_of_a_pick(kind: Kind, asker: Asker, ask: Ask, estimator: cfnade.CFNADE) -> None:
    refusal = refusal_of(kind, asker) or (None if kind.picks else "has not learned interactions")
    body = asker.body | {"item": kind.item(140)}
    answer = ask("/explanations", body | {"target": "interaction"}, refusal)
    if answer is None:
        return
    frame = estimator.explain(item=kind.item(140), target="interaction", **asker.arguments)
    lines = frame.drop("interaction_probability").to_dicts()
    assert lines != []
    assert_close(answer["contributions"], [{"rating": None} | line for line in lines])
    assert all((line["rating"] is not None) == kind.starred for line in answer["contributions"])
    assert answer["prediction"] is None
    assert_close(answer["interaction_probability"], frame["interaction_probability"][0])
    for line in answer["contributions"]:
        assert line["lift"] == pytest.approx(
            answer["interaction_probability"] / line["prediction_without"]
        )


@pytest.mark.parametrize("by_title", [True, False])
def test_items_like_one(
    kind: Kind, by_title: bool, client_of: ClientOf, name: str, estimator: cfnade.CFNADE
) -> None:
    item = quote(TITLES[117] if by_title else str(kind.item(117)), safe="")
    found = client_of(name).get(f"/items/{item}/similar", params={"n": 7})
    schemas.SimilarItemsResponse.model_validate_json(found.content, strict=True, extra="forbid")
    answer = found.json()
    frame = estimator.similar_items(kind.item(117), n=7)
    assert_close(answer["items"], frame.to_dicts())
    assert (answer["item"], answer["title"]) == (kind.item(117), TITLES[117])
    assert answer["metric"] == ("lift" if kind.picks else "cosine")
    assert len(answer["items"]) == 7


def test_the_model_says_truly_what_it_can(name: str, kind: Kind, client_of: ClientOf) -> None:
    client = client_of(name)
    answer = client.get("/model")
    schemas.ModelResponse.model_validate_json(answer.content, strict=True, extra="forbid")
    model = answer.json()
    assert (model["side"], model["rank_by"]) == (kind.side, kind.ranks)
    assert model["capabilities"] == {
        "ratings": kind.starred,
        "interactions": kind.picks,
        "new_users": kind.new_people,
        "recommendations": kind.lists,
        "titles": True,
        "stored_ratings": False,
        "tokens": False,
    }
    assert model["scale"] == ([1, 2, 3, 4, 5] if kind.starred else [])
    assert model["genres"] == ([] if kind.ids_are_titles else GENRES)
    for sample in model["sample_profiles"]:  # whatever the page begins with can be asked
        if kind.starred:
            ratings = [{"item": one["item"], "rating": one["rating"]} for one in sample["ratings"]]
            answer = client.post("/recommendations", json={"ratings": ratings})
        else:
            assert all(one["rating"] is None for one in sample["ratings"])
            picked = [one["item"] for one in sample["ratings"]]
            answer = client.post("/recommendations", json={"interactions": picked})
        assert answer.status_code == (200 if kind.new_people else 422)
        assert answer.json().get("ignored", []) == []
        assert {one["title"] for one in sample["ratings"]} <= set(TITLES.values())


def test_the_catalogue_has_titles_and_counts(
    name: str, kind: Kind, client_of: ClientOf, estimator: cfnade.CFNADE
) -> None:
    client = client_of(name)
    first = client.get("/items", params={"q": "bakeke film"}).json()["items"][0]
    assert (first["item"], first["title"]) == (kind.item(102), TITLES[102])
    films = [{"title": "The Film Bakeketi", "year": 1951}, {"title": "Quite Another"}]
    matches = client.post("/items/match", json={"items": films}).json()["matches"]
    assert matches == [{"item": kind.item(102), "title": TITLES[102]}, None]
    best = client.get("/items", params={"limit": 5}).json()["items"]
    items = [one["item"] for one in client.get("/items", params={"limit": 40}).json()["items"]]
    assert sorted(items) == sorted(kind.item(item) for item in TITLES)
    if kind.known_users:
        times = None if kind.lists else WHEN
        if kind.starred:
            frame = estimator.predict_frame(7, items, timestamp=times)
            counts = frame["n_item_ratings"].to_numpy()
        else:
            everything = estimator.recommend(users=7, n=40, exclude_seen=False)
            known = dict(everything.select("item", "n_item_ratings").iter_rows())
            counts = np.array([known[item] for item in items])
        assert (np.diff(counts) <= 0).all()
        assert [one["n_item_ratings"] for one in best] == counts[:5].tolist()
