"""Fixtures for all tests: no network, a cache per test, real data only if it is there."""

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

    # On a busy machine any example may take long.
    hypothesis.settings.register_profile("unhurried", deadline=None)
    hypothesis.settings.load_profile("unhurried")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="also run tests that take minutes")
    parser.addoption("--external", action="store_true", help="also run tests on Ray and Spark")


INTEGRATION_FIXTURES = {"processes", "server", "service", "services"}
"""Fixtures that start processes: commands, databases or the HTTP service."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests by what they need, and skip those that need an option."""
    reasons = {"slow": "takes minutes; run with --slow", "external": "run with --external"}
    browser_tests = Path(__file__).parent / "browser"
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        if browser_tests in item.path.parents:
            item.add_marker("browser")
        if fixtures & INTEGRATION_FIXTURES or item.get_closest_marker("subprocess"):
            item.add_marker("integration")
        if "real_data" in fixtures:
            item.add_marker("realdata")
        for marker, reason in reasons.items():
            if item.get_closest_marker(marker) and not config.getoption(f"--{marker}"):
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def caches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return paths of new folders; `mktemp` would look through all folders for each."""
    parent = tmp_path_factory.mktemp("caches")
    return (parent / str(number) for number in count())


@pytest.fixture(autouse=True)
def own_cache(caches: Iterator[Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give each test an empty cache of its own."""
    folder = next(caches)
    folder.mkdir()
    monkeypatch.setenv("CFNADE_CACHE", str(folder))
    return folder


@pytest.fixture(scope="session")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Return a server that runs commands in processes of their own."""
    server = Server(tmp_path_factory.mktemp("output"))
    yield server
    server.close()


@pytest.fixture
def real_data() -> Path:
    """Return the folder of real data sets; skip the test if there is none."""
    folder = os.environ.get("CFNADE_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("CFNADE_DATA names no folder of real data sets")
    return Path(folder)
