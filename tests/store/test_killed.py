"""The service is killed while people rate: what it acknowledged is there, and nothing twice."""

from __future__ import annotations

import os
import random
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator

import httpx
import pytest
from sqlalchemy import select
from tests.serve.given import KINDS, trained
from tests.store.forked_service import Services

from cfnade.store.opening import Store
from cfnade.store.schema import EVENTS, REQUESTS

ITEMS = range(101, 141)
WRITERS = 4


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    model = trained(tmp_path_factory.mktemp("models") / "user", KINDS["user"])
    started = Services(model)
    yield started
    started.close()


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
                self._send(client, f"/people/{person}/ratings/{item}", rating, f"k{count}")
                self.acknowledged.append((person, str(item), rating))
                count += 1

    def _send(self, client: httpx.Client, path: str, rating: float, key: str) -> None:
        """Sent with the same key until it is acknowledged."""
        while True:
            try:
                headers = {"idempotency-key": key}
                answer = client.put(path, json={"rating": rating}, headers=headers)
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


def killed_while_people_rate(times: int, services: Services, store: Store, place: str) -> None:
    rng = random.Random(7)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    pid = services.start(place, port)
    ready(port)
    writers = Writers(f"http://127.0.0.1:{port}")
    try:
        for _ in range(times):
            enough = len(writers.acknowledged) + rng.randint(5, 50)
            while len(writers.acknowledged) < enough:
                time.sleep(0.002)
            os.kill(pid, signal.SIGKILL)
            services.wait(pid)
            pid = services.start(place, port)
    finally:
        ready(port)
        writers.end()
        os.kill(pid, signal.SIGTERM)
        services.wait(pid)
    with store.reading() as connection:
        rows = connection.execute(select(EVENTS.c.person, EVENTS.c.item, EVENTS.c.rating))
        events = Counter(tuple(row) for row in rows)
        keys = connection.execute(select(REQUESTS.c.person, REQUESTS.c.key)).all()
    assert set(events) == set(writers.acknowledged)
    assert set(events.values()) == {1}
    assert len(keys) == len(writers.acknowledged)
    assert sum(writers.refused.values()) >= times  # it was away each time, and they noticed
    print(f"{times} kills: {len(events)} events acknowledged and kept; {dict(writers.refused)}")


def test_killed_under_load_nothing_is_lost_and_nothing_twice(
    services: Services, store: Store, place: str
) -> None:
    killed_while_people_rate(2, services, store, place)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_killed_fifty_times(services: Services, store: Store, place: str) -> None:
    killed_while_people_rate(50, services, store, place)
