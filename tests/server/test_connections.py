"""Clients that speak badly, slowly or not at all: others are served unharmed."""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psutil  # type: ignore[import-untyped]
import pytest
from tests.server.given import history, rated, serving

from cfnade.server.settings import Limits

BODY = json.dumps({"ratings": rated(history()), "n": 3}).encode()
LAST = b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
HEAD = b"POST /recommendations HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


@pytest.fixture(scope="module")
def service(user_model: Path) -> Iterator[str]:
    """A service with small limits."""
    limits = Limits(body_seconds=1.0, body_bytes=50_000, connections=40)
    with serving(user_model, limits=limits) as url:
        yield url


def connect(service: str) -> socket.socket:
    address = urlsplit(service)
    return socket.create_connection((address.hostname, address.port), timeout=60)


def read_all(connection: socket.socket) -> bytes:
    """Until the other side closes, however it does."""
    said = b""
    try:
        while piece := connection.recv(65_536):
            said += piece
    except ConnectionResetError:
        pass
    return said


def drip(connection: socket.socket, piece: bytes) -> None:
    """Send the same again and again, until the other side closes."""
    pause = threading.Event()
    while True:
        connection.sendall(piece)
        pause.wait(0.02)


def ask(service: str) -> None:
    """An honest client gets an honest answer."""
    body = {"ratings": rated(history()), "n": 3}
    answer = httpx.post(f"{service}/recommendations", json=body, timeout=30)
    assert answer.status_code == 200
    assert len(answer.json()["items"]) == 3


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 200,
        b"GET / NONSENSE\r\n\r\n",
        b"GET /health HTTP/1.1\r\n\r\n",  # no Host
        b"GET /health HTTP/1.1\r\nHost: x\r\nno colon\r\n\r\n",
        LAST + b"A: " + b"a" * 100_000 + b"\r\n\r\n",
        LAST + b"A: b\r\n" * 10_000 + b"\r\n",
        LAST.replace(b"/health", b"/" + b"a" * 100_000) + b"\r\n",
        HEAD + b"Content-Length: -5\r\n\r\n",
        HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 7\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    ],
)
def test_what_is_not_http_is_refused(service: str, sent: bytes) -> None:
    with closing(connect(service)) as connection:
        with suppress(ConnectionError):  # it may close before it has read all of a flood
            connection.sendall(sent)
        said = read_all(connection)
    if len(sent) < 10_000 or said:
        assert said.startswith((b"HTTP/1.1 400", b"HTTP/1.1 431"))
        assert b"application/problem+json" in said
        assert b"content-security-policy" in said
        assert b"Traceback" not in said
    ask(service)


@pytest.mark.parametrize("declared", [True, False])
def test_ten_megabytes_are_refused_and_the_connection_ends(service: str, declared: bool) -> None:
    ten = b" " * 10_000_000
    chunks = b"%x\r\n%s\r\n" % (50_000, b" " * 50_000) * 200 + b"0\r\n\r\n"
    how = (
        b"Content-Length: %d\r\n\r\n" % len(ten)
        if declared
        else b"Transfer-Encoding: chunked\r\n\r\n"
    )
    with closing(connect(service)) as connection:
        connection.sendall(HEAD + how)
        with suppress(ConnectionError):
            connection.sendall(ten if declared else chunks)
        assert connection.recv(65_536).startswith(b"HTTP/1.1 413")
    ask(service)


def test_an_endless_body_is_not_read_for_ever(service: str) -> None:
    with closing(connect(service)) as connection:
        connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        with pytest.raises(ConnectionError):
            drip(connection, b"3e8\r\n" + b" " * 1000 + b"\r\n")
    ask(service)


