"""An item-based model knows its own people only, and the page says so."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect
from tests.serve.browser.conftest import Open
from tests.serve.browser.films import trained
from tests.serve.browser.visit import sent
from tests.serve.given import serving


@pytest.fixture(scope="module")
def item_based(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(trained(tmp_path_factory.mktemp("films") / "items", side="item")) as url:
        yield url


def test_a_known_user_has_a_list(visit_to: Open, item_based: str) -> None:
    visit = visit_to(item_based)
    visit.arrive()
    page = visit.page
    expect(page.get_by_text("This model is item-based")).to_be_visible()
    expect(page.locator("#mine")).to_be_hidden()
    assert visit.listed() == []
    page.get_by_label("User id").fill("7")
    with page.expect_request("**/recommend") as asked:
        page.get_by_role("button", name="Show", exact=True).click()
    assert sent(asked.value)["user"] == 7
    expect(page.locator(".film").first).to_be_visible()
    visit.settled()
    page.get_by_role("button", name=re.compile("^Why")).first.click()
    expect(page.locator(".moves li").first).to_contain_text(re.compile(r"Rated \d by \d+ pe"))
    expect(page.get_by_role("button", name=re.compile("^Rate it"))).to_have_count(0)
    visit.picture("item-based")
    listed = visit.scores()
    page.reload()
    visit.settled()
    expect(page.locator(".film").first).to_be_visible()
    assert visit.scores() == listed
    assert page.get_by_label("User id").input_value() == "7"


def test_an_unknown_user_is_told_so(visit_to: Open, item_based: str) -> None:
    visit = visit_to(item_based)
    visit.refusals_expected = True
    visit.arrive()
    visit.page.get_by_label("User id").fill("4711")
    visit.page.keyboard.press("Enter")
    expect(visit.page.get_by_role("alert")).to_contain_text("4711")
