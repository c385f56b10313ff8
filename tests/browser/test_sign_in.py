"""Somebody signs in by a name, rates, and finds it all again elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect
from tests.browser.conftest import Open, Serve
from tests.browser.visit import Visit

from cfnade.online.event_store import EventStore
from cfnade.server.auth import Authenticator


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EventStore]:
    store = EventStore.open(str(tmp_path / "ratings.db"), create=True)
    yield store
    store.close()


def kept(store: EventStore, wanted: int) -> dict[str, float | None]:
    """What the store holds of anna, once it is so many."""
    limit = time.monotonic() + 60
    while len(found := store.ratings("anna")) != wanted and time.monotonic() < limit:
        time.sleep(0.05)
    return {one.item_id: one.rating for one in found}


def sign_in(visit: Visit) -> None:
    visit.page.fill("#sign-name", "anna")
    visit.page.click("#sign-in button")
    expect(visit.page.locator("#signed-name")).to_have_text("anna")
    visit.settled()


def test_what_is_rated_under_a_name_comes_back_on_another_device(
    visit_to: Open, serve: Serve, films: Path, store: EventStore
) -> None:
    url = serve(films, store_url=store.name)
    here = visit_to(url)
    here.arrive(fresh=True)
    here.rate("matrix", 4)
    sign_in(here)
    assert list(kept(store, 1).values()) == [4.0]  # what was rated before comes along
    here.rate("alien", 2)
    assert sorted(filter(None, kept(store, 2).values())) == [2.0, 4.0]
    there = visit_to(url)
    there.arrive(fresh=True)
    sign_in(there)
    expect(there.page.locator("#rated li")).to_have_count(2)
    there.page.locator("#rated li .remove").first.click()
    assert len(kept(store, 1)) == 1
    here.page.reload()
    here.settled()
    expect(here.page.locator("#signed-name")).to_have_text("anna")
    expect(here.page.locator("#rated li")).to_have_count(1)
    here.page.click("#sign-out")
    expect(here.page.locator("#rated li")).to_have_count(0)
    assert len(kept(store, 1)) == 1  # signing out takes nothing back
    here.page.screenshot(path=here.pictures / "sign-in.png")


def test_a_name_that_cannot_be_used_is_refused_with_a_reason(
    visit_to: Open, serve: Serve, films: Path, store: EventStore
) -> None:
    visit = visit_to(serve(films, store_url=store.name))
    visit.arrive()
    expect(visit.page.get_by_text("A name is no password")).to_be_visible()
    visit.page.fill("#sign-name", "anna/ben")
    visit.page.click("#sign-in button")
    expect(visit.page.locator("#error")).to_contain_text("A name has no slash.")


def test_with_a_key_nobody_signs_in_by_a_name_and_a_token_opens_the_page(
    visit_to: Open, serve: Serve, films: Path, store: EventStore
) -> None:
    key = "a key of this test"
    visit = visit_to(serve(films, store_url=store.name, api_key=key))
    visit.refusals_expected = True
    visit.page.goto(visit.url)
    visit.page.fill("#key-text", Authenticator(key).issue_token("anna", 600))
    visit.page.click("#key-form button")
    visit.settled()
    assert len(visit.listed()) >= 10
    expect(visit.page.locator("#people")).to_be_hidden()


def test_without_a_store_nobody_is_asked_to_sign_in(visit: Visit) -> None:
    expect(visit.page.locator("#people")).to_be_hidden()
