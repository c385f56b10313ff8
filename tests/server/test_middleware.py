"""The access log, HEAD, and the names by which the service may be called."""

from __future__ import annotations

import json
import logging
import re
import socket
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.server.given import Asking, TestClient, serving

from cfnade.server.middleware import ACCESS_LOG, host_names

PAGES = ["/", "/page/app.js", "/model", "/items?q=a", "/health", "/docs", "/metrics", "/nothing"]


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
