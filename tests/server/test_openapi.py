"""The schema is true: schemathesis finds no lie in it, and every status in it can be met."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import httpx
import hypothesis
import pytest
import schemathesis
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi as whole
from schemathesis import GenerationMode
from tests.server.given import ModelOf, TestClient, history, rated

from cfnade.server.app import create_app
from cfnade.server.model_registry import ModelRegistry
from cfnade.server.settings import Limits

OPERATIONS = [
    *(("POST", path) for path in ("/predict", "/recommend", "/explain", "/ask", "/similar")),
    *(("POST", "/match"), ("GET", "/items")),
    *(("GET", path) for path in ("/map", "/model", "/version", "/health")),
]
WITH_INPUT = OPERATIONS[:7]
# Whether a rating is on the scale depends on the model: what fits the schema may be refused.
LEFT_OUT = [schemathesis.checks.positive_data_acceptance]


def loaded(folder: Path) -> ModelRegistry:
    models = ModelRegistry(folder)
    models.load()
    return models


@pytest.fixture(scope="module", params=["both", "item", "lists", "hearts"])
def schema(request: pytest.FixtureRequest, model_of: ModelOf) -> Any:
    """The schema, bound to the service in this process, of a model of each kind of answer."""
    models = loaded(model_of(request.param))
    return schemathesis.openapi.from_asgi("/openapi.json", create_app(models))


def test_a_service_starts_before_its_schema_is_made(
    user_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    def get_openapi(**of: Any) -> dict[str, Any]:
        made.append(of["title"])
        return whole(**of)

    monkeypatch.setattr("fastapi.applications.get_openapi", get_openapi)
    client = TestClient(create_app(loaded(user_model)))
    assert not made
    assert "/recommend" in client.get("/docs").text
    assert "/recommend" in client.get("/openapi.json").json()["paths"]
    assert made == ["cfnade"]


def test_all_addresses_are_in_the_schema(schema: Any) -> None:
    found = [one.ok() for one in schema.get_all_operations()]
    assert {(one.method.upper(), one.path) for one in found} == set(OPERATIONS)


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


# -- every status that the schema names ----------------------------------------------------------

KEY = "a key of this test"
BODIES: dict[str, dict[str, Any]] = {
    "/predict": {"ratings": rated(history()), "items": [101]},
    "/recommend": {"ratings": rated(history())},
    "/explain": {"ratings": rated(history()), "item": 101},
    "/ask": {"ratings": rated(history())},
    "/similar": {"item": 101},
    "/match": {"films": []},
}


def app_for(models: ModelRegistry, status: int) -> FastAPI:
    """A service that is in the mood to give the status."""
    limits = {
        408: Limits(body_seconds=0.05),
        413: Limits(body_bytes=2),
        504: Limits(work_seconds=0.0),
    }.get(status, Limits())
    models = ModelRegistry(models.folder) if status == 503 else models  # not loaded
    return create_app(models, key=KEY, limits=limits)


def status_of(app: FastAPI, method: str, path: str, status: int) -> Any:
    """The answer to a request that deserves the status."""
    headers = {} if status == 401 else {"x-api-key": KEY}
    if status == 408:
        return anyio.run(never_sent, app, path, headers)
    client = TestClient(app)
    if method == "GET":
        return client.get(path, params={"limit": 0} if status == 422 else {}, headers=headers)
    if status == 415:
        return client.post(path, content=b"{}", headers={**headers, "content-type": "text/plain"})
    body = {422: {"odd": 1}}.get(status, BODIES[path])
    if status == 404:
        others = {name: value for name, value in body.items() if name != "ratings"}
        body = {"item": 999} if path == "/similar" else others | {"user": 999}
    return client.post(path, json=body, headers=headers)


async def never_sent(app: Any, path: str, headers: dict[str, str]) -> httpx.Response:
    """The answer to a body that begins and does not go on."""
    given = {"content-type": "application/json", "transfer-encoding": "chunked", **headers}
    said: list[Any] = []
    began = False

    async def receive() -> dict[str, Any]:
        nonlocal began
        if began:
            await anyio.sleep_forever()
        began = True
        return {"type": "http.request", "body": b"{", "more_body": True}

    async def send(message: Any) -> None:
        said.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in given.items()],
    }
    await app(scope, receive, send)
    return httpx.Response(said[0]["status"], headers=said[0]["headers"], content=said[1]["body"])


def test_every_status_in_the_schema_can_be_met(user_model: Path) -> None:
    models = loaded(user_model)
    statuses = (200, 401, 404, 408, 413, 415, 422, 503, 504)
    apps = {status: app_for(models, status) for status in statuses}
    paths = apps[200].openapi()["paths"]
    met = 0
    for path, operations in paths.items():
        for method, operation in operations.items():
            for status, documented in operation["responses"].items():
                answer = status_of(apps[int(status)], method.upper(), path, int(status))
                assert answer.status_code == int(status), (method, path, status, answer.text)
                assert answer.headers["content-type"] in documented["content"]
                for header in documented.get("headers", {}):
                    assert header in answer.headers
                met += 1
    # questions, /match, /items, /map, two reports, /health
    assert met == 5 * 9 + 8 + 5 + 4 + 2 * 3 + 2
