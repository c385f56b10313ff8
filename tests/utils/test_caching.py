"""Cached values are computed once, also when several threads access them at once."""

from __future__ import annotations

import gc
import pickle
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor

from cfnade.utils.caching import Memo, locked_cached_property


class Thing:
    def __init__(self) -> None:
        self.runs = 0

    @locked_cached_property
    def half(self) -> object:
        self.runs += 1
        time.sleep(0.05)  # gives the others time to come in
        return object()

    @locked_cached_property
    def whole(self) -> tuple[object, object]:
        return self.half, self.half


def test_concurrent_threads_get_one_value() -> None:
    for name in ("half", "whole"):
        thing, gate = Thing(), threading.Barrier(8)

        def ask(thing: Thing = thing, gate: threading.Barrier = gate, name: str = name) -> object:
            gate.wait()
            return getattr(thing, name)

        with ThreadPoolExecutor(8) as pool:
            found = [future.result() for future in [pool.submit(ask) for _ in range(8)]]
        assert len({id(one) for one in found}) == 1
        assert thing.runs == 1


class Source(Memo):
    """Something that values are computed from."""


def test_memo_computes_once_per_key_and_is_freed_with_its_object() -> None:
    sources, gate = [Source(), Source()], threading.Barrier(8)
    runs: list[int] = []

    def compute(number: int) -> Thing:
        runs.append(number)
        time.sleep(0.05)
        return Thing()

    def request(number: int) -> Thing:
        gate.wait()
        return sources[number % 2].memo(number // 2 % 2, lambda: compute(number))

    with ThreadPoolExecutor(8) as pool:
        values = list(pool.map(request, range(8)))
    assert len(runs) == 4  # two objects, two keys
    assert all(values[number] is values[number + 4] for number in range(4))
    reference = weakref.ref(values[0])
    sources.clear()
    values.clear()
    gc.collect()
    assert reference() is None


def test_values_are_not_pickled() -> None:
    source = Source()
    source.memo("key", lambda: threading.Lock())  # cannot be pickled
    assert pickle.loads(pickle.dumps(source)).memo("key", lambda: 7) == 7
