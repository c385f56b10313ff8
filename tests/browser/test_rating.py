"""Rate films and see the list follow."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect
from tests.browser.conftest import Open
from tests.browser.films import LOVE, SPACE
from tests.browser.visit import Visit, sent

_NEW = {"Amélie": 5, "Notting Hill": 5, "Alien": 1}


def _kind(titles: list[str]) -> set[str]:
    """Names as the page writes them, without year and other names."""
    moved = [re.sub(r"^(.*), The\b", r"The \1", title) for title in titles]
    return {re.sub(r" \(.*$", "", title) for title in moved}


def _as_shown(title: str) -> str:
    return next(iter(_kind([title])))


def _names(listed: list[str]) -> list[str]:
    return [re.sub(r" \d{4}$", "", title) for title in listed]


def test_a_sample_taste_has_a_list(visit: Visit) -> None:
    page = visit.page
    pressed = page.locator("#chips button[aria-pressed=true]")
    expect(pressed).to_have_count(1)
    assert len(visit.mine()) >= 3
    assert len(visit.listed()) >= 10
    assert not set(visit.mine()) & set(visit.listed())
    visit.picture("sample")


def test_three_ratings_turn_the_list_around(visit: Visit) -> None:
    visit.page.click("#clear")
    visit.settled()
    for text, rating in _NEW.items():
        visit.rate(text, rating)
    assert visit.mine() == {"Alien 1979": "1", "Notting Hill 1999": "5", "Amélie 2001": "5"}
    romantic = _names(visit.listed())
    assert set(romantic[:8]) <= _kind(LOVE)
    assert "Amélie" not in romantic
    visit.picture("romantic")

    rows = visit.page.locator("#rated li")
    for place, rating in enumerate([5, 1, 1]):  # the same films, the other way round
        name = f"{rating} of 5"
        visit.changing(rows.nth(place).get_by_role("radio", name=name, exact=True).check)
    assert set(_names(visit.listed())[:8]) <= _kind(SPACE)
    assert visit.page.locator(".place small").count() > 0  # who rose and who fell


def test_bars_and_words_say_the_distribution(visit: Visit) -> None:
    with visit.page.expect_response("**/recommendations") as answer:
        visit.page.click("#clear")
    visit.settled()
    first = answer.value.json()["items"][0]
    card = visit.page.locator(".item-card").first
    visit.more("Why", card).click()
    for name, given in (("--size", "probabilities"), ("--usual", "baseline")):
        script = f"bars => bars.map(bar => Number(bar.style.getPropertyValue('{name}')))"
        sizes = card.locator(".bars i").evaluate_all(script)
        tallest = max(first[given]) / max(sizes)
        assert sizes == pytest.approx([chance / tallest for chance in first[given]])
    chances = first["probabilities"]
    told = card.get_by_role("img").get_attribute("aria-label") or ""
    percents = [int(text) for text in re.findall(r": (?:under )?(\d+) %", told)]
    others = re.findall(r"\d (?:under )?(\d+)", told.partition("in %:")[2])
    assert [int(text) for text in others] == [max(round(100 * one), 1) for one in first["baseline"]]
    assert percents == [max(round(100 * chance), 1) for chance in chances]
    low, high = first["interval"]
    assert f"{low:g}\u00a0to\u00a0{high:g}" in card.locator(".note").first.inner_text()
    assert float(card.locator(".score").inner_text()[:3]) == round(first["prediction"], 1)


def test_why_opens_and_follows_what_is_removed(visit: Visit) -> None:
    page = visit.page
    page.click("#clear")
    for text, rating in _NEW.items():
        visit.rate(text, rating)
    card = page.locator(".item-card").first
    visit.more("Why", card).click()
    lines = card.locator(".moves li")
    expect(lines).to_have_count(3)
    told = lines.locator(".by").all_inner_texts()
    assert all(re.match(r"[+−±]\d", text) for text in told), told
    ups = card.locator(".bar.up").count()
    assert ups == sum(text[0] in "+±" for text in told)
    assert ups > 0
    visit.picture("why")

    title = card.locator("h3").inner_text()
    page.get_by_role("button", name="Remove Alien (1979)").click()
    visit.settled()
    same = page.locator(".item-card").filter(has_text=title)
    expect(same.locator(".moves li")).to_have_count(2)
    expect(same.locator(".moves")).not_to_contain_text("Alien")


def test_undo_takes_back_one_step_at_a_time(visit_to: Open, url: str) -> None:
    visit = visit_to(url)
    visit.arrive(fresh=True)
    page = visit.page
    assert page.locator("#undo").is_disabled()
    page.locator("#chips button").first.click()
    begun = visit.mine()
    page.click("#clear")
    expect(page.locator("#nothing")).to_be_visible()
    visit.rate("Casablanca", 5)
    page.get_by_role("button", name="Remove Casablanca (1942)").click()
    assert visit.mine() == {}
    page.click("#undo")
    assert visit.mine() == {"Casablanca 1942": "5"}
    page.click("#undo")
    page.click("#undo")
    assert visit.mine() == begun
    expect(page.locator("#chips button[aria-pressed=true]")).to_have_count(1)
    page.click("#undo")
    assert visit.mine() == {}
    expect(page.locator("#undo")).to_be_disabled()


def test_a_film_of_the_list_can_be_rated_there(visit: Visit) -> None:
    page = visit.page
    card = page.locator(".item-card").nth(1)
    title = card.locator("h3").inner_text()
    held = page.locator(".item-card").filter(has_text=title)
    card.get_by_role("button", name=re.compile("^Rate it")).click()
    for name in ("2 of 5", "4 of 5"):  # thinking again: the film stays while it is being rated
        visit.changing(held.get_by_role("radio", name=name, exact=True).check)
        expect(held).to_have_count(1)
    assert next(iter(visit.mine().values())) == "4"
    page.locator("#search").focus()
    expect(held).to_have_count(0)


def test_the_dial_weighs_what_is_personal(visit: Visit) -> None:
    for knob, times in ((-4, 0.0), (-1, 0.75), (3, 3.0)):
        with visit.page.expect_response("**/recommendations") as answer:
            visit.page.fill("#knob", str(knob))
        visit.settled()
        asked = sent(answer.value.request)
        assert (asked["n"], asked["personalization"]) == (20, times)
        titles = [film["title"] for film in answer.value.json()["items"]]
        assert _names(visit.listed()) == [*map(_as_shown, titles)]
    asked = visit.changing(lambda: visit.page.fill("#knob", "0"))
    assert "personalization" not in asked


def test_thinly_rated_films_are_hidden_and_can_be_shown(visit: Visit) -> None:
    page = visit.page

    def pretend(asked: dict[str, object]) -> dict[str, object]:
        return (
            {"n_hidden_items": 7, "min_ratings": 20}
            if "min_ratings" not in asked
            else {"n_hidden_items": 0}
        )

    page.route(
        "**/recommendations",
        lambda route: route.fulfill(json=route.fetch().json() | pretend(sent(route.request))),
    )
    visit.changing(lambda: page.click("#clear"))
    expect(page.locator("#hidden-text")).to_have_text(
        "7 films are hidden: fewer than 20 ratings to learn from."
    )
    asked = visit.changing(lambda: page.get_by_role("button", name="Show them").click())
    assert asked["min_ratings"] == 0
    assert "min_ratings" not in visit.changing(
        lambda: page.get_by_role("button", name="Hide them").click()
    )
