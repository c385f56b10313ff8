"""Every test of a store runs on SQLite and on a real PostgreSQL server, where there is one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.online.files import fresh_database
from tests.support.postgres import find_binaries, postgres

from cfnade.online.event_store import EventStore


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    if (binaries := find_binaries()) is None:
        pytest.skip("no PostgreSQL server is installed (initdb, pg_ctl)")
    with postgres(binaries) as place:
        yield place


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a store may be made: an address where nothing is yet."""
    if request.param == "sqlite":
        return str(tmp_path / "ratings.db")
    return fresh_database(request.getfixturevalue("server"))


@pytest.fixture
def opened() -> Iterator[Callable[[str], EventStore]]:
    """opened(address): a store that is made if it is not there, and closed in the end."""
    stores: list[EventStore] = []

    def make(address: str) -> EventStore:
        stores.append(EventStore.open(address, create=True))
        return stores[-1]

    yield make
    for store in stores:
        store.close()


@pytest.fixture
def store(place: str, opened: Callable[[str], EventStore]) -> EventStore:
    return opened(place)