def test_silent_and_slow_clients_are_closed_and_harm_nobody(service: str) -> None:
    with ExitStack() as stack:
        silent = [stack.enter_context(closing(connect(service))) for _ in range(10)]
        begun = [stack.enter_context(closing(connect(service))) for _ in range(10)]
        for connection in begun:
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nX-A: ")
        waiting = [stack.enter_context(closing(connect(service))) for _ in range(5)]
        for connection in waiting:
            connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n{" % len(BODY))
        ask(service)
        # Bytes now and then do not buy more time.
        with pytest.raises(ConnectionError):
            drip(begun[0], b"a")
        assert [read_all(connection) for connection in silent] == [b""] * 10
        assert [read_all(connection) for connection in begun[1:]] == [b""] * 9
        for connection in waiting:
            assert connection.recv(65_536).startswith(b"HTTP/1.1 408")
        ask(service)


def test_a_slow_second_request_is_closed_too(service: str) -> None:
    with closing(connect(service)) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        answered = b""
        while not answered.endswith(b'{"status":"ok"}'):
            answered += connection.recv(65_536)
        connection.sendall(b"GET /hea")
        assert read_all(connection) == b""


def test_more_connections_than_allowed_close_the_silent_ones(
    service: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The service allows 40; with 60 silent ones, everybody who speaks is answered."""
    with caplog.at_level(logging.WARNING, "cfnade.server"), ExitStack() as stack:
        for _ in range(60):
            stack.enter_context(closing(connect(service)))
        for _ in range(3):
            ask(service)
    assert caplog.text.count("more than 40 connections") == 1


def test_two_requests_in_one_go_are_both_answered(service: str) -> None:
    one = b"GET /health HTTP/1.1\r\nHost: x\r\n"
    with closing(connect(service)) as connection:
        connection.sendall(one + b"\r\n" + one + b"Connection: close\r\n\r\n")
        assert read_all(connection).count(b'{"status":"ok"}') == 2


# -- many bad clients at a time --------------------------------------------------------------------

BURST = 1_500
"""Connections at once, of which the service keeps 40."""
ONE = b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n"
BAD: dict[str, bytes] = {
    "silent": b"",
    "slow headers": b"GET /health HTTP/1.1\r\nHost: x\r\nX-A: ",
    "slow body": HEAD + b"Content-Length: 1000\r\n\r\n{",
    "slow reader": ONE * 100,
    "slow reader of one answer": ONE * 8 + b"GET /page/app.js HTTP/1.0\r\nHost: x\r\n\r\n",
}
"""What a client sends before it does nothing more, not even read."""


def connect_bad(service: str, sent: bytes) -> socket.socket:
    """Connect with a small receive buffer, and send as much as the service takes."""
    address = urlsplit(service)
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(30)
    connection.connect((address.hostname, address.port))
    with suppress(ConnectionError, TimeoutError):
        connection.settimeout(0.05)
        connection.sendall(sent)
    return connection


def is_open(connection: socket.socket) -> bool:
    """Whether the other side has not closed; what it sent is dropped."""
    connection.setblocking(False)
    try:
        while connection.recv(65_536):
            pass
    except BlockingIOError:
        return True
    except ConnectionError:
        pass
    return False


@pytest.fixture(scope="module")
def patient_service(user_model: Path) -> Iterator[str]:
    """A service whose deadlines are so long that only the cap helps."""
    limits = Limits(body_seconds=300.0, write_seconds=300.0, connections=40)
    with serving(user_model, limits=limits) as url:
        yield url


@pytest.mark.parametrize("name", BAD)
def test_bad_clients_in_all_places_do_not_lock_others_out(patient_service: str, name: str) -> None:
    with ExitStack() as stack:
        for _ in range(60):
            stack.enter_context(closing(connect_bad(patient_service, BAD[name])))
        # While all pipelined requests are being answered, a new client may be turned away.
        give_up = time.monotonic() + 30
        answered = 0
        while answered < 3 and time.monotonic() < give_up:
            with suppress(httpx.TransportError):
                ask(patient_service)
                answered += 1
        assert answered == 3


@pytest.mark.parametrize("name", BAD)
def test_bad_clients_are_closed_at_the_deadline(user_model: Path, name: str) -> None:
    limits = Limits(body_seconds=0.5, write_seconds=0.5, connections=40)
    with serving(user_model, limits=limits) as url, ExitStack() as stack:
        for _ in range(5):
            stack.enter_context(closing(connect_bad(url, BAD[name])))
        ask(url)  # those before it are accepted now
        give_up = time.monotonic() + 30
        # Only the server's end shows that it closed: reading would help it to go on.
        while connections_to(url) and time.monotonic() < give_up:
            time.sleep(0.05)
        assert connections_to(url) == 0


def connections_to(service: str) -> int:
    """Return how many connections this process's service has open."""
    port = urlsplit(service).port
    ends = [
        connection
        for connection in psutil.Process().net_connections("tcp4")
        if connection.laddr.port == port and connection.status == psutil.CONN_ESTABLISHED
    ]
    return len(ends)


def test_a_burst_of_connections_stays_below_the_cap(patient_service: str) -> None:
    """More are accepted in one turn of the event loop than may stay open."""
    with ExitStack() as stack:
        burst = [stack.enter_context(closing(connect(patient_service))) for _ in range(BURST)]
        ask(patient_service)
        give_up = time.monotonic() + 30
        while sum(map(is_open, burst)) > 40 and time.monotonic() < give_up:
            time.sleep(0.05)
        assert sum(map(is_open, burst)) <= 40
        ask(patient_service)
