"""Fixtures for all tests: no network, no cache but their own, real data only where it lies."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pytest

with suppress(ModuleNotFoundError):  # environments of engines have none
    import hypothesis

    # A busy machine may take long over any example.
    hypothesis.settings.register_profile("unhurried", deadline=None)
    hypothesis.settings.load_profile("unhurried")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="also run tests that take minutes")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--slow"):
        for item in items:
            if item.get_closest_marker("slow"):
                item.add_marker(pytest.mark.skip(reason="takes minutes; run with --slow"))


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Each test has an empty cache of its own."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("CFNADE_CACHE", str(folder))
    return folder


@pytest.fixture
def real_data() -> Path:
    """The folder of real data sets; skips the test if there is none."""
    given = os.environ.get("CFNADE_DATA")
    if not given or not Path(given).is_dir():
        pytest.skip("CFNADE_DATA names no folder of real data sets")
    return Path(given)
