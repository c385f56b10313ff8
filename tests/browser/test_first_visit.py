"""A first visit on a phone, by keyboard: rate, see the list change, ask why, filter, share."""

from __future__ import annotations

import re
from typing import Any

from playwright.sync_api import Page, expect
from tests.browser.conftest import Open
from tests.browser.films import GENRES, ITEM
from tests.browser.visit import Visit, sent

PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "has_touch": True}
_SEEN = """nodes => nodes.filter((node) => {
  const { top, bottom } = node.getBoundingClientRect();
  return top >= 0 && bottom <= innerHeight && node.checkVisibility();
}).map((node) => node.querySelector("h3").innerText)"""


def _in_sight(page: Page) -> list[str]:
    """The films that are wholly on the screen."""
    return [str(text) for text in page.locator(".item-card").evaluate_all(_SEEN)]


def _answer(visit: Visit, stars: int) -> str:
    """Answer the question with so many stars by keys alone; the film that was asked about."""
    page = visit.page
    asked = page.locator("#ask-film").inner_text()
    page.keyboard.press("Space")  # the first star
    for _ in range(stars - 1):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")  # the next question
    expect(page.locator("#ask-film")).not_to_have_text(asked)
    visit.settled()
    return asked


def test_a_first_visit_on_a_phone(visit_to: Open, picks: str) -> None:
    visit = visit_to(picks, **PHONE)
    visit.arrive(fresh=True)
    page = visit.page
    at_first = _in_sight(page)
    assert len(at_first) >= 2  # without scrolling
    expect(page.locator("#ask")).to_be_in_viewport()
    expect(page.locator("#ask-count")).to_contain_text("Question 1 of 10")
    visit.picture("phone-first")

    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.closest('#ask-how') !== null"):
            break
    asked = [_answer(visit, stars) for stars in (5, 1, 4)]
    expect(page.locator("#ask-count")).to_contain_text("Question 4 of 10")
    now = _in_sight(page)
    assert now != at_first  # the change can be seen where the rating was given
    assert not set(asked) & set(now)
    told = page.locator("#changes")
    expect(told).to_be_in_viewport()
    expect(told).to_contain_text(asked[-1][:-5])
    visit.picture("phone-rated")

    visit.more("Why").press("Enter")
    reasons = page.locator(".item-card").first.locator(".moves li")
    expect(reasons).to_have_count(3)
    sizes = reasons.locator(".bar i").evaluate_all("bars => bars.map(bar => bar.offsetWidth)")
    wide = reasons.locator(".bar").first.evaluate("bar => bar.offsetWidth")
    changes = [
        float(text[:5].replace("−", "-").replace("±", ""))
        for text in reasons.locator(".by").all_inner_texts()
    ]
    for size, change in zip(sizes, changes, strict=True):  # half the width is half a star
        assert abs(size - min(abs(change), 0.5) * wide) < 0.02 * wide + 2, (size, change)
    visit.picture("phone-why")
    visit.more("Why").press("Enter")

    with page.expect_response("**/recommendations") as answer:
        page.get_by_role("button", name="Romance", exact=True).press("Enter")
        visit.settled()
    assert sent(answer.value.request)["genres"] == ["Romance"]
    listed = answer.value.json()["items"]
    assert listed
    assert all(GENRES[film["item"]] == "Romance" for film in listed)
    asked_for = visit.changing(lambda: page.get_by_role("button", name="1990s").press("Enter"))
    assert asked_for["decades"] == [1990]
    assert visit.listed()
    assert all(re.search(r"199\d$", title) for title in visit.listed())
    visit.picture("phone-filtered")
    visit.changing(lambda: page.get_by_role("button", name="Clear filters").press("Enter"))

    page.mouse.wheel(0, 700)
    page.wait_for_timeout(200)
    expect(page.locator("#search")).to_be_in_viewport()  # the strip stays above the list
    _shared_with_somebody(visit, visit_to)


def _shared_with_somebody(visit: Visit, visit_to: Open) -> None:
    """The link shows the same ratings and list in another profile, and is sent nowhere."""
    page = visit.page
    page.locator("#fold").press("Enter")
    mine, scores = visit.mine(), visit.scores()
    assert len(mine) == 3
    page.locator("#share").press("Enter")
    link = page.get_by_label("Link", exact=True).input_value()
    assert link.startswith(f"{visit.url}/#mine=")
    other = visit_to(visit.url, **PHONE)
    urls: list[str] = []
    other.page.on("request", lambda request: urls.append(request.url))
    other.page.goto(link)
    other.settled()
    other.page.locator("#fold").click()
    assert other.mine() == mine
    assert other.scores() == scores
    secret = link.partition("#mine=")[2]
    assert not any(secret in url for url in urls)
    assert "#" not in other.page.url
    other.page.reload()
    other.settled()
    other.page.locator("#fold").click()
    assert other.mine() == mine
    other.picture("phone-shared")


