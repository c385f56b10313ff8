"""Run an HTTP server on loopback with files to download, and with faulty responses."""

from __future__ import annotations

import base64
import gzip
import io
import threading
import time
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

import pytest

TEXT = b"user,item,rating\n1,10,5\n1,11,3\n2,10,1\n3,12,4\n"
LOGIN = "Basic " + base64.b64encode(b"me:s@cret").decode()


def zipped() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("own.csv", TEXT)
    return out.getvalue()


class Site(ThreadingHTTPServer):
    """A server that records requested paths and credentials."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.asked: list[str] = []
        self.logins: list[str | None] = []
        self.files = {
            "/own.csv": TEXT,
            "/own.csv.gz": gzip.compress(TEXT),
            "/own.zip": zipped(),
            "/empty.csv": b"",
            "/page.csv": b"\n<!doctype html><title>Please log in</title>",
            "/words.csv": b"these are\nno ratings\n",
            "/a b é.csv": TEXT,
        }

    @property
    def home(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Answer(BaseHTTPRequestHandler):
    server: Site

    def do_GET(self) -> None:
        path = unquote(self.path.partition("?")[0])
        self.server.asked.append(self.path)
        self.server.logins.append(self.headers["Authorization"])
        if path == "/moved.csv":
            self._start(
                302, {"Location": f"{self.server.home}/own.csv".replace("127.0.0.1", "localhost")}
            )
        elif path == "/private.csv" and self.headers["Authorization"] != LOGIN:
            self._start(401, {"Content-Length": "0"})
        elif path == "/short.csv":
            self._start(200, {"Content-Length": str(len(TEXT) + 9)})
            self.wfile.write(TEXT)
        elif path == "/slow.csv":
            time.sleep(1)
        elif path == "/private.csv" or path in self.server.files:
            content = self.server.files.get(path, TEXT)
            self._start(200, {"Content-Length": str(len(content))})
            self.wfile.write(content)
        else:
            self._start(404, {"Content-Length": "0"})

    def _start(self, code: int, headers: dict[str, str]) -> None:
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("no_proxy", "127.0.0.1,localhost")
    with Site() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()
