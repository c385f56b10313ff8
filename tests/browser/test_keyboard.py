"""Everything by keyboard, and what a screen reader is told."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect
from tests.browser.visit import Visit


def _focused(page: Page) -> str:
    script = """(() => { const node = document.activeElement;
        return node.id || node.getAttribute("aria-label") || node.textContent || node.value; })()"""
    return str(page.evaluate(script))


def _tab_to(page: Page, pattern: str, key: str = "Tab") -> None:
    """Press Tab until the focus is on what is wanted, at most once around the page."""
    for _ in range(120):
        page.keyboard.press(key)
        if re.search(pattern, _focused(page)):
            return
    raise AssertionError(f"{pattern} cannot be reached by {key}")


def test_a_whole_visit_without_a_mouse(visit: Visit) -> None:
    page = visit.page
    _tab_to(page, "^clear$")
    page.keyboard.press("Enter")
    visit.settled()
    films = ("alien", "Alien", 1), ("amelie", "Amélie", 5), ("notting", "Notting Hill", 5)
    for text, title, presses in films:
        page.locator("#search").focus()
        page.keyboard.type(text)
        visit.settled()  # what the first letters found has made way
        expect(page.locator("#found-0")).to_contain_text(title)
        page.keyboard.press("ArrowDown")
        expect(page.locator("#search")).to_have_attribute("aria-activedescendant", "found-0")
        page.keyboard.press("Enter")
        page.keyboard.press("Space")  # the first star
        for _ in range(presses - 1):
            page.keyboard.press("ArrowRight")
        page.keyboard.press("Enter")  # back to the search
        expect(page.locator("#search")).to_be_focused()
    visit.settled()
    assert visit.mine() == {"Notting Hill 1999": "5", "Amélie 2001": "5", "Alien 1979": "1"}

    _tab_to(page, "^knob$")
    visit.changing(lambda: page.keyboard.press("ArrowLeft"))
    assert page.locator("#knob").get_attribute("aria-valuetext") == "towards everybody, 1 of 4"
    _tab_to(page, "More for")
    page.keyboard.press("Enter")
    _tab_to(page, r"^Why\?")
    page.keyboard.press("Enter")
    assert "More for" in _focused(page)  # the menu closes and keeps the focus
    expect(page.locator(".item-card").first.locator(".moves li")).to_have_count(3)
    _tab_to(page, "^Remove Alien", key="Shift+Tab")
    page.keyboard.press("Enter")
    assert re.match("Remove Amélie", _focused(page))  # the focus does not fall to the page's top
    _tab_to(page, "^undo$")
    page.keyboard.press("Enter")
    assert len(visit.mine()) == 3


def test_the_combobox_obeys_its_keys(visit: Visit) -> None:
    page = visit.page
    field, box = page.get_by_role("combobox"), page.get_by_role("listbox")
    field.focus()
    page.keyboard.press("ArrowDown")  # nothing typed: the most rated
    expect(box).to_be_visible()
    expect(field).to_have_attribute("aria-expanded", "true")
    options = page.get_by_role("option")
    count = options.count()
    page.keyboard.press("ArrowUp")
    expect(options.nth(count - 1)).to_have_attribute("aria-selected", "true")
    page.keyboard.press("ArrowDown")
    expect(options.first).to_have_attribute("aria-selected", "true")
    assert options.evaluate_all("all => all.filter(o => o.ariaSelected === 'true').length") == 1
    page.keyboard.press("Escape")
    expect(box).to_be_hidden()
    expect(field).to_have_attribute("aria-expanded", "false")
    expect(field).to_be_focused()
    field.fill("alien")
    expect(options.first).to_contain_text("Alien")
    page.keyboard.press("Tab")
    expect(box).to_be_hidden()


def test_a_film_already_rated_is_not_entered_twice(visit: Visit) -> None:
    visit.page.click("#clear")
    visit.rate("Alien", 4)
    option = visit.find("Alien").first
    expect(option).to_contain_text("rated 4")
    option.click()
    assert visit.mine() == {"Alien 1979": "4"}
    assert visit.page.evaluate("document.activeElement.value") == "4"


def test_changes_are_announced(visit: Visit) -> None:
    live = visit.page.locator("#live")
    visit.changing(lambda: visit.page.fill("#knob", "-2"))
    expect(live).to_have_text(re.compile(r"^List updated\. First: .+, expected \d"))
    assert live.get_attribute("role") == "status"


def test_the_focus_can_be_seen(visit: Visit) -> None:
    page = visit.page
    for wanted in ("^search$", "^undo$|^import$", "^knob$", "^Rate it", "More for"):
        _tab_to(page, wanted)
        width = page.evaluate("getComputedStyle(document.activeElement).outlineWidth")
        assert width == "2px", wanted
    page.locator("#rated input").first.focus()
    page.keyboard.press("ArrowRight")
    around = page.evaluate(
        "getComputedStyle(document.activeElement.closest('fieldset')).outlineStyle"
    )
    assert around == "solid"
