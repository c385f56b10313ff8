"""What one request may cost: sizes that the schema states, and bounds on bytes and time."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cfnade.serve.problems import Problem, problem_response

HISTORY = 5_000
"""Ratings of one person: more than nearly anybody has films in a diary."""
BEST = 500
"""Items in one list."""
ITEMS = 1_000
"""Items in one prediction, films in one match."""
SEARCHED = 50
"""Items found by one search."""
TEXT = 300
"""Characters of a title, an id or a query."""


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class Limits:
    """Bounds of one process; the defaults suit a page and a few programs on two cores."""

    body_bytes: int = 1 << 20
    header_bytes: int = 1 << 14
    body_seconds: float = 10.0
    """For a request to arrive whole, headers and body each."""
    work_seconds: float = 10.0
    """For an answer, waiting included."""
    threads: int = _cores()
    waiting: int = 64
    """Requests that wait for a thread; the next one is told to come again."""
    connections: int = 512
    """Open connections; beyond, the one that has been silent for longest is closed."""


class Bounds:
    """Stops headers that are too long, and a body that is too long or too slow, declared or not,
    before it is all in memory."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self.app = app
        self.limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
        elif self._head(scope) > self.limits.header_bytes:
            await problem_response(self._long_head())(scope, receive, send)
        elif self._declared(scope) > self.limits.body_bytes:
            await problem_response(self._too_long())(scope, receive, send)
        else:
            await self.app(scope, self._limited(receive), send)

    def _head(self, scope: Scope) -> int:
        # The parser bounds what waits in its buffer only; headers that come at once get past it.
        sizes = (len(name) + len(value) + 4 for name, value in scope["headers"])
        return len(scope["path"]) + len(scope["query_string"]) + sum(sizes)

    def _declared(self, scope: Scope) -> int:
        for name, value in scope["headers"]:
            if name == b"content-length" and value.isdigit():
                return int(value[:20])
        return 0

    def _limited(self, receive: Receive) -> Receive:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.limits.body_seconds
        received, complete = 0, False

        async def limited() -> Message:
            nonlocal received, complete
            if complete:  # what follows is a disconnection, for which there is no hurry
                return await receive()
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                raise self._too_slow() from None
            received += len(message.get("body", b""))
            if received > self.limits.body_bytes:
                raise self._too_long()
            complete = not message.get("more_body", False)
            return message

        return limited

    def _long_head(self) -> Problem:
        most = self.limits.header_bytes
        return Problem(431, f"address and headers are longer than {most:,} bytes; send fewer")

    def _too_long(self) -> Problem:
        most = self.limits.body_bytes
        return Problem(
            413, f"the body is longer than {most:,} bytes; send fewer ratings or items at a time"
        )

    def _too_slow(self) -> Problem:
        most = self.limits.body_seconds
        return Problem(408, f"the body took longer than {most:g} s to arrive; send it again")
