"""Headers of every answer, the key, origins, names of the service, HEAD, and the access log."""

from __future__ import annotations

import json
import logging
import re
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.server.given import JSON, Asking, TestClient, serving

from cfnade.exceptions import CfnadeError
from cfnade.server.auth import key_from_environment
from cfnade.server.middleware import ACCESS_LOG, DOCS_POLICY, HEADERS, POLICY, host_names
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


# -- access log ----------------------------------------------------------------------------------


def logged(
    asking: Asking, folder: Path, style: str | None, caplog: pytest.LogCaptureFixture
) -> list[str]:
    """What is written of a list, a search and a strange path."""
    key = {"x-api-key": "sesame"}
    with (
        asking(folder, access_log=style, api_key="sesame") as client,
        caplog.at_level(logging.INFO, ACCESS_LOG),
    ):
        client.post("/recommendations", json={"ratings": []}, headers=key)
        client.get("/items?q=private", headers=key)
        client.get("/a%0Ab%22c", headers=key)
    return [record.getMessage() for record in caplog.records if record.name == ACCESS_LOG]


def test_json_lines_say_what_was_asked_and_how_it_ended(
    asking: Asking, user_model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines = [json.loads(line) for line in logged(asking, user_model, "json", caplog)]
    assert [(one["method"], one["path"], one["status"]) for one in lines] == [
        ("POST", "/recommendations", 200),
        ("GET", "/items", 200),
        ("GET", "other", 404),
    ]
    for one in lines:
        assert set(one) == {"time", "client", "method", "path", "status", "bytes", "ms"}
        assert one["client"] == "testclient"
        assert one["bytes"] > 0
        assert one["ms"] > 0
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+\+00:00", one["time"])


def test_plain_lines_are_lines_whatever_is_asked(
    asking: Asking, user_model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines = logged(asking, user_model, "plain", caplog)
    assert len(lines) == 3
    assert not any("\n" in line for line in lines)
    assert re.fullmatch(r'\S+ testclient "POST /recommendations" 200 \d+ \d+\.\d ms', lines[0])
    text = " ".join(lines)
    assert "private" not in text  # what people look for is nobody's business
    assert "sesame" not in text


def test_nothing_is_written_unless_asked(
    asking: Asking, user_model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert logged(asking, user_model, None, caplog) == []


# -- HEAD ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/health", "/", "/page/app.js", "/docs"])
def test_head_is_get_without_the_body(client: TestClient, path: str) -> None:
    head = client.head(path)
    assert (head.status_code, head.content) == (200, b"")
    assert "content-security-policy" in head.headers


@pytest.mark.parametrize("path", ["/model", "/recommendations", "/items"])
def test_head_is_no_method_of_other_routes(client: TestClient, path: str) -> None:
    assert client.head(path).status_code == 405


def test_head_over_the_wire_leaves_the_connection_usable(user_model: Path) -> None:
    with serving(user_model) as url:
        host, port = urlsplit(url).hostname, urlsplit(url).port
        asked = b"%s /health HTTP/1.1\r\nHost: x\r\n%s\r\n"
        with socket.create_connection((host, port)) as connection:
            connection.sendall(asked % (b"HEAD", b"") + asked % (b"GET", b"Connection: close\r\n"))
            said = b""
            while piece := connection.recv(65_536):
                said += piece
    first, second = said.split(b"HTTP/1.1 200 OK\r\n")[1:]
    assert first.endswith(b"\r\n\r\n")
    assert b"content-length: 15" in first
    assert second.endswith(b'\r\n\r\n{"status":"ok"}')


# -- Host ----------------------------------------------------------------------------------------

NAMES = {"host": "films.local", "allow_hosts": ["films.example.org"]}


@pytest.mark.parametrize(
    "host",
    [
        *("localhost", "localhost:8000", "LOCALHOST", "localhost.", "films.local:80"),
        *("films.example.org", "127.0.0.1:8000", "192.168.1.7", "[::1]:8000", "[fe80::1]"),
        socket.gethostname(),
    ],
)
def test_names_of_ours_and_addresses_are_answered(
    asking: Asking, user_model: Path, host: str
) -> None:
    with asking(user_model, **NAMES) as client:
        assert client.get("/model", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1.evil.example"),
        *("", "[localhost]", "localhost@evil.example", "evil.example#localhost", "::1x", "a:b:80"),
    ],
)
def test_names_of_others_are_refused(asking: Asking, user_model: Path, host: str) -> None:
    with asking(user_model, **NAMES) as client:
        for path in ("/model", "/", "/metrics"):
            answer = client.get(path, headers={"host": host})
            assert answer.status_code == 421
            assert "--allow-host" in answer.json()["detail"]
            assert "content-security-policy" in answer.headers


def test_any_name_may_be_allowed(asking: Asking, user_model: Path) -> None:
    assert host_names("127.0.0.1", ["*"]) is None
    with asking(user_model, allow_hosts=["*"]) as client:
        assert client.get("/model", headers={"host": "evil.example"}).status_code == 200
