"""Input that means harm is refused cleanly, and the service lives on."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.server.given import JSON, ClientOf, TestClient, history, rated

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

    monkeypatch.setattr("cfnade.inference.predictor.Predictor.ranked", fail)
    with caplog.at_level(logging.ERROR, "cfnade.server"):
        answer = client.post("/recommendations", json={"ratings": []})
    assert answer.status_code == 500
    assert answer.headers["content-type"] == "application/problem+json"
    assert "secret" not in answer.text
    assert "x-content-type-options" in answer.headers
    assert "the secret place of the bug" in caplog.text
