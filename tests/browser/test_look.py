"""How the page looks: narrow and wide, dark and light, small and readable."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
from playwright.sync_api import expect
from tests.browser.conftest import Open
from tests.browser.visit import Visit

_PAGE = Path(__file__).parents[2] / "src" / "cfnade" / "server" / "page"


def test_nothing_sticks_out_sideways(visit_to: Open, url: str) -> None:
    visit = visit_to(url, viewport={"width": 320, "height": 700})
    visit.arrive()
    assert visit.fits()
    page = visit.page
    visit.more("Why").click()
    expect(page.locator(".moves li").first).to_be_visible()
    page.get_by_role("button", name=re.compile("^Rate it")).first.click()
    visit.upload("r.csv", "title,rating\n" + "Averyverylongtitlewithoutanyspace" * 4 + ",3\n")
    page.locator("#report summary").click()
    visit.find("star")
    for width in (320, 375, 768, 1280):
        page.set_viewport_size({"width": width, "height": 700})
        for line in page.locator(".moves li").all():
            assert line.evaluate("node => node.offsetHeight") < 70  # no column squeezed to a letter
        assert visit.fits()
        visit.picture(f"width-{width}", whole=True)


def test_without_motion_nothing_moves(visit_to: Open, url: str) -> None:
    visit = visit_to(url, reduced_motion="reduce")
    visit.arrive()
    counted: list[int] = []
    for dare in ("-4", "4"):
        visit.changing(lambda dare=dare: visit.page.fill("#knob", dare))  # type: ignore[misc]
        counted.append(visit.page.evaluate("document.getAnimations().length"))
    assert counted == [0, 0]


def test_the_page_is_small_and_whole(url: str) -> None:
    """All of it weighs little, exists, and is named in the document, so that it loads at once."""
    files = sorted(_PAGE.iterdir())
    assert sum(file.stat().st_size for file in files) < 118 * 1024
    text = httpx.get(url).text
    for file in files:
        if file.name != "index.html":
            assert f'"page/{file.name}"' in text, file.name
            assert httpx.get(f"{url}/page/{file.name}").content == file.read_bytes()


def test_nothing_is_inline_and_nothing_comes_from_elsewhere() -> None:
    html = (_PAGE / "index.html").read_text()
    assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:|<script(?![^>]*\ssrc=)", html)
    for file in _PAGE.iterdir():
        hosts = re.findall(r"(?:https?:)?//[\w.-]+\.\w+", file.read_text())
        assert [host for host in hosts if "www.w3.org" not in host] == [], file.name


def test_a_titles_markup_stays_text(visit: Visit) -> None:
    """Titles come from somebody's data: whatever they contain is shown, never run."""
    page = visit.page
    evil = "<img src=x onerror=alert(1)> (1999)"

    def poison(answer: dict[str, list[dict[str, object]]]) -> dict[str, list[dict[str, object]]]:
        return answer | {"items": [film | {"title": evil} for film in answer["items"]]}

    for path in ("**/recommendations", "**/items?**"):
        page.route(path, lambda route: route.fulfill(json=poison(route.fetch().json())))
    visit.changing(lambda: page.click("#clear"))
    visit.find("alien").first.click()
    expect(page.locator(".item-card h3").first).to_contain_text("<img src=x onerror=alert(1)>")
    expect(page.locator("main img[src]")).to_have_count(0)
