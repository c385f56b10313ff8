"""Attacks over loopback: what one client sends must not keep others from being answered.

Bounds on time are generous, because the machine may be busy; without the defences the waits are
several times longer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from tests.serve.given import JSON, serving
from tests.serve.test_bodies import LARGE


@contextmanager
def probing(url: str) -> Iterator[list[float]]:
    """Ask /health again and again meanwhile; gives the seconds that each answer took."""
    seconds: list[float] = []
    done = threading.Event()

    def probe() -> None:
        with httpx.Client(timeout=60) as client:
            while True:
                began = time.perf_counter()
                assert client.get(f"{url}/health").status_code == 200
                seconds.append(time.perf_counter() - began)
                if done.wait(0.02):
                    return

    with ThreadPoolExecutor(1) as pool:
        probes = pool.submit(probe)
        try:
            yield seconds
        finally:
            done.set()
            probes.result()


@pytest.fixture(scope="module")
def service(user_model: Path) -> Iterator[str]:
    with serving(user_model) as url:
        yield url


@pytest.mark.parametrize("name", LARGE)
def test_invalid_bodies_do_not_keep_others_waiting(service: str, name: str) -> None:
    """Measured on a quiet machine: /health within 20 ms. Without the bounds: 8 s and more."""
    with (
        httpx.Client(timeout=60) as client,
        probing(service) as seconds,
        ThreadPoolExecutor(4) as attackers,
    ):
        answers = attackers.map(
            lambda _: client.post(f"{service}/predict", content=LARGE[name], headers=JSON),
            range(12),
        )
        assert {answer.status_code for answer in answers} == {422}
    assert max(seconds) < 1.0
