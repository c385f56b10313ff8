"""Headers on every answer, the key, and other origins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.server.given import JSON, Asking, TestClient

from cfnade.exceptions import CfnadeError
from cfnade.server.auth import key_from_environment
from cfnade.server.middleware import DOCS_POLICY, HEADERS, POLICY
from cfnade.server.settings import ServerSettings

KEY = "Schlüssel 1"
CLOSED = ["/model", "/items", "/item-map", "/metrics"]
OPEN = ["/", "/health", "/docs", "/docs/swagger-ui.css", "/page/app.js", "/openapi.json"]


@pytest.mark.parametrize("path", ["/health", "/model", "/docs", "/nothing", "/items?limit=0"])
def test_every_answer_has_the_headers(client: TestClient, path: str) -> None:
    answer = client.get(path)
    expected = HEADERS | ({"content-security-policy": DOCS_POLICY} if path == "/docs" else {})
    assert expected.items() <= dict(answer.headers).items()
    assert "server" not in answer.headers
    assert answer.headers["cache-control"] in ("no-store", "no-cache")


def test_the_policy_lets_nothing_in_from_elsewhere() -> None:
    rules = dict(rule.strip().split(" ", 1) for rule in POLICY.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == rules["style-src"] == rules["connect-src"] == "'self'"
    assert "unsafe" not in POLICY
    assert "http" not in POLICY


def test_with_a_key_only_its_bearer_is_answered(asking: Asking, user_model: Path) -> None:
    raw = KEY.encode()
    with asking(user_model, api_key=KEY) as client:
        for path in CLOSED:
            refused = client.get(path)
            assert refused.status_code == 401
            assert refused.headers["www-authenticate"] == "Bearer"
            assert "X-API-Key" in refused.json()["detail"]
            assert KEY not in refused.text
            assert client.get(path, headers={b"x-api-key": raw}).status_code == 200
            bearer = {b"authorization": b"bearer " + raw}
            assert client.get(path, headers=bearer).status_code == 200
            for wrong in (raw[:-1], raw + b"1", b"", raw.upper()):
                assert client.get(path, headers={b"x-api-key": wrong}).status_code == 401
            basic = {b"authorization": b"Basic " + raw}
            assert client.get(path, headers=basic).status_code == 401
        for path in OPEN:
            assert client.get(path).status_code == 200
        body: dict[str, list[float]] = {"ratings": []}
        assert client.post("/recommendations", json=body).status_code == 401
        assert client.post("/recommendations", json=body, headers={b"x-api-key": raw}).is_success


def test_no_spelling_of_a_path_goes_round_the_key(asking: Asking, user_model: Path) -> None:
    with asking(user_model, api_key=KEY) as client:
        for path in (
            *("//model", "/model/", "/./model", "/page/../model", "/page/%2e%2e/model"),
            *(
                "/health/../model",
                "/docs/../model",
                "/%6dodel",
                "/MODEL",
                "/model%00",
                "/page//model",
            ),
        ):
            assert client.get("http://testserver" + path).status_code in (401, 404), path


def test_keys_are_compared_in_constant_time(
    asking: Asking, user_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is sent, one comparison of two digests of the same length is made."""
    compared: list[tuple[int, int]] = []

    def compare(left: bytes, right: bytes) -> bool:
        compared.append((len(left), len(right)))
        return left == right

    monkeypatch.setattr("cfnade.server.auth.hmac.compare_digest", compare)
    with asking(user_model, api_key=KEY) as client:
        for key in (b"x", b"x" * 1000, KEY.encode()):
            client.get("/model", headers={b"x-api-key": key})
    assert compared == [(32, 32)] * 3


def test_the_key_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CFNADE_API_KEY", raising=False)
    assert key_from_environment() is None
    monkeypatch.setenv("CFNADE_API_KEY", "k" * 16)
    assert key_from_environment() == "k" * 16
    monkeypatch.setenv("CFNADE_API_KEY", " ")
    with pytest.raises(CfnadeError, match="CFNADE_API_KEY is set but empty"):
        key_from_environment()
    monkeypatch.setenv("CFNADE_API_KEY", "k" * 15)
    with pytest.raises(CfnadeError, match=r"has 15 characters.*at least 16"):
        key_from_environment()


def test_other_origins_may_not_ask_unless_named(
    client: TestClient, asking: Asking, user_model: Path
) -> None:
    ours, other = "https://ours.example", "https://other.example"
    preflight = {"access-control-request-method": "POST"}
    assert (
        "access-control-allow-origin" not in client.get("/model", headers={"origin": ours}).headers
    )
    assert client.options("/model", headers={"origin": ours, **preflight}).status_code == 405
    with asking(user_model, api_key=KEY, allow_origins=[ours]) as named:
        asked = {"origin": ours, **preflight, "access-control-request-headers": "x-api-key"}
        allowed = named.options("/recommendations", headers=asked)
        assert allowed.status_code == 200
        assert allowed.headers["access-control-allow-origin"] == ours
        # A page of that origin must be able to read the refusal, too.
        refused = named.get("/model", headers={"origin": ours})
        assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, ours)
        answer = named.get("/health", headers={"origin": other})
        assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", None])
def test_bodies_that_any_page_may_send_are_not_read(client: TestClient, kind: str | None) -> None:
    """Browsers send these to other origins without asking first."""
    body = b'{"ratings": []}'
    headers = {} if kind is None else {"content-type": kind}
    answer = client.post("/recommendations", content=body, headers=headers)
    assert answer.status_code == 422
    assert client.post("/recommendations", content=body, headers=JSON).status_code == 200


@pytest.mark.parametrize("options", [{"allow_origins": ["*"]}, {"allow_hosts": ["*"]}])
def test_a_store_without_a_key_is_not_opened_to_every_page(options: dict[str, Any]) -> None:
    settings = {"model_dir": Path("model"), **options}
    with pytest.raises(CfnadeError, match=r"--allow-(origin|host) \* with --store"):
        ServerSettings(store_url="ratings.db", **settings).check_exposure()
    ServerSettings(store_url="ratings.db", api_key="k" * 16, **settings).check_exposure()
    ServerSettings(**settings).check_exposure()


@pytest.mark.parametrize(
    "path", ["/users/Ren%E9", "/users/Ren%E8/recommendations", "/items%FF", "/%ed%a0%80"]
)
def test_a_path_that_is_not_utf8_is_refused(client: TestClient, path: str) -> None:
    """The server would replace such bytes, and make one person of several."""
    for method in ("GET", "PUT", "DELETE"):
        answer = client.request(method, path)
        assert answer.status_code == 400
        assert "UTF-8" in answer.json()["detail"]
    assert client.get("/users/Ren%C3%A9").status_code == 404  # there is no store
