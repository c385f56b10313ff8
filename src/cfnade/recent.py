"""What was computed of late, by what it was computed from: the next question may be about the same.

A service is told a person's whole history each time. Who asks for another genre, another taste or
the next page is the person of a moment ago, and only what differs is computed.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from hashlib import blake2b
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Recent(Generic[T]):
    """Values by key; those not asked for longest go once there are more bytes than `most`."""

    def __init__(self, most: int, size: Callable[[T], int]) -> None:
        self._most, self._size = most, size
        self._values: OrderedDict[bytes, T] = OrderedDict()
        self._held, self._lock = 0, threading.Lock()

    def get(self, key: bytes, make: Callable[[], T]) -> T:
        """The value of a key; two threads may make it at once, and one of them is kept."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
        value = make()
        with self._lock:
            if key not in self._values:
                self._values[key] = value
                self._held += self._size(value)
            while self._held > self._most:
                self._held -= self._size(self._values.popitem(last=False)[1])
        return value


def key_of(*parts: Any) -> bytes:
    """A key that arrays, numbers and texts share with no others."""
    digest = blake2b(digest_size=16)
    for part in parts:
        content = part.tobytes() if hasattr(part, "tobytes") else repr(part).encode()
        digest.update(len(content).to_bytes(8, "little"))
        digest.update(content)
    return digest.digest()
