"""Eight who rate and eight who read, at a running service with a store: how long they wait.

    python benchmarks/store_load.py MODEL --store sqlite --minutes 5
    python benchmarks/store_load.py MODEL --store postgresql --minutes 5

A real `cfnade serve` and, for PostgreSQL, a real server with durable commits, on loopback. Every
write is a rating; every read a person's list of 10. Writers send 100 a
second together, readers 20.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.support.postgres import address, find_binaries, postgres

from cfnade.inference.predictor import Predictor
from cfnade.online.event_store import EventStore

PEOPLE = 500


class Crowd:
    """Threads that ask at a steady pace, and what each of them saw."""

    def __init__(self, url: str, items: list[Any], writes: float, reads: float) -> None:
        self.statuses: dict[str, Counter[str]] = {"write": Counter(), "read": Counter()}
        self.seconds: dict[str, list[float]] = {"write": [], "read": []}
        self._url, self._items, self._end = url, items, threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(what, n, rate / 8))
            for what, rate in (("write", writes), ("read", reads))
            for n in range(8)
        ]

    def go(self, seconds: float) -> None:
        for thread in self._threads:
            thread.start()
        self._end.wait(seconds)
        self._end.set()
        for thread in self._threads:
            thread.join()

    def _run(self, what: str, number: int, rate: float) -> None:
        rng, count = random.Random(f"{what}{number}"), 0
        due = time.perf_counter() + rng.random() / rate
        with httpx.Client(base_url=self._url, timeout=30) as client:
            while not self._end.is_set():
                time.sleep(max(0.0, due - time.perf_counter()))
                due = max(due + 1 / rate, time.perf_counter() - 1)
                began = time.perf_counter()
                try:
                    status = str(self._ask(client, what, rng).status_code)
                except httpx.TransportError as error:
                    status = type(error).__name__
                self.seconds[what].append(time.perf_counter() - began)
                self.statuses[what][status] += 1
                count += 1

    def _ask(self, client: httpx.Client, what: str, rng: random.Random) -> Any:
        person = f"/users/p{rng.randrange(PEOPLE)}"
        if what == "read":
            return client.get(f"{person}/recommendations", params={"n": 10})
        rating = {"rating": float(rng.randint(1, 5))}
        item = rng.choice(self._items)
        return client.put(f"{person}/ratings/{item}", json=rating)


@contextmanager
def service(model: Path, store: str, workers: int, *, watch: bool = False) -> Iterator[str]:
    """The command as anybody starts it; gives its address when it answers."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "cfnade", "serve", str(model), "--store", store]
    command += ["--port", str(port), "--workers", str(workers), *(["--watch"] if watch else [])]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(1_200):
            try:
                if httpx.get(f"{url}/health").status_code == 200:
                    break
            except httpx.TransportError:
                time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        process.wait(60)


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("model", type=Path)
    given.add_argument("--store", choices=["sqlite", "postgresql"], default="sqlite")
    given.add_argument("--minutes", type=float, default=5.0)
    given.add_argument("--workers", type=int, default=1)
    given.add_argument("--writes", type=float, default=100.0)
    given.add_argument("--reads", type=float, default=20.0)
    given.add_argument("--out", type=Path)
    asked = given.parse_args()
    items = Predictor.load(asked.model).items.table.tolist()
    with ExitStack() as stack:
        if asked.store == "sqlite":
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            place = f"{folder}/ratings.db"
        else:
            binaries = find_binaries()
            assert binaries is not None, "no PostgreSQL server is installed"
            place = address(stack.enter_context(postgres(binaries, durable=True)))
        EventStore.open(place, create=True).close()
        url = stack.enter_context(service(asked.model, place, asked.workers))
        crowd = Crowd(url, items, asked.writes, asked.reads)
        began = time.perf_counter()
        crowd.go(60 * asked.minutes)
        took = time.perf_counter() - began
        store = EventStore.open(place)
        events = store.n_events()
        store.close()
    found: dict[str, Any] = {
        "store": asked.store,
        "minutes": asked.minutes,
        "workers": asked.workers,
        "events": events,
        "load": os.getloadavg()[0],
    }
    for what, seconds in crowd.seconds.items():
        p50, p99 = np.percentile(np.array(seconds) * 1e3, [50, 99])
        found[what] = {
            "per_second": round(len(seconds) / took, 1),
            "p50_ms": round(float(p50), 1),
            "p99_ms": round(float(p99), 1),
            "statuses": dict(crowd.statuses[what]),
        }
    print(json.dumps(found))
    if asked.out is not None:
        with asked.out.open("a") as file:
            print(json.dumps(found), file=file)


if __name__ == "__main__":
    main()
