"""Values that are computed once, also when several threads ask for them at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class PicklableLock:
    """A reentrant lock that pickles and copies as a new, released lock."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def __reduce__(self) -> tuple[type[PicklableLock], tuple[()]]:
        return PicklableLock, ()


class locked_cached_property(Generic[T]):  # noqa: N801  # a decorator, like cached_property
    """A cached property that is computed once, even if several threads access it at once.

    `functools.cached_property` has no lock since Python 3.12.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, _: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, _: type | None = None) -> T:
        # Python calls this only while the instance has no value of this name.
        values = instance.__dict__
        with values.setdefault("_cache_lock", PicklableLock()):
            if self._name not in values:
                values[self._name] = self._compute(instance)
            value: T = values[self._name]
            return value


class Memo:
    """Base of immutable classes that cache values computed from them.

    The values are dropped with the object; copies in other processes compute their own.
    """

    def memo(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Return the value of a key; it is computed once, while other threads wait for it."""
        entries: dict[Hashable, tuple[Any, list[T]]] = self.__dict__.setdefault("_memo", {})
        lock, values = entries.get(key) or entries.setdefault(key, (threading.RLock(), []))
        if not values:
            with lock:
                if not values:
                    values.append(compute())
        return values[0]

    def __getstate__(self) -> Any:
        return {k: v for k, v in self.__dict__.items() if k != "_memo"}