def test_a_link_asks_before_it_replaces_and_undo_brings_back(visit_to: Open, picks: str) -> None:
    giver = visit_to(picks)
    giver.arrive(fresh=True)
    giver.rate("Alien", 5)
    giver.page.click("#share")
    link = giver.page.get_by_label("Link", exact=True).input_value()
    visit = visit_to(picks)
    visit.arrive(fresh=True)
    visit.rate("Casablanca", 4)
    page = visit.page
    page.evaluate("(link) => { location.hash = new URL(link).hash; }", link)
    expect(page.locator("#report")).to_contain_text("This link holds 1 rating")
    assert visit.mine() == {"Casablanca 1942": "4"}
    page.get_by_role("button", name="Show them").click()
    visit.settled()
    assert visit.mine() == {"Alien 1979": "5"}
    page.click("#undo")
    assert visit.mine() == {"Casablanca 1942": "4"}


def test_a_broken_link_is_told_and_harms_nothing(visit_to: Open, url: str, picks: str) -> None:
    giver = visit_to(picks)
    giver.arrive(fresh=True)
    giver.rate("Alien", 5)
    giver.page.click("#share")
    whole = giver.page.get_by_label("Link", exact=True).input_value().partition("#")[2]
    for bad in ("mine=", "mine=%%%", whole[:-7], "mine=eyJvZiI6OTk5fQ", "mine=bnVsbA"):
        visit = visit_to(url)
        visit.page.goto(f"{url}/#{bad}")
        visit.settled()
        expect(visit.page.locator("#report")).to_contain_text("holds no ratings that fit")
        assert visit.mine() == {}
        assert len(visit.listed()) == 20


# -- questions -----------------------------------------------------------------------------------


def test_questions_are_the_models_and_a_film_not_seen_is_not_asked_again(
    visit_to: Open, url: str
) -> None:
    visit = visit_to(url)
    with visit.page.expect_response("**/items-to-rate") as first:
        visit.arrive(fresh=True)
    page = visit.page
    film = first.value.json()["items"][0]
    expect(page.locator("#ask-film")).to_have_text(re.compile(re.escape(film["title"][:4])))
    with page.expect_response("**/items-to-rate") as second:
        page.get_by_role("button", name="Not seen").click()
    assert sent(second.value.request)["exclude_items"] == [film["item"]]
    assert second.value.json()["items"][0]["item"] != film["item"]
    expect(page.locator("#ask input").first).to_be_focused()
    page.reload()
    visit.settled()
    assert film["title"][:4] not in page.locator("#ask-film").inner_text()


def test_ten_answers_are_enough_and_more_can_be_asked(visit_to: Open, url: str) -> None:
    visit = visit_to(url)
    visit.arrive(fresh=True)
    page = visit.page
    known = []
    for count in range(1, 11):
        expect(page.locator("#ask-count")).to_contain_text(f"Question {count} of 10")
        told = page.locator("#ask-count").inner_text()
        known.append(int(re.findall(r"(\d+) %", told)[0]))
        page.locator("#ask").get_by_role("radio", name="4 of 5", exact=True).check()
        page.keyboard.press("Enter")
    expect(page.locator("#ask")).to_be_hidden()
    assert known == sorted(known)  # every answer tells something
    assert known[0] == 0
    assert known[-1] > 20
    page.get_by_role("button", name="Ask me more").click()
    expect(page.locator("#ask-count")).to_contain_text("Question 11 of 15")
    page.get_by_role("button", name="Stop asking").click()
    expect(page.locator("#ask")).to_be_hidden()
    page.reload()
    visit.settled()
    expect(page.locator("#ask")).to_be_hidden()


def test_a_click_is_an_answer_and_leads_on(visit_to: Open, url: str) -> None:
    visit = visit_to(url)
    visit.arrive(fresh=True)
    page = visit.page
    asked = page.locator("#ask-film").inner_text()
    page.locator("#ask label").nth(4).click()
    expect(page.locator("#ask-film")).not_to_have_text(asked)
    assert visit.mine() == {asked: "5"}


def test_hearts_are_asked_too(visit_to: Open, hearts: str) -> None:
    visit = visit_to(hearts)
    visit.arrive(fresh=True)
    page = visit.page
    asked = page.locator("#ask-film").inner_text()
    visit.changing(page.get_by_role("button", name="I like it").click)
    assert page.locator("#rated li > span").first.inner_text().strip() == asked.strip()
    assert ITEM  # the same catalogue
