"""Axe finds no fault with the page, in any of its views, narrow and wide, light and dark."""

from __future__ import annotations

from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import expect
from tests.browser.conftest import Open
from tests.browser.visit import Visit

SIZES = {"phone": 390, "tablet": 768, "desktop": 1280}


def violations(visit: Visit) -> list[tuple[str, list[str]]]:
    """What axe objects to, by rule, with the markup at fault."""
    visit.still()
    found: dict[str, Any] = Axe().run(visit.page).response
    assert len(found["passes"]) > 15
    return [(one["id"], [node["html"] for node in one["nodes"]]) for one in found["violations"]]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_axe_finds_no_fault(visit_to: Open, picks: str, size: str, scheme: str) -> None:
    """A service of ratings and interactions, whose page has all parts."""
    visit = visit_to(picks, viewport={"width": SIZES[size], "height": 900}, color_scheme=scheme)
    visit.arrive()
    visit.picture(f"{size}-{scheme}")
    assert violations(visit) == []
    visit.more("Why").click()
    expect(visit.page.locator(".item-card .moves li").first).to_be_visible()
    visit.picture(f"{size}-{scheme}-why")
    assert violations(visit) == []
    visit.page.locator(".menu-button").nth(1).click()
    visit.picture(f"{size}-{scheme}-menu")
    assert violations(visit) == []
    visit.page.get_by_role("button", name="Map", exact=True).click()
    expect(visit.page.locator("#map-bright li").first).to_be_visible()
    assert violations(visit) == []


def test_axe_finds_no_fault_without_stars(visit_to: Open, hearts: str) -> None:
    grounds = set()
    for scheme in ("light", "dark"):
        visit = visit_to(hearts, color_scheme=scheme)
        visit.arrive()
        visit.more("Why").click()
        expect(visit.page.locator(".reasons li").first).to_be_visible()
        assert violations(visit) == []
        grounds.add(visit.page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(grounds) == 2


@pytest.mark.parametrize("width", [320, 390, 768, 1280, 1920])
def test_a_card_has_one_action_and_a_match_in_words(visit_to: Open, url: str, width: int) -> None:
    visit = visit_to(url, viewport={"width": width, "height": 900})
    visit.arrive()
    card = visit.page.locator(".item-card").first
    assert [button.inner_text().split()[0] for button in card.locator("button:visible").all()] == [
        "Rate",
        "⋯",
    ]
    expect(card.locator(".match span").first).to_have_text("Excellent match")
    expect(card.locator(".score")).to_be_hidden()
    visit.more("Why", card).click()
    expect(card.locator(".score")).to_be_visible()
    visit.page.locator(".menu-button").last.click()
    visit.page.locator(".menu-button").first.click()
    expect(visit.page.locator(".menu:visible")).to_have_count(1)
    assert visit.fits()
