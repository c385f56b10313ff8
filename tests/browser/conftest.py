"""A browser, the service with a small catalogue, and visits to it."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, sync_playwright

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.browser.films import trained, with_picks, without_stars
from tests.browser.visit import Visit, new_profile
from tests.server.given import serving


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Debian's Chromium. Not of the session: playwright keeps an event loop while it is open."""
    program = shutil.which("chromium")
    if program is None:
        reason = "no program chromium is installed"
        if os.environ.get("CFNADE_REQUIRE_BROWSER") == "1":
            pytest.fail(f"{reason}, and CFNADE_REQUIRE_BROWSER=1 asks for one")
        pytest.skip(reason)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def profile(browser: Browser) -> Iterator[BrowserContext]:
    """Of one visitor after another: to make a profile costs more than most visits."""
    context = new_profile(browser)
    yield context
    context.close()


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where screenshots go: CFNADE_SCREENSHOTS if set."""
    given = os.environ.get("CFNADE_SCREENSHOTS")
    folder = Path(given) if given else tmp_path_factory.mktemp("screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def films(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of five stars."""
    return trained(tmp_path_factory.mktemp("films") / "stars")


@pytest.fixture(scope="session")
def url(films: Path) -> Iterator[str]:
    with serving(films) as url:
        yield url


@pytest.fixture(scope="session")
def picks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A model of stars that knows picks, of films with genres."""
    with serving(with_picks(tmp_path_factory.mktemp("films") / "picks")) as url:
        yield url


@pytest.fixture(scope="session")
def hearts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A model without stars."""
    with serving(without_stars(tmp_path_factory.mktemp("films") / "hearts")) as url:
        yield url


Serve = Callable[..., str]
Open = Callable[..., Visit]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """serve(folder, …): the address of a service of this test's own."""
    with ExitStack() as services:
        yield lambda *given, **options: services.enter_context(serving(*given, **options))


@pytest.fixture
def visit_to(
    browser: Browser,
    profile: BrowserContext,
    pictures: Path,
    serve: Serve,  # noqa: ARG001  what it serves ends after all visits: a page that asks on complains
) -> Iterator[Open]:
    """visit_to(address, …): a visitor; at the end the page's manners are checked. Who comes second
    or with options has a new profile."""
    visits: list[Visit] = []

    def make(url: str, **options: Any) -> Visit:
        own = new_profile(browser, **options) if visits or options else profile
        visits.append(Visit(own.new_page(), url, pictures))
        return visits[-1]

    yield make
    for visit in visits:
        if visit.page.context is profile:
            visit.forget()
        else:
            visit.page.context.close()
        visit.check_manners()


@pytest.fixture
def visit(visit_to: Open, url: str) -> Visit:
    """A visitor who has just arrived at the five-star page."""
    made = visit_to(url)
    made.arrive()
    return made
