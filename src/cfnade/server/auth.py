"""Authentication: the service key, and tokens of users.

A token is a JSON Web Token that the service signs for a user (POST /users/{user_id}/tokens). Its
secret is derived from the service key: all workers and machines with the same key accept it, and
another key ends all tokens. Without a key everything is open.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import time
from typing import Annotated, Any, NamedTuple

from fastapi import Depends, Path, Request, Security
from fastapi.security import APIKeyHeader, HTTPBearer

from cfnade.exceptions import CfnadeError
from cfnade.server.errors import ApiError
from cfnade.server.settings import KEY_VARIABLE, MAX_TEXT

_SECRET = b"cfnade: tokens of people"
_ALGORITHM, _AUDIENCE = "HS256", "cfnade"
_MIN_KEY_LENGTH = 16
LEEWAY_SECONDS = 30
"""By how much the clocks of machines that share a key may differ."""

# These describe the headers in the schema; `Authenticator.authenticate` reads them, as bytes.
SECURITY_SCHEMES = [
    Security(APIKeyHeader(name="X-API-Key", scheme_name="header", auto_error=False)),
    Security(HTTPBearer(scheme_name="bearer", auto_error=False)),
]


class Principal(NamedTuple):
    """The author of a request: a user (token), or the service if user_id is None."""

    user_id: str | None


class Authenticator:
    """Compares keys, and signs and reads tokens."""

    def __init__(self, key: str) -> None:
        self._digest = hashlib.sha256(key.encode()).digest()
        self._secret = hmac.new(key.encode(), _SECRET, hashlib.sha256).digest()

    def issue_token(self, user_id: str, seconds: int) -> str:
        """Return a token of a user that expires after so many seconds."""
        import jwt  # late: it takes 0.05 s, and few requests carry tokens

        now = int(time.time())
        claims = {"sub": user_id, "aud": _AUDIENCE, "iat": now, "exp": now + seconds}
        return jwt.encode(claims, self._secret, _ALGORITHM)

    def authenticate(self, headers: list[tuple[bytes, bytes]]) -> Principal:
        """Return the author of a request; 401 unless it carries the key or a valid token."""
        keys = [value for name, value in headers if name == b"x-api-key"]
        tokens = [
            value[7:].strip()
            for name, value in headers
            if name == b"authorization" and value[:7].lower() == b"bearer "
        ]
        # Digests of equal length, compared in constant time: neither the time nor the length of a
        # comparison depends on the key.
        digests = [hashlib.sha256(key).digest() for key in [*keys, *tokens]]
        matches = [hmac.compare_digest(digest, self._digest) for digest in digests]
        if any(matches):
            return Principal(None)
        for token in tokens:
            if (user_id := self._token_user(token.decode("latin-1"))) is not None:
                return Principal(user_id)
        raise ApiError(
            401,
            "this service asks for a key; send it as X-API-Key or as Authorization: Bearer",
            headers={"WWW-Authenticate": "Bearer"},
        )

    def _token_user(self, token: str) -> str | None:
        """Return the user of a token; None if it is invalid or has expired."""
        import jwt

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


# -- dependencies --------------------------------------------------------------------------------


async def current_principal(request: Request) -> Principal:
    """Return the author of a request: 401 without a valid key or token where a key is set."""
    authenticator: Authenticator | None = request.app.state.authenticator
    if authenticator is None:
        return Principal(None)
    return authenticator.authenticate(request.scope["headers"])


CurrentPrincipal = Annotated[Principal, Depends(current_principal)]
UserId = Annotated[str, Path(min_length=1, max_length=MAX_TEXT, description="Any id, as text.")]


async def require_service(principal: CurrentPrincipal) -> None:
    """Refuse tokens of users."""
    if principal.user_id is not None:
        raise ApiError(403, "a user's token may not do that; the service key may")


async def require_user(user_id: UserId, principal: CurrentPrincipal) -> str:
    """Refuse tokens of other users, before any lookup.

    Neither the answer nor the time that it takes says whether the other user exists.
    """
    token_user = principal.user_id
    if token_user is not None and not hmac.compare_digest(token_user.encode(), user_id.encode()):
        raise ApiError(403, "this token is another user's; it is valid for that user only")
    return user_id


def require_own_data(principal: Principal, **fields: object) -> None:
    """Refuse fields that refer to other users in requests with a user's token."""
    for name, value in fields.items():
        if value is not None and principal.user_id is not None:
            raise ApiError(
                403,
                f"{name}: a user's token may not refer to other users; give ratings, or use "
                "/users/{user_id}",
                field=name,
            )


def key_from_environment() -> str | None:
    """Return the service key, if one is set; an empty or a short one is an error."""
    key = os.environ.get(KEY_VARIABLE)
    if key is None:
        return None
    if not key.strip():
        raise CfnadeError(
            f"{KEY_VARIABLE} is set but empty, so anybody could ask; give it a value, or unset it "
            "to serve without a key"
        )
    if len(key) < _MIN_KEY_LENGTH:
        raise CfnadeError(
            f"{KEY_VARIABLE} has {len(key)} characters, which can be guessed; give it at least "
            f"{_MIN_KEY_LENGTH} random ones, such as those of: openssl rand -hex 16"
        )
    return key
