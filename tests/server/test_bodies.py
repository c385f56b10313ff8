"""Bodies are bounded in shape before they are validated, so that a refusal costs little."""

from __future__ import annotations

import json
import time
from typing import Any, get_args

import pytest
from pydantic import BaseModel, ValidationError
from tests.server.given import JSON, TestClient

from cfnade.server import schemas
from cfnade.server.settings import (
    MAX_COLONS,
    MAX_FIELDS,
    MAX_ITEMS,
    MAX_NEW_ITEM_RATINGS,
    MAX_NEW_ITEMS,
    MAX_RATINGS,
    MAX_VALUES,
)


def rated_wrongly(count: int) -> bytes:
    """Return 20 new items, each with so many ratings that have three errors each."""
    item = {"item": 1, "ratings": [{"a": 1}] * count}
    return json.dumps({"new_items": [item] * 20, "items": [1]}).encode()


LARGE: dict[str, bytes] = {
    "invalid new items": rated_wrongly(4_999),
    "invalid new items, as many as may be": rated_wrongly(1_000),
    "unknown fields": json.dumps({f"{n:x}": 1 for n in range(90_000)}).encode(),
    "unknown fields of a rating": json.dumps(
        {"ratings": [{f"{n:x}": 1 for n in range(90_000)}]}
    ).encode(),
    "many arrays": b'{"items":[' + b"[]," * 300_000 + b"[]]}",
    "deep arrays": b'{"items":[' + (b"[" * 150 + b"]" * 150 + b",") * 3_000 + b"[]]}",
    "long lists in lists": json.dumps({"items": [["a"] * 5_000] * 30}).encode(),
}


@pytest.mark.parametrize(
    "path", ["/predictions", "/recommendations", "/explanations", "/items-to-rate"]
)
@pytest.mark.parametrize("name", LARGE)
def test_large_invalid_bodies_are_refused_at_once(client: TestClient, path: str, name: str) -> None:
    """Measured 0.002 to 0.05 s; without the bounds the first takes seconds."""
    began = time.perf_counter()
    answer = client.post(path, content=LARGE[name], headers=JSON)
    assert time.perf_counter() - began < 2.5
    assert answer.status_code == 422
    assert len(answer.content) < 1_000


def list_fields(model: type[BaseModel]) -> list[str]:
    """Return the fields of a model that hold lists, optional or not."""
    return [
        name
        for name, field in model.model_fields.items()
        if str(field.annotation).replace("typing.", "").startswith(("list", "Optional[list"))
        or any(str(one).startswith("list") for one in get_args(field.annotation))
    ]


REQUESTS: list[type[BaseModel]] = [
    schemas.PredictionRequest,
    schemas.RecommendationRequest,
    schemas.ExplanationRequest,
    schemas.MatchRequest,
    schemas.NewItem,
    schemas.ItemsToRateRequest,
]


@pytest.mark.parametrize("model", REQUESTS, ids=lambda model: model.__name__)
def test_every_list_reports_its_first_invalid_entry_only(model: type[BaseModel]) -> None:
    """A list of 15 objects with unknown fields gives the errors of one of them."""
    wrong: Any = [{"a": 1, "b": 2, "c": 3}] * 15
    names = list_fields(model)
    assert names
    for name in names:
        with pytest.raises(ValidationError) as refused:
            model.model_validate({name: wrong})
        places = {error["loc"][1] for error in refused.value.errors() if error["loc"][0] == name}
        assert places == {0}, name


def test_valid_requests_are_far_from_the_bounds() -> None:
    """Every schema has fewer fields than an object may have, and its lists fit into MAX_VALUES."""
    for model in REQUESTS:
        assert len(model.model_fields) < MAX_FIELDS / 2
    objects = MAX_RATINGS + MAX_NEW_ITEMS * (2 + MAX_NEW_ITEM_RATINGS)
    assert 2 * objects + 30_000 < MAX_COLONS
    assert objects + MAX_ITEMS < MAX_VALUES


def test_an_object_with_too_many_fields_is_refused_wherever_it_is(client: TestClient) -> None:
    wide = {f"{n}": 1 for n in range(MAX_FIELDS + 1)}
    for body in (wide, [wide], {"ratings": [wide]}, {"items": [[{"a": wide}]]}):
        answer = client.post("/predictions", json=body)
        assert answer.status_code == 422
        assert f"more than {MAX_FIELDS} fields" in answer.json()["detail"]
