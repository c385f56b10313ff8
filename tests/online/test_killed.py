"""The service is killed while people rate: what it acknowledged is there, and nothing twice."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator

import pytest
from tests.online.forked_service import Services
from tests.online.writing import Writers, check_kept, free_port, ready
from tests.server.given import KINDS, trained

from cfnade.online.event_store import EventStore


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    model = trained(tmp_path_factory.mktemp("models") / "user", KINDS["user"])
    started = Services(model)
    yield started
    started.close()


def killed_while_people_rate(times: int, services: Services, store: EventStore, place: str) -> None:
    rng = random.Random(7)
    port = free_port()
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
    check_kept(writers, store)
    assert sum(writers.refused.values()) >= times  # it was away each time, and they noticed
    print(f"{times} kills: {len(writers.acknowledged)} kept; {dict(writers.refused)}")


def test_killed_under_load_nothing_is_lost_and_nothing_twice(
    services: Services, store: EventStore, place: str
) -> None:
    killed_while_people_rate(2, services, store, place)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_killed_fifty_times(services: Services, store: EventStore, place: str) -> None:
    killed_while_people_rate(50, services, store, place)
