"""What survives a reload, and what happens when things go wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Route, expect
from tests.browser.conftest import Open
from tests.browser.visit import Visit
from tests.server.given import serving

_KEYS = "Object.keys(localStorage)"


def test_a_reload_keeps_everything(visit: Visit) -> None:
    page = visit.page
    page.click("#clear")
    visit.rate("Alien", 2)
    visit.rate("Casablanca", 5)
    visit.changing(lambda: page.fill("#knob", "-3"))
    mine, listed = visit.mine(), visit.scores()
    page.reload()
    visit.settled()
    assert visit.mine() == mine
    assert visit.scores() == listed
    assert page.locator("#knob").input_value() == "-3"


def test_an_empty_history_stays_empty(visit: Visit) -> None:
    visit.changing(lambda: visit.page.click("#clear"))
    visit.page.reload()
    visit.settled()
    assert visit.mine() == {}
    assert len(visit.listed()) == 20


_BAD = [
    "not json",
    "null",
    "[]",
    "{}",
    '"text"',
    '{"ratings": 7}',
    '{"ratings": [null, 3, {"item": {}, "rating": 5}], "knob": "x", "thin": 3, "user": []}',
    '{"ratings": [{"item": 22, "rating": 77}, {"item": 22, "title": 5, "rating": 4}], "knob": 99}',
    '{"ratings": [{"item": 22, "rating": 5}], "genres": "Horror"}',
    '{"ratings": [{"item": 22, "rating": 5}], "genres": ["Horror", {}]}',
    '{"ratings": [], "later": 3, "away": [null, {"item": []}], "unseen": {}, "decades": ["x"]}',
]


def test_broken_storage_is_not_believed(visit: Visit) -> None:
    page = visit.page
    visit.changing(lambda: page.click("#clear"))
    for kept in _BAD:
        page.evaluate(f"(kept) => localStorage.setItem({_KEYS}[0], kept)", kept)
        page.reload()
        visit.settled()
        assert len(visit.listed()) >= 10, kept
        assert page.locator("#knob").input_value() == "0", kept
        assert "Brazil 1985" not in visit.mine(), kept
        visit.rate("Brazil", 3)
        assert visit.mine()["Brazil 1985"] == "3", kept


def test_without_storage_the_page_works(visit_to: Open, url: str) -> None:
    visit = visit_to(url)
    visit.page.add_init_script(
        """for (const name of ["localStorage", "sessionStorage"])
             Object.defineProperty(window, name, { get() { throw new DOMException("no"); } });"""
    )
    visit.arrive()
    visit.rate("Brazil", 3)
    assert visit.mine()["Brazil 1985"] == "3"


# -- the key -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def locked(films: Path) -> Iterator[str]:
    with serving(films, api_key="open sesame") as url:
        yield url


def test_a_key_is_asked_for_once_a_tab(visit_to: Open, locked: str) -> None:
    visit = visit_to(locked)
    visit.refusals_expected = True
    page = visit.page
    page.goto(visit.url)
    dialog = page.get_by_role("dialog", name="This server asks for a key")
    expect(dialog).to_be_visible()
    visit.picture("key")
    page.get_by_label("Key", exact=True).fill("wrong")
    page.keyboard.press("Enter")
    expect(dialog).to_contain_text("did not accept")
    page.get_by_label("Key", exact=True).fill("open sesame")
    page.keyboard.press("Enter")
    expect(dialog).to_be_hidden()
    visit.settled()
    assert len(visit.listed()) >= 10
    page.reload()
    visit.settled()
    assert len(visit.listed()) >= 10
    stored = page.evaluate("JSON.stringify(localStorage)")
    assert "sesame" not in stored


# -- trouble -----------------------------------------------------------------------------------


def test_a_server_error_is_told_and_can_be_retried(visit: Visit) -> None:
    visit.refusals_expected = True
    page = visit.page
    before = visit.listed()
    problem = {"title": "Oops", "status": 500, "detail": "The model is out to lunch."}
    page.route("**/recommendations", lambda route: route.fulfill(status=500, json=problem))
    page.fill("#knob", "-4")
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("The model is out to lunch. The list below is older.")
    visit.picture("trouble")
    assert visit.listed() == before
    page.unroute("**/recommendations")
    visit.changing(alert.get_by_role("button", name="Try again").click)
    expect(alert).to_be_hidden()


def test_a_model_that_does_not_come_is_told_and_can_be_retried(visit_to: Open, url: str) -> None:
    visit = visit_to(url)
    visit.refusals_expected = True
    page = visit.page
    page.route("**/model", lambda route: route.abort())
    page.goto(url)
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("The server cannot be reached.")
    page.unroute("**/model")
    alert.get_by_role("button", name="Try again").click()
    visit.settled()
    assert len(visit.listed()) >= 10


def test_a_busy_server_is_asked_again(visit: Visit) -> None:
    visit.refusals_expected = True
    tries: list[int] = []

    def busy_once(route: Route) -> None:
        tries.append(1)
        if len(tries) == 1:
            route.fulfill(status=503, json={"detail": "busy"})
        else:
            route.continue_()

    visit.page.route("**/recommendations", busy_once)
    visit.changing(lambda: visit.page.fill("#knob", "2"))
    assert len(tries) == 2
    expect(visit.page.get_by_role("alert")).to_be_hidden()


def test_an_answer_that_breaks_off_is_an_error_too(visit: Visit) -> None:
    visit.page.route("**/recommendations", lambda route: route.fulfill(body='{"items": ['))
    visit.page.fill("#knob", "1")
    expect(visit.page.get_by_role("alert")).to_contain_text("cannot be reached")


def test_an_old_answer_never_replaces_a_newer_one(visit: Visit) -> None:
    """The first request is answered last; the list must be that of the second."""
    page = visit.page
    waiting: list[Route] = []
    held = True

    def hold_first(route: Route) -> None:
        nonlocal held
        if held:
            held = False
            waiting.append(route)
        else:
            route.continue_()

    page.route("**/recommendations", hold_first)
    page.click("#clear")
    page.wait_for_timeout(400)
    visit.rate("Alien", 5)
    listed = visit.scores()
    assert len(waiting) == 1
    # Its page has turned away; an answer is still allowed, and must change nothing.
    old = {"items": [], "n_hidden_items": 0, "min_ratings": 1, "ignored": []}
    waiting[0].fulfill(json=old)
    page.wait_for_timeout(300)
    assert visit.scores() == listed


def test_the_search_says_what_went_wrong(visit: Visit) -> None:
    visit.refusals_expected = True
    page = visit.page
    page.fill("#search", "qqqqzzzz")
    expect(page.locator("#found-note")).to_have_text("No film found for “qqqqzzzz”.")
    page.route("**/items?**", lambda route: route.abort())
    page.fill("#search", "alien")
    expect(page.locator("#found-note")).to_contain_text("cannot be reached")


def test_skeletons_until_the_first_answer(visit_to: Open, url: str) -> None:
    visit = visit_to(url)
    page = visit.page
    held: list[Route] = []
    page.route("**/recommendations", lambda route: held.append(route))
    page.goto(url)
    expect(page.locator("#ask")).to_be_visible()
    assert page.locator(".skeleton").count() >= 4
    expect(page.locator("#films")).to_have_attribute("aria-busy", "true")
    visit.picture("waiting")
    held[0].continue_()
    visit.settled()
    assert len(visit.listed()) >= 10
