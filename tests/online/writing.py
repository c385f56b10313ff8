"""People who rate at a running service whatever happens to it, and what must then be there."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections import Counter

import httpx
from sqlalchemy import select

from cfnade.online.event_store import EVENTS, EventStore

ITEMS = range(101, 141)
WRITERS = 4


class Writers:
    """People who rate one item after another, and send again what was not acknowledged."""

    def __init__(self, url: str) -> None:
        self.acknowledged: list[tuple[str, str, float]] = []
        self.refused: Counter[str] = Counter()
        self._url, self._done = url, threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(n,)) for n in range(WRITERS)]
        for thread in self._threads:
            thread.start()

    def _run(self, number: int) -> None:
        rng, count = random.Random(number), 0
        with httpx.Client(base_url=self._url, timeout=10) as client:
            while not self._done.is_set():
                person, item = f"w{number}-{count // len(ITEMS)}", ITEMS[count % len(ITEMS)]
                rating = float(rng.randint(1, 5))
                self._send(client, f"/users/{person}/ratings/{item}", rating)
                self.acknowledged.append((person, str(item), rating))
                count += 1

    def _send(self, client: httpx.Client, path: str, rating: float) -> None:
        """Send until it is acknowledged."""
        while True:
            try:
                answer = client.put(path, json={"rating": rating})
                if answer.status_code == 200:
                    return
                self.refused[str(answer.status_code)] += 1
            except httpx.TransportError as error:
                self.refused[type(error).__name__] += 1
            time.sleep(0.02)

    def end(self) -> None:
        """What is under way is acknowledged first: the service runs."""
        self._done.set()
        for thread in self._threads:
            thread.join()


def ready(port: int) -> None:
    """Wait until a service answers there."""
    limit = time.monotonic() + 60
    while time.monotonic() < limit:
        try:
            if httpx.get(f"http://127.0.0.1:{port}/health", timeout=2).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.02)
    raise AssertionError("the service does not start")


def check_kept(writers: Writers, store: EventStore) -> None:
    """All that was acknowledged is there, nothing twice, and nothing else."""
    with store.read() as connection:
        rows = connection.execute(select(EVENTS.c.user_id, EVENTS.c.item_id, EVENTS.c.rating))
        events = Counter(tuple(row) for row in rows)
    assert set(events) == set(writers.acknowledged)
    assert set(events.values()) == {1}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
