"""Fixtures for all tests: no network, no cache but their own, real data only where it lies."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest
from tests.cli.forks import Server

with suppress(ModuleNotFoundError):  # environments of engines have none
    import hypothesis

    # A busy machine may take long over any example.
    hypothesis.settings.register_profile("unhurried", deadline=None)
    hypothesis.settings.load_profile("unhurried")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="also run tests that take minutes")
    parser.addoption("--external", action="store_true", help="also run tests on Ray and Spark")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    reasons = {"slow": "takes minutes; run with --slow", "external": "run with --external"}
    for marker, reason in reasons.items():
        if not config.getoption(f"--{marker}"):
            for item in items:
                if item.get_closest_marker(marker):
                    item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def caches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Empty folders; pytest's own numbers are found by looking through all folders each time."""
    whole = tmp_path_factory.mktemp("caches")
    return (whole / str(number) for number in count())


@pytest.fixture(autouse=True)
def own_cache(caches: Iterator[Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """Each test has an empty cache of its own."""
    folder = next(caches)
    folder.mkdir()
    monkeypatch.setenv("CFNADE_CACHE", str(folder))
    return folder


@pytest.fixture(scope="session")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Commands in processes of their own, for what may happen to a process."""
    server = Server(tmp_path_factory.mktemp("said"))
    yield server
    server.close()


@pytest.fixture
def real_data() -> Path:
    """The folder of real data sets; skips the test if there is none."""
    given = os.environ.get("CFNADE_DATA")
    if not given or not Path(given).is_dir():
        pytest.skip("CFNADE_DATA names no folder of real data sets")
    return Path(given)
