"""What clients send: bodies, paths and long computations must not harm the service or others.

Bounds on time are generous, because the machine may be busy; without the defences the waits are
several times longer.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError
from tests.server.given import (
    JSON,
    TITLES,
    ClientOf,
    ModelOf,
    TestClient,
    history,
    rated,
    serving,
)

from cfnade.inference.predictor import Predictor
from cfnade.server import schemas
from cfnade.server.model_registry import ModelRegistry
from cfnade.server.routers import inference, items
from cfnade.server.settings import (
    MAX_COLONS,
    MAX_FIELDS,
    MAX_ITEMS,
    MAX_NEW_ITEM_RATINGS,
    MAX_NEW_ITEMS,
    MAX_RATINGS,
    MAX_VALUES,
    Limits,
)
from cfnade.utils.cancellation import ComputationCancelledError, cancelled_by, check_cancelled

# -- broken bodies ---------------------------------------------------------------------------------

PATHS = ["/predictions", "/recommendations", "/explanations", "/items-to-rate", "/items/match"]
DEEP = 50_000

RAW = {
    "nan": b'{"ratings":[{"item":101,"rating":NaN}]}',
    "infinity": b'{"ratings":[{"item":101,"rating":Infinity}]}',
    "minus infinity": b'{"ratings":[{"item":101,"rating":-Infinity}]}',
    "overflow": b'{"ratings":[{"item":101,"rating":1e999}]}',
    "huge id": b'{"ratings":[{"item":%s,"rating":5}]}' % (b"9" * 4000),
    "endless id": b'{"ratings":[{"item":%s,"rating":5}]}' % (b"9" * 500_000),
    "deep list": b"[" * DEEP + b"]" * DEEP,
    "deep object": b'{"ratings":' * DEEP + b"1" + b"}" * DEEP,
    "deep and open": b"[" * DEEP,
    "lone surrogate": b'{"ratings":[{"title":"\\ud800","rating":5}]}',
    "not utf-8": b'{"ratings":[{"title":"\xff\xfe","rating":5}]}',
    "byte order mark": b'\xef\xbb\xbf{"ratings":[]}',
    "utf-16": '{"ratings":[]}'.encode("utf-16"),
    "nothing": b"",
    "null": b"null",
    "a text": b'"ratings"',
    "a number": b"5",
    "a list": b"[]",
    "two objects": b"{}{}",
    "a comment": b'{"ratings":[]/* */}',
    "zero byte": b'{"ratings":[]}\x00',
    "wrong types": b'{"ratings":{"101":5}}',
    "texts for numbers": b'{"ratings":[{"item":101,"rating":"5"}]}',
    "truths for numbers": b'{"ratings":[{"item":true,"rating":true}]}',
    "long title": b'{"ratings":[{"title":"%s","rating":5}]}' % (b"x" * 301),
    "too many": b'{"ratings":[%s]}' % b",".join([b'{"item":101,"rating":5}'] * 5001),
    "prototype": b'{"__proto__":{"ratings":[]},"constructor":1}',
}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", RAW)
def test_broken_bodies_are_refused(client: TestClient, path: str, name: str) -> None:
    answer = client.post(path, content=RAW[name], headers=JSON)
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert len(answer.content) < 2_000  # what was sent does not come back
    assert "Traceback" not in problem["detail"]
    assert ".py" not in problem["detail"]


@pytest.mark.parametrize("path", PATHS)
def test_ten_megabytes_are_too_long_declared_or_not(client: TestClient, path: str) -> None:
    ten = b"[" + b"1," * 5_000_000 + b"1]"

    def pieces() -> Any:
        for at in range(0, len(ten), 1 << 16):
            yield ten[at : at + (1 << 16)]

    assert client.post(path, content=ten, headers=JSON).status_code == 413
    assert client.post(path, content=pieces(), headers=JSON).status_code == 413
    assert client.get("/health").status_code == 200


def test_a_whole_history_of_the_longest_titles_fits(client: TestClient) -> None:
    """The bounds fit together: what the schema allows is not cut off by the body's."""
    many = [{"title": f"{n:05d}" + "x" * 150, "rating": 5.0} for n in range(5_000)]
    answer = client.post("/recommendations", json={"ratings": many})
    assert answer.status_code == 200
    assert len(answer.json()["ignored"]) == 5_000


