"""A server that goes away and returns: 503 meanwhile, and nothing that was acknowledged is lost."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from tests.online.forked_service import Services
from tests.online.writing import Writers, check_kept, free_port, ready
from tests.server.given import KINDS, TestClient, server_settings, trained
from tests.support.postgres import address, find_binaries, postgres, unprivileged

from cfnade.online.event_store import EventStore
from cfnade.server.app import create_app
from cfnade.server.model_registry import ModelRegistry

Switch = Callable[[bool], None]


@pytest.fixture
def switched() -> Iterator[tuple[str, Switch]]:
    """A server of its own, and what stops and starts it."""
    binaries = find_binaries()
    if binaries is None:
        pytest.skip("no PostgreSQL server is installed (initdb, pg_ctl)")
    with postgres(binaries) as place:
        with psycopg.connect(address(place)) as connection:
            (folder,) = connection.execute("show data_directory").fetchone() or ("",)
        options = shlex.split((Path(folder) / "postmaster.opts").read_text())[3:]

        def switch(on: bool) -> None:
            how = ["-o", shlex.join(options), "start"] if on else ["-m", "immediate", "stop"]
            subprocess.run(
                [str(binaries / "pg_ctl"), "-D", folder, "-w", *how],
                cwd=folder,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=True,
                **unprivileged(),
            )

        yield address(place), switch


def test_a_server_that_goes_away_and_returns_loses_nothing(
    switched: tuple[str, Switch], tmp_path: Path
) -> None:
    place, switch = switched
    EventStore.open(place, create=True).close()
    models = ModelRegistry(trained(tmp_path / "model", KINDS["user"]))
    path = "/users/anna/ratings"
    with TestClient(
        create_app(models, server_settings(models.model_dir, store_url=place)),
        raise_server_exceptions=False,
    ) as client:
        assert client.put(f"{path}/101", json={"rating": 4}).status_code == 200
        switch(False)
        for _ in range(3):
            for answer in (
                client.put(f"{path}/102", json={"rating": 5}),
                client.get("/users/anna/ratings"),
                client.get("/users/anna/recommendations"),
            ):
                assert answer.status_code == 503, answer.text
                assert answer.headers["retry-after"] == "1"
                assert "pass" not in answer.text
        assert (
            client.post("/recommendations", json={"ratings": []}).status_code == 200
        )  # needs no store
        switch(True)
        assert client.put(f"{path}/102", json={"rating": 5}).json()["changed"]
        rated = client.get("/users/anna/ratings").json()["ratings"]
        assert [(one["item"], one["rating"]) for one in rated] == [(101, 4.0), (102, 5.0)]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_ten_seconds_away_while_people_rate(switched: tuple[str, Switch], tmp_path: Path) -> None:
    place, switch = switched
    store = EventStore.open(place, create=True)
    services = Services(trained(tmp_path / "model", KINDS["user"]))
    port = free_port()
    pid = services.start(place, port)
    ready(port)
    writers = Writers(f"http://127.0.0.1:{port}")
    try:
        _until_more(writers, 100)
        switch(False)
        time.sleep(10)
        switch(True)
        _until_more(writers, 100)
    finally:
        writers.end()
        os.kill(pid, signal.SIGTERM)
        services.wait(pid)
        services.close()
    check_kept(writers, store)
    assert set(writers.refused) == {"503"}
    store.close()


def _until_more(writers: Writers, count: int) -> None:
    enough = len(writers.acknowledged) + count
    while len(writers.acknowledged) < enough:
        time.sleep(0.01)
