"""Values that are computed when first needed and then kept, by one thread for all."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")


class Guard:
    """A lock that a thread may take twice; a copy in another process has one of its own."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def __reduce__(self) -> tuple[type[Guard], tuple[()]]:
        return Guard, ()


class once(Generic[T]):  # noqa: N801  # reads as a decorator, like property
    """A property whose function runs once; threads that ask meanwhile wait for its value.

    functools.cached_property may run it several times since Python 3.12.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, _: type, name: str) -> None:
        self._name = name

    def __get__(self, owner: Any, _: type | None = None) -> T:
        # Python looks here only until the instance holds a value of this name.
        kept = owner.__dict__
        with kept.setdefault("_once", Guard()):
            if self._name not in kept:
                kept[self._name] = self._compute(owner)
            value: T = kept[self._name]
            return value


class OnceOf(Generic[T]):
    """Values by what they are made of, as long as that is in use, and a key; whoever asks first
    makes one, and threads that ask for the same meanwhile wait for it."""

    def __init__(self) -> None:
        self._guard = Guard()
        self._kept: WeakKeyDictionary[Any, dict[Hashable, tuple[Guard, list[T]]]]
        self._kept = WeakKeyDictionary()

    def get(self, owner: Any, key: Hashable, make: Callable[[], T]) -> T:
        with self._guard:
            making, made = self._kept.setdefault(owner, {}).setdefault(key, (Guard(), []))
        with making:
            if not made:
                made.append(make())
            return made[0]
