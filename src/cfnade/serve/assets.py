"""The page's files, read once: what is not in this table does not exist, whatever the path says."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from cfnade.serve.problems import Problem

FOLDER = Path(__file__).parent / "page"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
}


@dataclass(frozen=True)
class Asset:
    """A file with its compressed form and a tag that changes with it."""

    body: bytes
    packed: bytes
    kind: str
    tag: str

    @classmethod
    def of(cls, body: bytes, suffix: str) -> Asset:
        tag = f'"{hashlib.sha256(body).hexdigest()[:24]}"'
        return cls(body, gzip.compress(body, 9, mtime=0), _TYPES[suffix], tag)

    def response(self, request: Request) -> Response:
        """The file, or word that the client's copy is the same."""
        headers = {"etag": self.tag, "cache-control": "no-cache", "vary": "accept-encoding"}
        if self.tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        if takes_gzip(request) and len(self.packed) < len(self.body):
            packed = headers | {"content-encoding": "gzip"}
            return Response(self.packed, media_type=self.kind, headers=packed)
        return Response(self.body, media_type=self.kind, headers=headers)


def read_assets(folder: Path = FOLDER) -> dict[str, Asset]:
    """All files of the page by their path below its folder."""
    return {
        path.relative_to(folder).as_posix(): Asset.of(path.read_bytes(), path.suffix)
        for path in sorted(folder.rglob("*"))
        if path.suffix in _TYPES and path.is_file()
    }


def respond(assets: dict[str, Asset], name: str, request: Request) -> Response:
    if name not in assets:
        raise Problem(404, "the page has no such file; it begins at /")
    return assets[name].response(request)


def takes_gzip(request: Request) -> bool:
    """Whether the client can unpack an answer."""
    accepted = request.headers.get("accept-encoding", "").replace(" ", "").lower().split(",")
    return "gzip" in accepted
