"""Models that know what people pick: the knob, genres, more like this, and hearts for stars."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect
from tests.browser.conftest import Open
from tests.browser.films import ITEM, LOVE, SPACE
from tests.browser.visit import Visit


def _arrived(visit_to: Open, url: str, **options: object) -> Visit:
    visit = visit_to(url, **options)
    visit.arrive()
    visit.changing(lambda: visit.page.click("#clear"))
    return visit


def _years(titles: list[str]) -> set[str]:
    """What tells the small catalogue's films apart on the page, too: first word and year."""
    return {f"{re.split(r'[ ,:]', title)[0]} {title[-5:-1]}" for title in titles}


def _short(listed: list[str]) -> list[str]:
    plain = [re.sub(r"^The ", "", title) for title in listed]
    return [f"{re.split(r'[ ,:]', title)[0]} {title[-4:]}" for title in plain]


# -- the knob ------------------------------------------------------------------------------------


def test_the_knob_is_the_taste_and_turns_the_list(visit_to: Open, picks: str) -> None:
    visit = _arrived(visit_to, picks)
    page = visit.page
    visit.rate("Alien", 5)
    expect(page.locator("#knob-from")).to_have_text("Likely picks")
    seen, notes = [], []
    for knob, taste in ((-2, 0.0), (-1, 0.25), (6, 1.0), (0, None)):
        asked = visit.changing(lambda knob=knob: page.fill("#knob", str(knob)))  # type: ignore[misc]
        assert asked.get("balance") == taste
        assert "rank" not in asked
        seen.append(visit.listed())
        notes.append(page.locator("#knob-note").inner_text())
    assert seen[0] != seen[2]
    assert len(set(notes)) == 4
    expect(page.locator("#knob")).to_have_attribute("aria-valuetext", "picked and liked")
    expect(page.locator(".item-card .words").first).to_contain_text("next pick:")


# -- genres --------------------------------------------------------------------------------------


def test_genres_filter_and_are_kept(visit_to: Open, picks: str) -> None:
    visit = _arrived(visit_to, picks)
    page = visit.page
    group = page.get_by_role("group", name="Genres")
    assert group.get_by_role("button").all_inner_texts() == ["Comedy", "Romance", "Sci-Fi"]
    asked = visit.changing(group.get_by_role("button", name="Romance").click)
    assert asked["genres"] == ["Romance"]
    assert set(_short(visit.listed())) == _years(LOVE)
    visit.changing(group.get_by_role("button", name="Comedy").click)
    assert set(_short(visit.listed())) == _years([*LOVE, "Brazil (1985)"])
    expect(group.locator("[aria-pressed=true]")).to_have_text(["Comedy", "Romance"])
    visit.picture("genres")
    page.reload()
    visit.settled()
    assert set(_short(visit.listed())) == _years([*LOVE, "Brazil (1985)"])
    visit.changing(group.get_by_role("button", name="Romance").click)
    assert visit.listed() == ["Brazil 1985"]
    visit.rate("Brazil", 5)
    expect(page.get_by_text("No film of this kind is left.")).to_be_visible()
    asked = visit.changing(group.get_by_role("button", name="Comedy").click)
    assert "genres" not in asked


# -- why -----------------------------------------------------------------------------------------


def _told(page: Page) -> list[str]:
    return page.locator(".item-card").first.locator(".reasons li").all_inner_texts()


def test_reasons_are_told_in_words(visit_to: Open, picks: str) -> None:
    visit = _arrived(visit_to, picks)
    page = visit.page
    visit.rate("Amélie", 5)
    visit.rate("Alien", 1)
    with page.expect_response(
        lambda answer: '"interaction"' in (answer.request.post_data or "")
    ) as told:
        visit.more("Why").click()
    expect(page.locator(".item-card").first.locator(".reasons li")).to_have_count(2)
    wanted = []
    for line in told.value.json()["contributions"]:
        word = "Although" if line["lift"] < 0.995 else "Because"
        did = "liked Amélie" if line["rating"] == 5 else "rated Alien 1"
        shown = f"{line['lift']:.1f}" if line["lift"] >= 0.95 else f"{line['lift']:.2f}"
        wanted.append(f"{word} you {did}: {shown} times as likely")
    assert _told(page) == wanted
    expect(page.locator(".item-card").first.locator(".moves li")).to_have_count(2)
    visit.picture("why-picks")


# -- more like this ------------------------------------------------------------------------------


def test_more_like_this_and_back(visit_to: Open, picks: str) -> None:
    visit = _arrived(visit_to, picks)
    page = visit.page
    visit.rate("Casablanca", 5)
    before = visit.listed()
    card = page.locator(".item-card").filter(has_text="Notting Hill")
    with page.expect_response("**/similar?**") as told:
        visit.more("More like this Notting Hill (1999)", card).click()
    visit.settled()
    expect(page.get_by_role("heading", name="More like Notting Hill (1999)")).to_be_visible()
    like = told.value.json()
    assert (like["item"], like["metric"]) == (ITEM["Notting Hill (1999)"], "lift")
    titles = [re.sub(r"^(.*), The\b", r"\1", film["title"]) for film in like["items"]]
    assert _short(visit.listed()) == [
        f"{re.split(r'[ ,:]', one)[0]} {one[-5:-1]}" for one in titles
    ]
    assert "Casablanca 1942" in visit.listed()  # what was rated may be like it, too
    expect(page.locator(".item-card .words").first).to_contain_text("times as likely after it")
    expect(page.get_by_role("button", name="← Back to the list")).to_be_focused()
    expect(page.locator("#live")).to_contain_text("More like Notting Hill (1999). First:")
    expect(page.locator("#ranking")).to_be_hidden()
    visit.picture("more-like-this")
    page.keyboard.press("Enter")
    visit.settled()
    assert visit.listed() == before
    expect(page.get_by_role("region", name="For you")).to_be_visible()
    expect(card.locator(".menu-button")).to_be_focused()


