"""Ratings that lie elsewhere: what kind of address this is, and how to show it without secrets."""

from __future__ import annotations

import re

PIPE = "-"
"""As data: what comes through standard input."""

STORE = "store:"
"""Before the address of a store (store/), as data: all that counts in it."""

WEB = ("http", "https")
DATABASES = ("sqlite", "postgresql", "postgres")

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
# The last @ ends a password: one that was not escaped may hold others. host:5432/… is a port.
_PASSWORD = re.compile(r"(?<=://)([^:/?#@]*):(?!\d+/)(.*)@")
_WEB_PASSWORD = re.compile(r"(?<=://)([^:/?#@]*):([^/?#]*)@")
_SECRET = re.compile(r"(?i)(?<=[?&])([^=&#]*(?:pass|token|secret|sig|key|auth)[^=&#]*)=[^&#]*")
_HIDDEN = "***"


def scheme(data: str) -> str | None:
    """What stands before :// in an address; None for anything else."""
    match = _SCHEME.match(data)
    return match[1].lower() if match else None


def password_of(address: str) -> str | None:
    """The password of user:password@host as it is written."""
    match = _pattern(address).search(address)
    return match[2] if match else None


def masked(data: str) -> str:
    """An address as it may be shown and kept; anything else as it is."""
    if scheme(data) is None:
        return data
    return _SECRET.sub(rf"\1={_HIDDEN}", _pattern(data).sub(rf"\1:{_HIDDEN}@", data, count=1))


def _pattern(address: str) -> re.Pattern[str]:
    return _WEB_PASSWORD if scheme(address) in WEB else _PASSWORD
