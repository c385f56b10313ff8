"""Cached values are computed once, also when several threads access them at once."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor

from cfnade.utils.caching import WeakMemo, locked_cached_property


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


def test_threads_that_ask_at_once_get_one_value() -> None:
    for name in ("half", "whole"):
        thing, gate = Thing(), threading.Barrier(8)

        def ask(thing: Thing = thing, gate: threading.Barrier = gate, name: str = name) -> object:
            gate.wait()
            return getattr(thing, name)

        with ThreadPoolExecutor(8) as pool:
            found = [future.result() for future in [pool.submit(ask) for _ in range(8)]]
        assert len({id(one) for one in found}) == 1
        assert thing.runs == 1


def test_each_object_has_its_own() -> None:
    assert Thing().half is not Thing().half


def test_what_is_made_of_something_is_made_once_for_a_key_and_goes_with_it() -> None:
    values, things, gate = WeakMemo[Thing](), [Thing(), Thing()], threading.Barrier(8)
    runs: list[int] = []

    def make(number: int) -> Thing:
        runs.append(number)
        time.sleep(0.05)
        return Thing()

    def ask(number: int) -> Thing:
        gate.wait()
        return values.get(things[number % 2], number // 2 % 2, lambda: make(number))

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(ask, range(8)))
    assert len(runs) == 4  # two things, two keys
    assert all(found[number] is found[number + 4] for number in range(4))
    one = weakref.ref(found[0])
    things.clear()
    found.clear()
    gc.collect()
    assert one() is None
