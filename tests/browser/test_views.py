"""What can be kept, put away and seen otherwise: later, not for me, the map; and other words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect
from tests.browser.conftest import Open
from tests.browser.films import LOVE, SPACE, ratings
from tests.browser.visit import Visit
from tests.server.given import serving

from cfnade import checkpoint
from cfnade.config import TrainingConfig
from cfnade.data.splits import split
from cfnade.training.plan import plan_side
from cfnade.training.train import train


@pytest.fixture
def arrived(visit_to: Open, picks: str) -> Visit:
    visit = visit_to(picks)
    visit.arrive()
    return visit


def test_eight_films_are_on_a_screen(arrived: Visit) -> None:
    """1280 × 900, also with the line that tells what changed."""
    arrived.rate("Casablanca", 5)
    page = arrived.page
    expect(page.locator("#changes")).to_be_visible()
    page.evaluate("scrollTo(0, 0)")
    bottoms = page.locator(".item-card").evaluate_all(
        "films => films.map(film => film.getBoundingClientRect().bottom)"
    )
    assert sum(bottom <= 900 for bottom in bottoms) >= 8
    arrived.picture("eight")


def test_what_is_kept_for_later_is_a_list_of_its_own(arrived: Visit) -> None:
    page = arrived.page
    kept = [arrived.listed()[2], arrived.listed()[5]]
    for title in kept:
        card = page.locator(".item-card").filter(has_text=title)
        arrived.more("Watch later", card).click()
        arrived.settled()
        expect(arrived.more("Watch later", card)).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#later-count")).to_have_text("2")
    page.reload()
    arrived.settled()
    page.locator("#views").get_by_role("button", name="Later 2").click()
    arrived.settled()
    expect(page.get_by_role("heading", name="Watch later")).to_be_visible()
    assert set(arrived.listed()) == set(kept)
    expect(page.locator("#ranking")).to_be_hidden()
    arrived.picture("later")
    arrived.more("Watch later").click()
    arrived.settled()
    assert len(arrived.listed()) == 1
    arrived.more("Watch later").click()
    arrived.settled()
    expect(page.get_by_text("Nothing kept yet: press “Watch later” on a film.")).to_be_visible()
    page.locator("#views").get_by_role("button", name="For you").click()
    arrived.settled()
    assert len(arrived.listed()) >= 10


def test_not_for_me_is_never_listed_again_unless_brought_back(arrived: Visit) -> None:
    page = arrived.page
    first, second = arrived.listed()[:2]
    button = arrived.more("Not for me")
    asked = arrived.changing(button.click)
    assert len(asked["exclude_items"]) == 1
    assert arrived.listed()[0] == second
    assert page.evaluate("document.activeElement.closest('.item-card, #list') !== null")
    expect(page.locator("#live")).to_contain_text("List updated")
    expect(page.locator("#away-text")).to_have_text("1 film is not for you.")
    page.reload()
    arrived.settled()
    assert first not in arrived.listed()
    asked = arrived.changing(page.get_by_role("button", name="List them again").click)
    assert "exclude_items" not in asked
    assert arrived.listed()[0] == first
    arrived.changing(arrived.more("Not for me").click)
    arrived.changing(lambda: page.click("#undo"))
    assert arrived.listed()[0] == first


def test_what_a_rating_changed_is_told_truly(arrived: Visit) -> None:
    page = arrived.page
    arrived.changing(lambda: page.click("#clear"))
    expect(page.locator("#changes")).to_be_hidden()
    before = arrived.listed()
    arrived.rate("Casablanca", 5)
    after = arrived.listed()
    told = page.locator("#changes").inner_text()
    assert told.startswith("After your 5 for Casablanca: ")
    fresh = [title for title in after if title not in before]
    found = re.search(r"(\d+) new", told)
    assert (int(found[1]) if found else 0) == len(fresh)
    for name, up in re.findall(r"(?:: |; )([^;:]+?) up (\d+)", told):
        (title,) = [one for one in after if one[:-5] == name]
        assert before.index(title) - after.index(title) == int(up)
    expect(page.locator("#live")).to_contain_text(told)


# -- the map -------------------------------------------------------------------------------------


def test_the_map_lights_up_where_the_taste_is(visit_to: Open, picks: str) -> None:
    visit = visit_to(picks)
    visit.arrive(fresh=True)
    page = visit.page
    with page.expect_response("**/item-map") as told:
        page.locator("#views").get_by_role("button", name="Map").click()
    places = told.value.json()["items"]
    assert len(places) == len(SPACE + LOVE)
    expect(page.locator("#map-said")).to_contain_text("Rate a few films")
    dark = _brightness(visit)
    for text, rating in {"Amélie": 5, "Notting Hill": 5, "Alien": 1}.items():
        visit.find(text).first.click()
        row = page.locator("#rated li").first
        row.get_by_role("radio", name=f"{rating} of 5", exact=True).check()
        page.wait_for_timeout(400)
    expect(page.locator("#map-bright li")).to_have_count(6)
    bright = page.locator("#map-bright button").all_inner_texts()
    love = {re.sub(r" \(.*", "", title) for title in LOVE}
    assert sum(re.sub(r" \(.*", "", title) in love for title in bright) >= 5
    assert _brightness(visit) > dark
    label = page.locator("#map-canvas").get_attribute("aria-label") or ""
    assert bright[0] in label
    visit.picture("map")
    page.locator("#map-bright button").first.press("Enter")
    expect(page.locator("#map-film")).to_contain_text("Near it:")
    page.locator("#map-film").get_by_role("button", name="Rate it").click()
    expect(page.locator("#rated .draft")).to_have_count(1)
    expect(page.locator("#list")).to_be_visible()


def _brightness(visit: Visit) -> float:
    script = """canvas => {
        const copy = new OffscreenCanvas(canvas.width, canvas.height);
        const pen = copy.getContext("2d", { willReadFrequently: true });
        pen.drawImage(canvas, 0, 0);
        const { data } = pen.getImageData(0, 0, canvas.width, canvas.height);
        let sum = 0; for (let at = 0; at < data.length; at += 4) sum += data[at]; return sum; }"""
    return float(visit.page.locator("#map-canvas").evaluate(script))


def test_a_click_on_the_map_means_the_film_there(arrived: Visit) -> None:
    page = arrived.page
    with page.expect_response("**/item-map") as told:
        page.locator("#views").get_by_role("button", name="Map").click()
    film = told.value.json()["items"][3]
    expect(page.locator("#map-bright li").first).to_be_visible()
    canvas = page.locator("#map-canvas")
    box = canvas.bounding_box()
    assert box
    at = {"x": 24 + film["x"] * (box["width"] - 48), "y": 24 + film["y"] * (box["height"] - 48)}
    canvas.click(position=at)  # type: ignore[arg-type]
    expect(page.locator("#map-film b")).to_contain_text(re.split(r"[,(]", film["title"])[0].strip())


# -- words ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def nameless(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A model that has ids only, of what its owner calls books."""
    folder: Path = tmp_path_factory.mktemp("films") / "nameless"
    settings = TrainingConfig(epochs=3, batch_rows=16, learning_rate=0.01, seed=1)
    data = split(ratings("1-5", bare=True), "paper:0")
    done = train(data, plan_side("user", {"hidden": (8,)}, settings))
    checkpoint.save(done.model, folder)
    with serving(folder, item_name="book") as url:
        yield url


def test_books_are_called_books(visit_to: Open, nameless: str) -> None:
    visit = visit_to(nameless)
    visit.arrive()
    page = visit.page
    expect(page.locator("h1")).to_contain_text("Rate a few books.")
    expect(page.get_by_text("Find a book that you have read")).to_be_visible()
    expect(visit.more("Read later")).to_be_visible()
    visit.more("Why").click()
    expect(page.get_by_text(re.compile("of this book"))).to_be_visible()
    page.locator("footer summary").click()
    said = page.locator("body").inner_text() + page.locator("body").aria_snapshot()
    assert not re.search(r"\bfilm|\bItem \d|\bseen\b|watch", said, re.IGNORECASE)
    assert re.fullmatch(r"No\. \d+", visit.listed()[0])
    visit.picture("books")
