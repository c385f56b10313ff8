"""Who may ask what: the service key may do all, a person's token only what is that person's.

A token is a JSON Web Token that the service signs (POST /people/{person}/token, for the service
key) and that ends soon. It is signed by a secret made from the service key: all workers and
machines with the same key know it, and another key ends all tokens. Without a key everybody may do
all.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from typing import Any

import jwt
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from cfnade.server.errors import ApiError
from cfnade.server.middleware import PERSON

_SECRET = b"cfnade: tokens of people"
_ALGORITHM, _AUDIENCE = "HS256", "cfnade"
_NOT_FOR_PEOPLE = frozenset({"/metrics"})
MOST_SECONDS = 86_400
LEEWAY_SECONDS = 30
"""By how much the clocks of machines that share a key may differ."""


class Authenticator:
    """Signs tokens and reads them."""

    def __init__(self, key: str) -> None:
        self._secret = hmac.new(key.encode(), _SECRET, hashlib.sha256).digest()

    def signed(self, person: str, seconds: int) -> str:
        """A token of a person that ends after so many seconds."""
        now = int(time.time())
        claims = {"sub": person, "aud": _AUDIENCE, "iat": now, "exp": now + seconds}
        return jwt.encode(claims, self._secret, _ALGORITHM)

    def person(self, token: str) -> str | None:
        """Whose token that is; None if it is none, or has ended."""
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                self._secret,
                [_ALGORITHM],
                audience=_AUDIENCE,
                leeway=LEEWAY_SECONDS,
                options={"require": ["sub", "exp", "aud"]},
            )
        except jwt.InvalidTokenError:
            return None
        return str(claims["sub"])


class TokenMiddleware:
    """Notes whose token a request carries; the door behind it lets these pass."""

    def __init__(self, app: ASGIApp, tokens: Authenticator) -> None:
        self.app, self._tokens = app, tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in _NOT_FOR_PEOPLE:
            for name, value in scope["headers"]:
                if name == b"authorization" and value[:7].lower() == b"bearer ":
                    person = self._tokens.person(value[7:].strip().decode("latin-1"))
                    if person is not None:
                        scope[PERSON] = person
        await self.app(scope, receive, send)


def is_person(request: Request) -> bool:
    """Whether a person asks for themselves, and not a program with the service key."""
    return PERSON in request.scope


def require_user(request: Request, person: str) -> None:
    """Refuse a token of somebody else, before anything is looked up: whether there is such a
    person shows neither in the answer nor in the time that it takes."""
    own = request.scope.get(PERSON)
    if own is not None and not hmac.compare_digest(own.encode(), person.encode()):
        raise ApiError(403, "this token is another person's; it may ask for that person only")


def require_service(request: Request) -> None:
    """Refuse tokens altogether."""
    if is_person(request):
        raise ApiError(403, "a person's token may not do that; the service key may")