def test_another_taste_leads_back_to_the_list(visit_to: Open, picks: str) -> None:
    visit = _arrived(visit_to, picks)
    page = visit.page
    visit.more("More like this").click()
    visit.settled()
    expect(page.locator("#back")).to_be_visible()
    page.locator("#chips button").first.click()
    visit.settled()
    expect(page.locator("#back")).to_be_hidden()
    expect(page.get_by_role("region", name="For you")).to_be_visible()
    assert not set(visit.mine()) & set(visit.listed())


# -- hearts --------------------------------------------------------------------------------------


def _mine(visit: Visit) -> list[str]:
    return [text.strip() for text in visit.page.locator("#rated li > span").all_inner_texts()]


def test_hearts_turn_the_list_around(visit_to: Open, hearts: str) -> None:
    visit = _arrived(visit_to, hearts)
    page = visit.page
    for text in ("Amélie", "Notting Hill"):
        asked = visit.changing(visit.find(text).first.click)
    assert asked["interactions"] == [ITEM["Notting Hill (1999)"], ITEM["Amélie (2001)"]]
    assert "ratings" not in asked
    assert _mine(visit) == ["Notting Hill 1999", "Amélie 2001"]
    expect(page.locator("#rated .heart")).to_have_count(2)
    assert set(_short(visit.listed())[:6]) <= _years(LOVE)
    visit.picture("hearts")
    visit.changing(lambda: page.click("#clear"))
    for text in ("Alien", "Brazil"):
        visit.changing(visit.find(text).first.click)
    assert set(_short(visit.listed())[:6]) <= _years(SPACE)
    shares = [float(text.split("\u00a0")[0]) for text in page.locator(".score").all_inner_texts()]
    assert shares == sorted(shares, reverse=True)


def test_a_heart_on_a_card_picks_and_takes_back(visit_to: Open, hearts: str) -> None:
    visit = _arrived(visit_to, hearts)
    page = visit.page
    title = page.locator(".item-card h3").first.inner_text().strip()
    card = page.locator(".item-card").filter(has_text=title)
    heart = card.get_by_role("button", name=re.compile("^Pick it"))
    expect(heart).to_have_attribute("aria-pressed", "false")
    visit.changing(heart.click)
    expect(heart).to_have_attribute("aria-pressed", "true")  # it stays while it has the focus
    assert _mine(visit) == [title]
    visit.changing(lambda: page.keyboard.press("Space"))
    assert _mine(visit) == []
    visit.changing(heart.click)
    page.locator("#search").focus()
    expect(card).to_have_count(0)
    visit.changing(lambda: page.get_by_role("button", name=re.compile("^Remove")).click())
    assert _mine(visit) == []


def test_nothing_speaks_of_stars(visit_to: Open, hearts: str) -> None:
    visit = _arrived(visit_to, hearts)
    page = visit.page
    for text in ("Amélie", "Alien"):
        visit.changing(visit.find(text).first.click)
    visit.more("Why").click()
    expect(page.locator(".reasons li")).to_have_count(2)
    page.locator("footer summary").click()
    expect(page.locator("#dial")).to_be_hidden()
    said = page.locator("body").inner_text() + page.locator("body").aria_snapshot()
    said = said.replace("ratings.csv", "")
    assert not re.search(r"star(?! wars)|\brat(e|ed|ing)", said, re.IGNORECASE)
    expect(page.locator(".reasons li").first).to_contain_text("you picked")
    expect(page.get_by_role("radio")).to_have_count(0)
    for width in (320, 390):
        page.set_viewport_size({"width": width, "height": 800})
        assert visit.fits()
    visit.picture("hearts-narrow", whole=True)


def test_picks_as_files(visit_to: Open, hearts: str) -> None:
    visit = _arrived(visit_to, hearts)
    page = visit.page
    for text in ("Daisy", "Alien"):
        visit.changing(visit.find(text).first.click)
    mine = _mine(visit)
    with page.expect_download() as download:
        page.click("#export")
    assert download.value.suggested_filename == "my-picks.csv"
    text = download.value.path().read_text()
    assert text.splitlines()[:2] == ["item,title", f"{ITEM['Alien (1979)']},Alien (1979)"]
    visit.changing(lambda: page.click("#clear"))
    assert "2 picks imported." in visit.upload("my-picks.csv", text)
    assert _mine(visit) == mine
    told = visit.upload("ratings.csv", "Const,Your Rating,Title,Year\nt1,1,The Matrix,1999\n")
    assert "1 pick imported from IMDb." in told
    assert "Nothing found in this file" in visit.upload("odd.csv", "a,b\n1,2\n")
