"""By which names the service may be called.

A page from anywhere may point a name of its own at 127.0.0.1 and then ask as if it were ours (DNS
rebinding). It cannot hide that name: browsers send it as Host. Addresses in figures cannot be
borrowed in this way, so they are always right.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Collection
from ipaddress import ip_address

from starlette.types import ASGIApp, Receive, Scope, Send

from cfnade.errors import CfnadeError
from cfnade.serve.problems import Problem, problem_response

ANY = "*"
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")


def own_names(host: str, more: Collection[str]) -> frozenset[str] | None:
    """The names of a service that listens on a host, and those given; None for any."""
    if ANY in more:
        return None
    return frozenset(map(_plain, ["localhost", socket.gethostname(), host, *more]))


def checked_name(text: str) -> str:
    """A name given on the command line."""
    if text == ANY or _NAME.fullmatch(text.lower()):
        return text.lower()
    raise CfnadeError(
        f"--allow-host {text!r} is no name of a host; give it without scheme and port, such as "
        "films.example.org, or * for any"
    )


class HostCheck:
    """Refuses requests that call the service by another name."""

    def __init__(self, app: ASGIApp, names: Collection[str]) -> None:
        self.app, self.names = app, names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            called = [value for name, value in scope["headers"] if name == b"host"]
            # Without one it is no browser: HTTP/1.1 asks for it, and the parser has seen to that.
            if not all(self._may(value.decode("latin-1")) for value in called):
                refusal = Problem(
                    421,
                    "this service does not go by the name in Host; if it should, start it with "
                    "--allow-host NAME",
                )
                await problem_response(refusal)(scope, receive, send)
                return
        await self.app(scope, receive, send)

    def _may(self, called: str) -> bool:
        name = _plain(re.sub(r":\d*$", "", called))
        return name in self.names or _is_address(name)


def _plain(name: str) -> str:
    return name.lower().removesuffix(".")


def _is_address(name: str) -> bool:
    try:
        ip_address(name[1:-1] if name.startswith("[") and name.endswith("]") else name)
    except ValueError:
        return False
    return True
