"""Models of other kinds than the user-based one of the other tests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from playwright.sync_api import expect
from tests.browser.conftest import Open
from tests.browser.films import trained
from tests.browser.visit import Visit, sent
from tests.server.given import serving

KINDS: dict[str, dict[str, Any]] = {
    "item": {"side": "item"},
    "both": {"side": "both"},
    "timed": {"side": "both", "time": True},
    "titled": {"ids_are_titles": True},
}


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    folder = tmp_path_factory.mktemp("kinds")
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(serving(trained(folder / name, **options)))
            for name, options in KINDS.items()
        }


def _arrived(visit_to: Open, url: str) -> Visit:
    visit = visit_to(url)
    visit.arrive()
    return visit


@pytest.mark.parametrize("kind", ["both", "titled"])
def test_somebody_new_rates_films_and_asks_why(
    visit_to: Open, urls: dict[str, str], kind: str
) -> None:
    visit = _arrived(visit_to, urls[kind])
    page = visit.page
    assert len(visit.listed()) >= 10
    visit.changing(lambda: page.click("#clear"))
    unrated = visit.scores()
    for text, rating in {"Amélie": 5, "Notting Hill": 5, "Alien": 1}.items():
        visit.rate(text, rating)
    assert visit.mine() == {"Alien 1979": "1", "Notting Hill 1999": "5", "Amélie 2001": "5"}
    assert all(score != unrated.get(film) for film, score in [*visit.scores().items()][:3])
    visit.more("Why").click()
    lines = page.locator(".moves li")
    expect(lines).to_have_count(3)
    for name in ("Amélie", "Notting Hill", "Alien"):
        expect(lines.filter(has_text=name)).to_have_count(1)
    expect(page.get_by_text(re.compile(r"^Item "))).to_have_count(0)
    visit.picture(kind)
    listed = visit.scores()
    page.reload()
    visit.settled()
    assert visit.scores() == listed


def test_an_item_based_model_lists_for_a_known_user(visit_to: Open, urls: dict[str, str]) -> None:
    visit = _arrived(visit_to, urls["item"])
    page = visit.page
    expect(page.get_by_text("This model is item-based")).to_be_visible()
    expect(page.locator("#mine")).to_be_hidden()
    assert visit.listed() == []
    visit.refusals_expected = True
    page.get_by_label("User id").fill("4711")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("4711")
    page.get_by_label("User id").fill("7")
    with page.expect_request("**/recommendations") as asked:
        page.get_by_role("button", name="Show", exact=True).click()
    assert sent(asked.value)["user_id"] == 7
    expect(page.locator(".item-card").first).to_be_visible()
    visit.settled()
    visit.more("Why").click()
    expect(page.locator(".moves li").first).to_contain_text(re.compile(r"Rated \d by \d+ pe"))
    expect(page.get_by_role("button", name=re.compile("^Rate it"))).to_have_count(0)
    visit.picture("item-based")
    listed = visit.scores()
    page.reload()
    visit.settled()
    expect(page.locator(".item-card").first).to_be_visible()
    assert visit.scores() == listed
    assert page.get_by_label("User id").input_value() == "7"


def test_a_model_that_knows_time_says_that_it_makes_no_lists(
    visit_to: Open, urls: dict[str, str]
) -> None:
    page = visit_to(urls["timed"]).page
    page.goto(urls["timed"])
    expect(page.get_by_text("This model depends on timestamps")).to_be_visible()
    for part in ("#mine", "#known", "#films", "#ranking"):
        expect(page.locator(part)).to_be_hidden()
