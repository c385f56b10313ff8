"""What is computed once is computed once, whoever asks."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

from cfnade.once import once


class Thing:
    def __init__(self) -> None:
        self.runs = 0

    @once
    def half(self) -> object:
        self.runs += 1
        time.sleep(0.05)  # gives the others time to come in
        return object()

    @once
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