@pytest.mark.parametrize(
    "path",
    [
        *("/page/../app.py", "/page/..%2f..%2fapp.py", "/page/%2e%2e/app.py", "/page/....//app.py"),
        *("/page//etc/passwd", "/page/%00", "/page/index.html%00.js", "/page/..\\app.py"),
        *("/page/" + "../" * 40 + "etc/passwd", "/page/" + "a" * 5_000),
        *("/../../etc/passwd", "/..;/model", "/%2e%2e/model", "/page/", "/page/.", "/page"),
    ],
)
def test_no_path_leads_out_of_the_page(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 404
    assert answer.json()["title"] == "Not Found"


def test_queries_are_bounded(client: TestClient) -> None:
    for query in ("q=" + "x" * 301, "limit=0", "limit=51", "limit=1e9", "limit=", "odd=1"):
        assert client.get(f"/items?{query}").status_code == 422, query
    for text in ("%00", "%ff%fe", "' OR 1=1 --", "<script>", ".*(a+)+$", "%F0%9F%8E%AC" * 70):
        assert client.get(f"/items?q={text}").status_code == 200, text


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=12,
)
NAMES = [
    *("ratings", "interactions", "user_id", "items", "candidate_items", "exclude_items", "genres"),
    *("item", "target", "n", "rank_by", "balance", "personalization", "threshold", "diversity"),
    *("min_ratings", "decades", "title"),
]
GOOD: dict[str, Any] = {
    **{"ratings": rated(history()), "items": [101], "item": 101, "n": 3, "rank_by": "interaction"},
    **{"balance": 0.5, "min_ratings": 2, "genres": ["Comedy"], "exclude_items": [102]},
    **{"target": "interaction", "interactions": [*history()], "diversity": 0.5},
}


@settings(
    max_examples=150,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    kind=st.sampled_from(["user", "lists", "hearts"]),
    path=st.sampled_from(PATHS),
    kept=st.sets(st.sampled_from(sorted(GOOD))),
    changed=st.dictionaries(st.sampled_from(NAMES), json_values, max_size=3),
)
def test_good_requests_with_anything_in_them_never_fail(
    client_of: ClientOf, kind: str, path: str, kept: set[str], changed: dict[str, Any]
) -> None:
    body = {name: GOOD[name] for name in kept} | changed
    answer = client_of(kind).post(path, content=json.dumps(body), headers=JSON)
    assert answer.status_code in (200, 404, 422)


