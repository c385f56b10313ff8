"""The schema is true: schemathesis finds no lie in it, and every status in it can be met."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hypothesis
import pytest
import schemathesis
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi as whole
from fastapi.routing import APIRoute
from schemathesis import GenerationMode
from tests.server.given import ModelOf, TestClient, server_settings

from cfnade.online.event_store import Event, EventStore
from cfnade.server.app import create_app
from cfnade.server.auth import Authenticator
from cfnade.server.model_registry import ModelRegistry

OPERATIONS = [
    ("POST", "/predictions"),
    ("POST", "/recommendations"),
    ("POST", "/explanations"),
    ("POST", "/items-to-rate"),
    ("POST", "/items/match"),
    ("GET", "/items"),
    ("GET", "/items/{item_id}/similar"),
    ("GET", "/item-map"),
    ("GET", "/model"),
    ("GET", "/health"),
]
WITH_INPUT = OPERATIONS[:7]
STORE_OPERATIONS = [
    ("PUT", "/items/{item_id}"),
    ("GET", "/users/{user_id}/ratings"),
    ("POST", "/users/{user_id}/ratings"),
    ("PUT", "/users/{user_id}/ratings/{item_id}"),
    ("DELETE", "/users/{user_id}/ratings/{item_id}"),
    ("GET", "/users/{user_id}/recommendations"),
    ("DELETE", "/users/{user_id}"),
]
# Whether a rating is on the scale depends on the model: what fits the schema may be refused.
LEFT_OUT = [schemathesis.checks.positive_data_acceptance]


def loaded(folder: Path) -> ModelRegistry:
    models = ModelRegistry(folder)
    models.load()
    return models


def app_of(folder: Path, **options: Any) -> FastAPI:
    return create_app(loaded(folder), server_settings(folder, **options))


@pytest.fixture(scope="module", params=["both", "item", "lists", "hearts"])
def schema(request: pytest.FixtureRequest, model_of: ModelOf) -> Any:
    """The schema, bound to the service in this process, of a model of each kind of answer."""
    return schemathesis.openapi.from_asgi("/openapi.json", app_of(model_of(request.param)))


def test_a_service_starts_before_its_schema_is_made(
    user_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    def get_openapi(**options: Any) -> dict[str, Any]:
        made.append(options["title"])
        return whole(**options)

    monkeypatch.setattr("fastapi.applications.get_openapi", get_openapi)
    client = TestClient(app_of(user_model))
    assert not made
    assert "/recommendations" in client.get("/openapi.json").json()["paths"]
    assert made == ["cfnade"]


def operations(schema: Any) -> set[tuple[str, str]]:
    found = [one.ok() for one in schema.get_all_operations()]
    return {(one.method.upper(), one.path) for one in found}


def test_all_routes_are_in_the_schema(schema: Any) -> None:
    assert operations(schema) == set(OPERATIONS)


@pytest.mark.parametrize("key", [None, "a key of this test"])
def test_routes_of_users_are_there_with_a_store(
    user_model: Path, stored: str, key: str | None
) -> None:
    app = app_of(user_model, store_url=stored, api_key=key)
    found = operations(schemathesis.openapi.from_asgi("/openapi.json", app))
    tokens = {("POST", "/users/{user_id}/tokens")} if key else set()
    assert found == {*OPERATIONS, *STORE_OPERATIONS} | tokens


def check(operation: Any, mode: GenerationMode) -> None:
    """Ask many things, valid or broken; any answer that the schema does not promise fails."""

    @hypothesis.settings(
        max_examples=20,
        derandomize=True,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
    def ask(case: Any) -> None:
        case.call_and_validate(excluded_checks=LEFT_OUT)

    ask()


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_what_fits_the_schema_is_answered_as_it_says(schema: Any, method: str, path: str) -> None:
    check(schema[path][method], GenerationMode.POSITIVE)


# The schema is the same of all models, and so is what breaks it; it is refused before one is asked.
@pytest.mark.parametrize("schema", ["both", "hearts"], indirect=True)
@pytest.mark.parametrize(("method", "path"), WITH_INPUT)
def test_what_breaks_the_schema_is_refused_as_it_says(schema: Any, method: str, path: str) -> None:
    check(schema[path][method], GenerationMode.NEGATIVE)


# -- users --------------------------------------------------------------------------------------

KEY = "a key of this test"
SECRET_ITEM = "what-ben-rated"
# Whether a rating is on the scale, and whether a user may ask, depends on more than the schema.
LEFT_OUT_OF_USERS = [
    *LEFT_OUT,
    schemathesis.checks.ignored_auth,
    schemathesis.checks.negative_data_rejection,
    schemathesis.checks.missing_required_header,
    schemathesis.checks.unsupported_method,
]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("store") / "ratings.db")
    store = EventStore.open(path, create=True)
    store.append([Event("ben", SECRET_ITEM, "rating", 5.0), Event("7", "101", "rating", 2.0)])
    store.close()
    return path


@pytest.fixture(scope="module", params=["open", "service key", "token", "no key"])
def access(request: pytest.FixtureRequest, user_model: Path, stored: str) -> Any:
    """Who sends requests, the schema, and the headers."""
    key = None if request.param == "open" else KEY
    app = app_of(user_model, store_url=stored, api_key=key)
    token = Authenticator(KEY).issue_token("anna", 3600)
    headers = {
        "service key": {"x-api-key": KEY},
        "token": {"authorization": f"Bearer {token}"},
    }
    schema = schemathesis.openapi.from_asgi("/openapi.json", app)
    return request.param, schema, headers.get(request.param, {})


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
@pytest.mark.parametrize(("method", "path"), STORE_OPERATIONS)
def test_answers_about_users_are_as_the_schema_says(
    access: Any, method: str, path: str, mode: GenerationMode
) -> None:
    who, schema, headers = access

    @hypothesis.settings(
        max_examples=5,
        derandomize=True,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(case=schema[path][method].as_strategy(generation_mode=mode))
    def ask(case: Any) -> None:
        answer = case.call_and_validate(headers=headers, excluded_checks=LEFT_OUT_OF_USERS)
        assert answer.status_code < 500
        user = (case.path_parameters or {}).get("user_id")
        if who == "no key":
            assert answer.status_code in (401, 404, 405, 422)
        if who == "token" and user != "anna":
            assert answer.status_code in (403, 404, 405, 408, 413, 422)
        if who in ("token", "no key"):
            assert SECRET_ITEM not in answer.text

    ask()


OPEN = {"/health", "/", "/docs", "/openapi.json"}


def test_every_route_but_a_few_requires_the_key(user_model: Path, stored: str) -> None:
    """Dependencies are opt-in: a route that is added without them would be open."""
    app = app_of(user_model, store_url=stored, api_key=KEY)
    client, closed = TestClient(app), set()
    for route in all_routes(app):
        for method in route.methods or ():
            path = route.path.replace(":path}", "}").format(user_id="anna", item_id="101")
            answer = client.request(method, path, json={})
            assert (answer.status_code == 401) == (path not in OPEN), (method, path)
            closed.add((method, route.path.replace(":path}", "}")))
    tokens = ("POST", "/users/{user_id}/tokens")
    assert closed >= {*OPERATIONS, *STORE_OPERATIONS, tokens, ("GET", "/metrics")}


def all_routes(app: FastAPI) -> list[Any]:
    """Return the routes of all routers, as FastAPI has them."""
    found, pending = [], list(app.routes)
    while pending:
        route = pending.pop()
        inner = getattr(getattr(route, "original_router", None), "routes", None)
        if inner is not None and not isinstance(route, APIRoute):
            pending.extend(inner)
        elif getattr(route, "methods", None):
            found.append(route)
    return found
