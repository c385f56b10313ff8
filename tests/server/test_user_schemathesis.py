"""The addresses of people do as the schema says, with and without keys, and tell of nobody else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hypothesis
import pytest
import schemathesis
from schemathesis import GenerationMode

from cfnade.online.event_store import Event, EventStore
from cfnade.server.app import create_app
from cfnade.server.auth import Authenticator
from cfnade.server.model_registry import ModelRegistry

pytestmark = pytest.mark.slow  # forty-eight searches, each of many requests

KEY = "sesame"
SECRET_ITEM = "what-ben-rated"
OWN = (
    "/people/{person}",
    "/people/{person}/recommendations",
    "/people/{person}/ratings/{item}",
    "/people/{person}/ratings",
)
# Whether a rating is on the scale, and whether a person may ask, depends on more than the schema.
LEFT_OUT = [
    schemathesis.checks.positive_data_acceptance,
    schemathesis.checks.ignored_auth,
    schemathesis.checks.negative_data_rejection,
    schemathesis.checks.missing_required_header,
    schemathesis.checks.unsupported_method,
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("store") / "ratings.db")
    store = EventStore.open(path, create=True)
    store.append([Event("ben", SECRET_ITEM, "rating", 5.0), Event("7", "101", "rating", 2.0)])
    store.close()
    return path


@pytest.fixture(scope="module", params=["open", "service key", "token", "no key"])
def asked(request: pytest.FixtureRequest, user_model: Path, place: str) -> Any:
    """The schema of a service, and the headers of who asks."""
    models = ModelRegistry(user_model)
    models.load()
    key = None if request.param == "open" else KEY
    schema = schemathesis.openapi.from_asgi(
        "/openapi.json", create_app(models, store=place, key=key)
    )
    token = Authenticator(KEY).signed("anna", 3600)
    headers = {
        "service key": {"x-api-key": KEY},
        "token": {"authorization": f"Bearer {token}"},
    }
    return request.param, schema, headers.get(request.param, {})


def test_all_addresses_of_people_are_in_the_schema(asked: Any) -> None:
    who, schema, _ = asked
    paths = {one.ok().path for one in schema.get_all_operations()}
    assert set(OWN) <= paths
    assert ("/people/{person}/token" in paths) == (who != "open")


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", OWN[0]),
        ("GET", OWN[1]),
        ("PUT", OWN[2]),
        ("DELETE", OWN[2]),
        ("POST", OWN[3]),
        ("DELETE", OWN[0]),
    ],
)
def test_answers_are_as_the_schema_says_and_of_nobody_else(
    asked: Any, method: str, path: str, mode: GenerationMode
) -> None:
    who, schema, headers = asked

    @hypothesis.settings(
        max_examples=8,
        derandomize=True,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(case=schema[path][method].as_strategy(generation_mode=mode))
    def ask(case: Any) -> None:
        answer = case.call_and_validate(headers=headers, excluded_checks=LEFT_OUT)
        assert answer.status_code < 500
        person = (case.path_parameters or {}).get("person")
        if who == "no key":
            assert answer.status_code in (401, 404, 405)
        if who == "token" and person != "anna":
            assert answer.status_code in (403, 404, 405, 408, 413, 415, 422)
            assert SECRET_ITEM not in answer.text

    ask()