def test_what_nobody_expected_says_nothing_outside(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A bug in the model's code: 500 without a word of it; the log has it all."""

    def fail(*_: Any, **__: Any) -> None:
        raise KeyError("the secret place of the bug")

    monkeypatch.setattr("cfnade.inference.predictor.Predictor.recommend", fail)
    with caplog.at_level(logging.ERROR, "cfnade.server"):
        answer = client.post("/recommendations", json={"ratings": []})
    assert answer.status_code == 500
    assert answer.headers["content-type"] == "application/problem+json"
    assert "secret" not in answer.text
    assert "x-content-type-options" in answer.headers
    assert "the secret place of the bug" in caplog.text


# -- large invalid bodies ---------------------------------------------------------------------


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


@pytest.mark.parametrize("name", LARGE)
def test_large_invalid_bodies_are_refused_at_once(client: TestClient, name: str) -> None:
    """Measured 0.002 to 0.05 s of this process; without the bounds the first takes seconds."""
    for path in PATHS[:4]:
        started = time.process_time()
        answer = client.post(path, content=LARGE[name], headers=JSON)
        assert time.process_time() - started < 0.5
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


@contextmanager
def probing(url: str) -> Iterator[list[float]]:
    """Ask /health again and again meanwhile; gives the seconds that each answer took."""
    seconds: list[float] = []
    done = threading.Event()

    def probe() -> None:
        with httpx.Client(timeout=60) as client:
            while True:
                began = time.perf_counter()
                assert client.get(f"{url}/health").status_code == 200
                seconds.append(time.perf_counter() - began)
                if done.wait(0.02):
                    return

    with ThreadPoolExecutor(1) as pool:
        probes = pool.submit(probe)
        try:
            yield seconds
        finally:
            done.set()
            probes.result()


@pytest.fixture(scope="module")
def service(user_model: Path) -> Iterator[str]:
    with serving(user_model) as url:
        yield url


@pytest.mark.parametrize("name", LARGE)
def test_invalid_bodies_do_not_keep_others_waiting(service: str, name: str) -> None:
    """Measured on a busy machine: /health within 0.2 s. Without the bounds it took seconds."""
    with (
        httpx.Client(timeout=60) as client,
        probing(service) as seconds,
        ThreadPoolExecutor(4) as attackers,
    ):
        answers = attackers.map(
            lambda _: client.post(f"{service}/predictions", content=LARGE[name], headers=JSON),
            range(12),
        )
        assert {answer.status_code for answer in answers} == {422}
    assert max(seconds) < 3.0


# -- long computations -----------------------------------------------------------------------------

QUESTIONS: dict[str, dict[str, Any]] = {
    "/predictions": {"items": [*history(20)], "ratings": rated(history())},
    "/explanations": {"item": 140, "ratings": rated(history())},
    "/items-to-rate": {"ratings": rated(history())},
    "/items/match": {"items": [{"title": "Film", "year": 1950}]},
    "/recommendations": {"candidate_items": [*TITLES.values()], "ratings": rated(history())},
}


COMPUTED: dict[str, tuple[Callable[..., Any], type[BaseModel]]] = {
    "/predictions": (inference.predictions, schemas.PredictionRequest),
    "/explanations": (inference.explanation, schemas.ExplanationRequest),
    "/items-to-rate": (inference.items_to_rate, schemas.ItemsToRateRequest),
    "/items/match": (items.matches, schemas.MatchRequest),
    "/recommendations": (inference.recommendations, schemas.RecommendationRequest),
}


@pytest.mark.parametrize(
    ("kind", "path", "more"),
    [
        *(("user", path, {}) for path in QUESTIONS if path != "/items-to-rate"),
        ("ridge", "/items-to-rate", {}),
        ("both", "/explanations", {}),
        ("lists", "/explanations", {"target": "interaction"}),
    ],
)
def test_questions_stop_once_nobody_waits_for_the_answer(
    model_of: ModelOf, kind: str, path: str, more: dict[str, Any]
) -> None:
    """Each looks for a cancellation at least once."""
    answer, takes = COMPUTED[path]
    models, body = ModelRegistry(model_of(kind)), takes(**QUESTIONS[path], **more)
    models.load()
    loaded = models.current()
    answer(loaded, body)
    cancelled = threading.Event()
    cancelled.set()
    with cancelled_by(cancelled), pytest.raises(ComputationCancelledError):
        answer(loaded, body)


def test_late_questions_do_not_keep_others_waiting(
    user_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More endless explanations than threads: they end at their deadline, and others follow."""

    def endless(*_: Any, **__: Any) -> None:
        while True:
            check_cancelled()
            time.sleep(0.001)

    monkeypatch.setattr("cfnade.inference.predictor.Predictor.explain", endless)
    limits = Limits(work_seconds=1.0, threads=2)
    with serving(user_model, limits=limits) as url, ThreadPoolExecutor(4) as attackers:
        asked = [
            attackers.submit(
                httpx.post, f"{url}/explanations", json=QUESTIONS["/explanations"], timeout=60
            )
            for _ in range(4)
        ]
        assert {one.result().status_code for one in asked} == {504}
        similar = httpx.get(f"{url}/items/101/similar", timeout=60)
    assert similar.status_code == 200


def test_repeated_items_are_computed_once(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[int] = []
    plain = Predictor.predict_items

    def counted(self: Predictor, user: Any, items: Any, timestamp: Any = None) -> Any:
        computed.extend(items.tolist())
        return plain(self, user, items, timestamp)

    monkeypatch.setattr(Predictor, "predict_items", counted)
    ratings = rated(history())
    one = client.post("/predictions", json={"items": [101, "x", 102], "ratings": ratings}).json()
    computed.clear()
    repeated = [101, "x", 102] * 300
    many = client.post("/predictions", json={"items": repeated, "ratings": ratings}).json()
    assert len(computed) == 2
    assert many["unknown_items"] == ["x"] * 300
    names = [line["item"] for line in many["predictions"]]
    assert names == [101, 102] * 300
    expected = [line["prediction"] for line in one["predictions"]]
    assert [line["prediction"] for line in many["predictions"]] == pytest.approx(expected * 300)
